"""The law as the report reads it: fitted to a run or an arm, and whether its ceiling may be shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from isentrope.errors import DataError
from isentrope.law.fit import Law, fit_law
from isentrope.law.forecast import Forecast, forecast
from isentrope.report.arms import Arm, over_seeds
from isentrope.report.run_files import Run, Table
from isentrope.report.svg import Array
from isentrope.runs import Series, pair

__all__ = ["EarlyFit", "Reading", "early_fit", "outlook", "read_law", "read_law_of_arm"]

EARLY_SHARE = 0.25
LEAST_EARLY_POINTS = 3  # two coefficients and one point to spare


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Pairs of H and R of the same policies, the law through them, and what to make of it."""

    steps: Array
    entropy: Array
    reward: Array
    law: Law | None
    reason: str
    """Why there is no ceiling; where there is one, what speaks for it."""
    usable: bool
    """Whether the ceiling may be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyFit:
    """The law of the first quarter of the points, against the rest."""

    last_step: int
    """The last step that the fit has seen."""
    points: int
    predicted: Array
    """The reward at every point, its entropy given, as in the paper."""
    rmse: float
    """Of `predicted`, over the points that the fit has not seen."""
    foreseen: Forecast | None
    """The rest with its entropy foreseen too; None where the quarter has too few points for it."""


def read_law(run: Run) -> Reading:
    """The law of one run."""
    try:
        pairs = pair(run.record, reward=run.reward.key or None)
    except DataError as error:
        nothing = np.empty(0)
        return Reading(
            steps=nothing,
            entropy=nothing,
            reward=nothing,
            law=None,
            reason=str(error),
            usable=False,
        )
    return judged(pairs.steps.astype(np.float64), pairs.h, pairs.r, intervention(run.config))


def read_law_of_arm(arm: Arm) -> Reading:
    """The law of an arm: H and R averaged over its seeds, step by step."""
    readings = [read_law(run) for run in arm.runs]
    entropy = over_seeds([series(one.steps, one.entropy) for one in readings])
    reward = over_seeds([series(one.steps, one.reward) for one in readings])
    if not entropy.step.size:
        return readings[0]
    return judged(entropy.step, entropy.mean, reward.mean, intervention(arm.runs[0].config))


def judged(steps: Array, entropy: Array, reward: Array, objection: str | None) -> Reading:
    """The reading of some pairs; `objection` is why their ceiling is not to be shown."""
    try:
        law = fit_law(entropy, reward)
    except DataError as error:
        law, reason = None, str(error)
    else:
        reason = objection if objection and law.usable else law.reason
    return Reading(
        steps=steps,
        entropy=entropy,
        reward=reward,
        law=law,
        reason=reason,
        usable=law is not None and law.usable and objection is None,
    )


STEERING = {
    "loss": ("clip_cov", "kl_cov", "top_entropy", "budget"),
    "advantage": ("pass_at_k", "pkpo", "w_reinforce"),
}
"""Losses that treat tokens apart, and advantages that weigh responses, for the sake of entropy."""


def intervention(config: Table) -> str | None:
    """How a run steers its entropy, or None: the law describes runs that let it go."""
    objective = config.get("objective")
    if not isinstance(objective, Mapping):
        return None
    means = [
        f"{key} = {value!r}"
        for key, value in objective.items()
        if value in STEERING.get(key.removesuffix("_then"), ())
        or (key == "shaping" and value != "none")
        or (key in ("entropy_coefficient", "reference_kl_coefficient") and value)
    ]
    low, high = objective.get("clip_low"), objective.get("clip_high")
    if isinstance(high, float) and high > (low if isinstance(low, float) else 0.2):
        means.append(f"clip_high = {high}")
    control = config.get("control")
    name = control.get("name", "none") if isinstance(control, Mapping) else "none"
    means += [] if name == "none" else [f"control.name = {name!r}"]
    if not means:
        return None
    return (
        f"the run steers its entropy ({', '.join(means)}), and the law describes runs that do not"
    )


def early_fit(reading: Reading) -> EarlyFit | None:
    """What the first quarter says about the rest; None where it is too short or fits no line."""
    points = ceil(EARLY_SHARE * reading.steps.size)
    if points < LEAST_EARLY_POINTS or points == reading.steps.size:
        return None
    past = reading.steps[:points], reading.entropy[:points], reading.reward[:points]
    try:
        predicted = fit_law(*past[1:]).predict(reading.entropy)
    except DataError:
        return None
    errors = (predicted - reading.reward)[points:]
    return EarlyFit(
        last_step=int(past[0][-1]),
        points=points,
        predicted=predicted,
        rmse=float(np.sqrt(np.mean(errors**2))),
        foreseen=foresee(past, reading.steps[points:]),
    )


def outlook(run: Run, reading: Reading) -> Forecast | None:
    """The reward at the planned end of a run that is not there yet; None without a usable law."""
    planned = run.planned_steps
    if not reading.usable or planned is None or planned <= reading.steps[-1]:
        return None
    past = reading.steps, reading.entropy, reading.reward
    return foresee(past, np.array([float(planned)]))


def foresee(past: tuple[Array, Array, Array], ahead: Array) -> Forecast | None:
    """The forecast at the steps ahead, or None where the past is too short for one."""
    try:
        return forecast(*past, ahead)
    except DataError:
        return None


def series(steps: Array, values: Array) -> Series:
    """Values by step."""
    return Series(key="", steps=steps.astype(np.int64), values=values)
