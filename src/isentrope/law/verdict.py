"""Whether the law holds on a run, in words: the figures alone do not say it.

The law describes a run whose entropy falls while its reward grows. A run whose entropy rises,
explodes, or comes back may still be fitted with a high R2, and the ceiling of such a fit means
nothing; so the shape of the entropy is looked at before the fit.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIN_POINTS", "Evidence", "Shape", "Verdict", "entropy_shape", "judge"]

Array = NDArray[np.float64]

MIN_POINTS = 8  # fewer leave nothing to estimate the autocorrelation from
SHAPE_PARTS = 10  # a run is looked at in tenths
EXPLOSION = 3.0  # the last tenth over the first
RISE = 1.1
REBOUND = 0.5  # share of the fall that came back
STILL = 0.05  # a fall of less than this share of the entropy is no fall
HOLDING_R2 = 0.5
HOPELESS_R2 = 0.1
CARRIED = 3.0  # the robust slope differs by this factor when a few points carry the fit


class Verdict(StrEnum):
    """The four verdicts."""

    HOLDS = "holds"
    WEAKLY = "holds weakly"
    FAILS = "does not hold"
    UNKNOWN = "cannot be judged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What a verdict is based on: the pairs in time order and their fit."""

    entropy: Array
    reward: Array
    a: float
    r2: float
    a_interval: tuple[float, float] | None
    robust_a: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The course of the entropy, from the means of the tenths of a run."""

    start: float
    end: float
    lowest: float

    @property
    def fall(self) -> float:
        """From the start to the lowest tenth."""
        return self.start - self.lowest

    @property
    def rebound(self) -> float:
        """From the lowest tenth to the end."""
        return self.end - self.lowest


def entropy_shape(entropy: Array) -> Shape:
    """The shape of a series of at least one value, in time order."""
    parts = np.array_split(entropy, min(SHAPE_PARTS, len(entropy)))
    means = [float(part.mean()) for part in parts]
    return Shape(start=means[0], end=means[-1], lowest=min(means))


def judge(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason: first the entropy's shape, then the sign, then the fit."""
    if len(evidence.entropy) >= MIN_POINTS:
        objection = shape_objection(entropy_shape(evidence.entropy))
        if objection:
            return Verdict.FAILS, objection
    if evidence.a <= 0:
        return Verdict.FAILS, sign_objection(evidence)
    if len(evidence.entropy) < MIN_POINTS:
        return Verdict.UNKNOWN, f"{len(evidence.entropy)} points; at least {MIN_POINTS} are needed"
    return fit_verdict(evidence)


def shape_objection(shape: Shape) -> str | None:
    """Why the law does not apply to an entropy of this shape, or None."""
    course = f"{shape.start:.3g} -> {shape.end:.3g} nats (means of the first and last tenth)"
    if shape.end > EXPLOSION * shape.start:
        return f"entropy explodes, {course}; the law describes runs whose entropy falls"
    if shape.end > RISE * shape.start:
        return f"entropy rises, {course}; the law describes runs whose entropy falls"
    if shape.fall > STILL * shape.start and shape.rebound > REBOUND * shape.fall:
        return (
            f"entropy comes back after its fall, {shape.start:.3g} -> {shape.lowest:.3g} -> "
            f"{shape.end:.3g} nats; the law describes runs whose entropy falls"
        )
    return None


def sign_objection(evidence: Evidence) -> str:
    """What a slope of the wrong sign says."""
    if float(np.ptp(evidence.reward)) == 0:
        return f"the reward is {evidence.reward[0]:g} throughout"
    return (
        f"a = {evidence.a:.3g} is not positive: the reward falls as the entropy falls, "
        "and the law says that it grows"
    )


def fit_verdict(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict on a fit of the right sign on an entropy of the right shape."""
    assert evidence.a_interval is not None, "there are enough points for an interval"
    shape, (low, high) = entropy_shape(evidence.entropy), evidence.a_interval
    r2 = f"R2 {evidence.r2:.2f}"
    if shape.fall <= STILL * shape.start:
        return (
            Verdict.UNKNOWN,
            f"the entropy stayed at {shape.start:.3g} nats, so it shows no slope",
        )
    steepest = high * float(np.ptp(np.exp(evidence.entropy)))
    if low <= 0 and evidence.r2 < HOPELESS_R2 and steepest < float(np.ptp(evidence.reward)) / 2:
        return Verdict.FAILS, f"saturated: {r2}, and a in [{low:.3g}, {high:.3g}] may be zero"
    if low <= 0:
        return Verdict.UNKNOWN, f"{r2}, and a in [{low:.3g}, {high:.3g}] may be zero or large"
    if not 1 / CARRIED < evidence.robust_a / evidence.a < CARRIED:
        return Verdict.WEAKLY, (
            f"{r2}, but a few points carry the fit: a = {evidence.a:.3g} by least squares, "
            f"{evidence.robust_a:.3g} by the median slope"
        )
    if evidence.r2 < HOLDING_R2:
        return (
            Verdict.WEAKLY,
            f"{r2}: the slope is real, but most of the reward's variance is noise",
        )
    return Verdict.HOLDS, f"{r2}, a in [{low:.3g}, {high:.3g}], entropy falls"
