"""The entropy controller that a configuration describes, and what of it does not fit together."""

from isentrope.config import ControlConfig, ObjectiveConfig, TrainConfig
from isentrope.control.controllers import (
    CONTROLLERS,
    TARGET,
    ConstantBonus,
    Controller,
    Target,
    Tracking,
    settings_of,
)
from isentrope.errors import ConfigError

__all__ = [
    "BUDGET_SHAPINGS",
    "budget_acts",
    "check_combination",
    "check_settings",
    "make_controller",
    "tracking_controller",
]

BUDGET_SHAPINGS = ("success", "decorrelation")
"""Shapings that meet a budget, as loss `budget` does by cutting."""


STRENGTH_SHAPINGS = ("entropic", "repo_r")
"""Shapings of a strength, which a controller may set."""

STRENGTH_CONTROLS = ("pi", "doubling")
"""Those controllers."""

BEST_OF_K = ("pass_at_k", "pkpo")
"""Advantages by which the best of `pass_k` responses counts."""

PASS_K = 4
"""Their default."""


def make_controller(config: TrainConfig) -> Controller:
    """The controller before the first step, or a ConfigError that names what does not fit."""
    check_combination(config)
    control = config.control
    if control.name == "none":
        return ConstantBonus(coefficient=config.objective.entropy_coefficient)
    return tracking_controller(control, config.steps)


def tracking_controller(control: ControlConfig, steps: int) -> Tracking:
    """The controller with a target that is named; `steps` until its end where none are given."""
    kind = CONTROLLERS[control.name]
    target = Target(
        value=control.target,
        end=control.target_end,
        hold=control.target_hold,
        steps=control.steps_to_end(steps),
        shape=control.target_shape,
        relative=control.target_relative,
    )
    given = {name: getattr(control, name) for name in settings_of(kind)}
    return kind(
        target=target, **{name: value for name, value in given.items() if value is not None}
    )


def check_combination(config: TrainConfig) -> None:
    """Raises a ConfigError for controls that cannot act together."""
    objective, control = config.objective, config.control
    check_settings(control)
    if control.name in ("adaptive", "band") and objective.entropy_coefficient:
        raise ConfigError(
            f"control.name is {control.name!r} and objective.entropy_coefficient is "
            f"{objective.entropy_coefficient}: both set the entropy bonus; leave one out"
        )
    check_budget(config)
    check_strength(config)
    check_advantages(config)
    if config.rollout.max_rounds > 1 and not objective.drop_zero_signal:
        raise ConfigError(
            f"rollout.max_rounds is {config.rollout.max_rounds}, but objective.drop_zero_signal is "
            "off: dynamic sampling replaces the groups that are dropped; turn that on"
        )


def budget_acts(objective: ObjectiveConfig) -> list[str]:
    """What of the objective meets a budget, in words."""
    acts = [f"shaping {objective.shaping!r}"] if objective.shaping in BUDGET_SHAPINGS else []
    return acts + (["loss 'budget'"] if objective.loss == "budget" else [])


def check_advantages(config: TrainConfig) -> None:
    """Raises a ConfigError for advantages that cannot follow each other, or sets that are too large."""
    objective = config.objective
    names = [objective.advantage, *([objective.advantage_then] if objective.advantage_then else [])]
    if (objective.advantage_then is None) != (objective.advantage_steps is None):
        raise ConfigError(
            f"objective.advantage_then is {objective.advantage_then!r} and objective.advantage_steps "
            f"{objective.advantage_steps}; give both, or neither"
        )
    if len(names) > 1 and "prime" in names:
        raise ConfigError(
            f"objective.advantage is {names[0]!r} and advantage_then {names[1]!r}: 'prime' has a reward "
            "model that learns in every step; it stands alone"
        )
    best = [name for name in names if name in BEST_OF_K]
    if best and (objective.pass_k or PASS_K) >= config.rollout.samples:
        raise ConfigError(
            f"objective.pass_k is {objective.pass_k or PASS_K} and rollout.samples "
            f"{config.rollout.samples}: {best[0]} compares the sets of pass_k "
            "responses of a group; make pass_k smaller or samples larger"
        )


def check_budget(config: TrainConfig) -> None:
    """Raises a ConfigError for a budget that is not given once, or that not one act meets."""
    objective, control = config.objective, config.control
    given = [objective.budget is not None, control.name == "budget"]
    acts = budget_acts(objective)
    if control.name == "budget" and not acts:
        raise ConfigError(
            f"control.name is 'budget', but loss {objective.loss!r} takes no budget; set "
            f"objective.shaping to one of {', '.join(BUDGET_SHAPINGS)}, or objective.loss to 'budget'"
        )
    if len(acts) == 2:
        raise ConfigError(f"{acts[0]} and {acts[1]} would both meet the budget; leave one out")
    if acts and sum(given) != 1:
        raise ConfigError(
            f"{acts[0]} needs its budget from one place: give objective.budget, or "
            f"control.name = 'budget'; {'both are' if all(given) else 'neither is'} there"
        )


def check_strength(config: TrainConfig) -> None:
    """Raises a ConfigError for a strength that is not given once, or that no shaping takes."""
    objective, control = config.objective, config.control
    given = [objective.strength is not None, control.name in STRENGTH_CONTROLS]
    takes = objective.shaping in STRENGTH_SHAPINGS
    if control.name in STRENGTH_CONTROLS and not takes:
        raise ConfigError(
            f"control.name is {control.name!r}, but shaping {objective.shaping!r} takes no strength; "
            f"set objective.shaping to one of {', '.join(STRENGTH_SHAPINGS)}"
        )
    if takes and sum(given) != 1:
        raise ConfigError(
            f"shaping {objective.shaping!r} needs its strength from one place: give "
            f"objective.strength, or control.name = {' or '.join(map(repr, STRENGTH_CONTROLS))}; "
            f"{'both are' if all(given) else 'neither is'} there"
        )


def check_settings(control: ControlConfig) -> None:
    """Raises a ConfigError for a setting that the controller does not use."""
    if control.name not in ("none", *CONTROLLERS):
        raise ConfigError(
            f"control.name is {control.name!r}; choose one of none, {', '.join(CONTROLLERS)}"
        )
    default = ControlConfig()
    own = [] if control.name == "none" else [*TARGET, *settings_of(CONTROLLERS[control.name])]
    used = ("name", *own)
    for name in ControlConfig.__slots__:
        value = getattr(control, name)
        if name not in used and value != getattr(default, name):
            raise ConfigError(
                f"control.{name} is {value!r}, but control.name = {control.name!r} does not use "
                "it; leave it out"
            )
    for name in ("target_hold", "target_steps", "target_shape"):
        value = getattr(control, name)
        if control.target_end is None and value != getattr(default, name):
            raise ConfigError(
                f"control.{name} is {value!r}, but there is no control.target_end to reach; give "
                "it, or leave both out"
            )
    if control.target_relative and control.target is None and control.target_end is None:
        raise ConfigError(
            "control.target_relative is set, but neither control.target nor control.target_end is "
            "given as a share of the first entropy; give one, or leave it out"
        )
