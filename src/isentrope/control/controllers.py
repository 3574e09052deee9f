"""Entropy controllers: from the entropy measured before a step to what the step's loss does.

A controller is a value. `update` takes the entropy of the policy (nats) before a step and returns
the controller of that step; its `control` is what the loss gets:

    controller = controller.update(entropy)
    coefficient, budget = controller.control.entropy_coefficient, controller.control.budget

Nothing else is remembered: the entropies in a run's log are enough to make its controller again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import cos, inf, nan, pi
from typing import Literal, Protocol, TypeVar

__all__ = [
    "BUDGET_SETTINGS",
    "CONTROLLERS",
    "TARGET",
    "AdaptiveBonus",
    "ConstantBonus",
    "Control",
    "Controller",
    "DoublingStrength",
    "EntropyBudget",
    "PIStrength",
    "Target",
    "TargetBand",
    "Tracking",
    "settings_of",
    "state_of",
    "with_state",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """What the loss of one step gets."""

    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    budget: float | None = None
    """Mean covariance that may remain (`select_budget`); None: no budget."""
    strength: float | None = None
    """Of a shaping (`entropic`, `repo_r`); None: as configured."""
    target: float | None = None
    """The entropy aimed at, for the log."""


T = TypeVar("T", bound="Tracking")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The entropy to aim at: held, moving, or held first and then released."""

    value: float | None = None
    """Nats; None: the first entropy measured."""
    end: float | None = None
    """Where it arrives; None: it is held."""
    hold: int = 0
    """Steps before it begins to move."""
    steps: int = 1
    """Steps that it then takes to arrive."""
    shape: Literal["linear", "cosine"] = "linear"
    """Its course on the way."""
    relative: bool = False
    """`value` and `end` are shares of the first entropy."""

    def at(self, step: int, first: float) -> float:
        """The target of a step, in a run whose first entropy is `first`."""
        unit = first if self.relative else 1.0
        start = first if self.value is None else self.value * unit
        if self.end is None:
            return start
        done = min(1.0, max(0.0, (step - self.hold) / self.steps))
        if self.shape == "cosine":
            done = (1 - cos(pi * done)) / 2
        return start + (self.end * unit - start) * done


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantBonus:
    """An entropy bonus that stays as it is; with coefficient 0, no control."""

    coefficient: float = 0.0

    @property
    def control(self) -> Control:
        """The bonus."""
        return Control(entropy_coefficient=self.coefficient)

    def update(self, entropy: float) -> "ConstantBonus":
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracking(ABC):
    """What controllers with a target have in common. The last three fields are the state."""

    target: Target
    step: int = -1
    """Number of the present step."""
    first: float = nan
    """Entropy before the first step."""
    entropy: float = nan
    """Entropy before the present step."""

    @property
    def aim(self) -> float:
        """The target of the present step."""
        return self.target.at(self.step, self.first)

    @property
    def error(self) -> float:
        """Entropy minus target."""
        return self.entropy - self.aim

    @property
    @abstractmethod
    def control(self) -> Control:
        """What the loss of the present step gets."""

    @abstractmethod
    def update(self, entropy: float) -> "Tracking":
        """The controller of the next step."""

    def measured(self: T, entropy: float) -> T:
        """The controller one step on."""
        first = entropy if self.step < 0 else self.first
        return replace(self, step=self.step + 1, first=first, entropy=entropy)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveBonus(Tracking):
    """A bonus that grows while entropy is below its target. Skywork-OR1, arXiv 2505.22312.

    The coefficient moves by `delta` a step, up below the target and down above it, and acts only
    where H <= target.
    """

    delta: float = 0.005
    coefficient_low: float = 0.0
    coefficient_high: float = 1.0
    coefficient: float = 0.0
    """State."""

    @property
    def control(self) -> Control:
        """The bonus, 0 above the target."""
        active = self.coefficient if self.error <= 0 else 0.0
        return Control(entropy_coefficient=active, target=self.aim)

    def update(self, entropy: float) -> "AdaptiveBonus":
        """One step on."""
        new = self.measured(entropy)
        return replace(new, coefficient=moved(new.coefficient, new.error, new))


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetBand(Tracking):
    """A bonus that moves only while entropy is outside target +- width, and always acts.

    With `coefficient_low` below 0 it may turn into a penalty, and so hold entropy from above too.
    """

    width: float = 0.05
    delta: float = 0.005
    coefficient_low: float = -1.0
    coefficient_high: float = 1.0
    coefficient: float = 0.0
    """State."""

    @property
    def control(self) -> Control:
        """The bonus."""
        return Control(entropy_coefficient=self.coefficient, target=self.aim)

    def update(self, entropy: float) -> "TargetBand":
        """One step on."""
        new = self.measured(entropy)
        outside = new.error if abs(new.error) > self.width else 0.0
        return replace(new, coefficient=moved(new.coefficient, outside, new))


@dataclass(frozen=True, kw_only=True, slots=True)
class EntropyBudget(Tracking):
    """The isentropic budget: gain x (H - target) + integral_gain x (sum of H - target so far).

    At the target the covariance that may remain is 0, and the update leaves the entropy where it
    is to first order. The integral removes the offset that a steady drift leaves; it is held
    within +-integral_limit, so that a long way to the target does not wind it up.
    """

    gain: float = 1.0
    integral_gain: float = 0.0
    integral_limit: float = inf
    """Of the integral's part of the budget."""
    integral: float = 0.0
    """State: the integral's part of the budget."""

    @property
    def control(self) -> Control:
        """The budget."""
        return Control(budget=self.gain * self.error + self.integral, target=self.aim)

    def update(self, entropy: float) -> "EntropyBudget":
        """One step on."""
        new = self.measured(entropy)
        integral = self.integral + self.integral_gain * new.error
        limit = self.integral_limit
        return replace(new, integral=max(-limit, min(limit, integral)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PIStrength(Tracking):
    """gain x (H - target) + integral_gain x (sum of H - target of earlier steps), within +-1.

    EntroPIC, arXiv 2511.15248, as in its code: the sum is that before this step, and has no limit.
    """

    gain: float = 1.0
    integral_gain: float = 0.0
    integral: float = 0.0
    """State: the integral's part."""

    @property
    def control(self) -> Control:
        """The strength."""
        strength = self.gain * self.error + self.integral
        return Control(strength=max(-1.0, min(1.0, strength)), target=self.aim)

    def update(self, entropy: float) -> "PIStrength":
        """One step on."""
        earlier = 0.0 if self.step < 0 else self.integral_gain * self.error
        return replace(self.measured(entropy), integral=self.integral + earlier)


@dataclass(frozen=True, kw_only=True, slots=True)
class DoublingStrength(Tracking):
    """A strength that doubles below the target and halves above it. REPO-R, arXiv 2603.11682.

    It turns its sign where it would fall below strength_low: then it doubles downwards.
    """

    strength_start: float = 1e-3
    strength_low: float = 1e-4
    strength_high: float = 0.05
    strength: float = nan
    """State; NaN before the first step."""

    @property
    def control(self) -> Control:
        """The strength."""
        return Control(strength=self.strength, target=self.aim)

    def update(self, entropy: float) -> "DoublingStrength":
        """One step on."""
        new = self.measured(entropy)
        if self.step < 0:
            return replace(new, strength=self.strength_start)
        return replace(new, strength=new.moved_strength())

    def moved_strength(self) -> float:
        """The strength one doubling or halving nearer to what the entropy needs."""
        if self.error == 0:
            return self.strength
        wanted = 1.0 if self.error < 0 else -1.0
        size = abs(self.strength)
        if self.strength * wanted > 0:
            return wanted * min(2 * size, self.strength_high)
        if size / 2 < self.strength_low:
            return wanted * self.strength_low
        return -wanted * size / 2


class Controller(Protocol):
    """What the trainer needs of a controller."""

    @property
    def control(self) -> Control:
        """What the loss of the present step gets."""
        ...

    def update(self, entropy: float) -> "Controller":
        """The controller of the next step, before which this entropy (nats) is measured."""
        ...


CONTROLLERS: dict[str, type[Tracking]] = {
    "adaptive": AdaptiveBonus,
    "band": TargetBand,
    "budget": EntropyBudget,
    "pi": PIStrength,
    "doubling": DoublingStrength,
}
"""Controllers with a target, by name. Their settings are fields of the same names in [control]."""

STATE = ("step", "first", "entropy", "coefficient", "integral", "strength")
"""Fields that change from step to step; the others are settings."""


TARGET = (
    *("measure", "target", "target_end", "target_hold", "target_steps"),
    *("target_shape", "target_relative"),
)
"""Fields of [control] that say what a target is and which entropy is compared with it."""


def moved(coefficient: float, error: float, limits: AdaptiveBonus | TargetBand) -> float:
    """The coefficient one delta up below the target, down above it, within its limits."""
    step = limits.delta * ((error < 0) - (error > 0))
    return max(limits.coefficient_low, min(limits.coefficient_high, coefficient + step))


def settings_of(kind: type[Tracking]) -> list[str]:
    """The names of a controller's own settings, beside its target."""
    return [field.name for field in fields(kind) if field.name not in ("target", *STATE)]


BUDGET_SETTINGS = (*TARGET, *settings_of(EntropyBudget))
"""Fields of [control] that the isentropic budget uses."""


def state_of(controller: Tracking) -> dict[str, int | float]:
    """What a controller with a target has learnt so far, for a checkpoint."""
    names = [field.name for field in fields(controller) if field.name in STATE]
    return {name: getattr(controller, name) for name in names}


def with_state(controller: T, state: Mapping[str, int | float]) -> T:
    """The controller with the state that `state_of` gave."""
    return replace(controller, **state)
