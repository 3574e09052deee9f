"""The entropy controller that a configuration describes, and what of it does not fit together."""

from isentrope.config import ControlConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.objective.control import (
    AdaptiveBonus,
    ConstantBonus,
    Controller,
    EntropyBudget,
    Target,
    TargetBand,
)

__all__ = ["check_combination", "make_controller"]

TARGET = ("measure", "target", "target_end", "target_steps")

SETTINGS = {
    "none": (),
    "adaptive": (*TARGET, "delta", "coefficient_low", "coefficient_high"),
    "band": (*TARGET, "delta", "coefficient_low", "coefficient_high", "width"),
    "budget": (*TARGET, "gain", "integral_gain", "integral_limit"),
}
"""The fields of [control] that each controller uses."""


def make_controller(config: TrainConfig) -> Controller:
    """The controller before the first step, or a ConfigError that names what does not fit."""
    check_combination(config)
    control = config.control
    if control.name == "none":
        return ConstantBonus(coefficient=config.objective.entropy_coefficient)
    target = Target(
        value=control.target, end=control.target_end, steps=control.target_steps or config.steps
    )
    if control.name == "budget":
        return EntropyBudget(
            target=target,
            gain=control.gain,
            integral_gain=control.integral_gain,
            integral_limit=control.integral_limit,
        )
    low, high = control.coefficient_low, control.coefficient_high
    if control.name == "adaptive":
        low = 0.0 if low is None else low
        return AdaptiveBonus(target=target, delta=control.delta, low=low, high=high)
    low = -1.0 if low is None else low
    return TargetBand(target=target, width=control.width, delta=control.delta, low=low, high=high)


def check_combination(config: TrainConfig) -> None:
    """Raises a ConfigError for controls that cannot act together."""
    objective, control = config.objective, config.control
    check_settings(control)
    if control.name in ("adaptive", "band") and objective.entropy_coefficient:
        raise ConfigError(
            f"control.name is {control.name!r} and objective.entropy_coefficient is "
            f"{objective.entropy_coefficient}: both set the entropy bonus; leave one out"
        )
    given = [objective.budget is not None, control.name == "budget"]
    if control.name == "budget" and objective.loss != "budget":
        raise ConfigError(
            f"control.name is 'budget', but loss {objective.loss!r} takes no budget; set "
            "objective.loss to 'budget'"
        )
    if objective.loss == "budget" and sum(given) != 1:
        raise ConfigError(
            "loss 'budget' needs its budget from one place: give objective.budget, or "
            f"control.name = 'budget'; {'both are' if all(given) else 'neither is'} there"
        )
    if config.rollout.max_rounds > 1 and not objective.drop_zero_signal:
        raise ConfigError(
            f"rollout.max_rounds is {config.rollout.max_rounds}, but objective.drop_zero_signal is "
            "off: dynamic sampling replaces the groups that are dropped; turn that on"
        )


def check_settings(control: ControlConfig) -> None:
    """Raises a ConfigError for a setting that the controller does not use."""
    default = ControlConfig()
    used = ("name", *SETTINGS[control.name])
    for name in ControlConfig.__slots__:
        value = getattr(control, name)
        if name not in used and value != getattr(default, name):
            raise ConfigError(
                f"control.{name} is {value!r}, but control.name = {control.name!r} does not use "
                "it; leave it out"
            )
    if control.target_steps is not None and control.target_end is None:
        raise ConfigError(
            f"control.target_steps is {control.target_steps}, but there is no control.target_end "
            "to reach; give it, or leave both out"
        )
