"""A run in words and an arm in numbers."""

from dataclasses import dataclass

import numpy as np

from isentrope.law.fit import Law
from isentrope.law.forecast import Forecast
from isentrope.report.arms import Arm
from isentrope.report.laws import EarlyFit, Reading
from isentrope.report.run_files import Run
from isentrope.report.svg import Array
from isentrope.runs import Series

__all__ = ["ArmSummary", "Change", "arm_summary", "ceiling_text", "outlook_sentence", "verdict"]

SPACE = "\u00a0"  # keeps a number and its unit on one line


@dataclass(frozen=True, slots=True)
class Change:
    """A quantity at the start and at the end; NaN where it was not measured."""

    start: float
    end: float

    @classmethod
    def of(cls, series: Series) -> "Change":
        """The first and the last value of a series."""
        if not len(series):
            return cls(np.nan, np.nan)
        return cls(float(series.values[0]), float(series.values[-1]))

    @property
    def is_known(self) -> bool:
        """Whether both ends were measured."""
        return bool(np.isfinite(self.start) and np.isfinite(self.end))

    @property
    def lost_share(self) -> float:
        """The part of the start that is gone at the end; negative when it grew."""
        return 1 - self.end / self.start if self.start else np.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSummary:
    """One row of the table of arms; means over the seeds."""

    steps: int
    entropy: Change
    average: Change
    passed: Change
    selected_fraction: float
    minutes: float


def verdict(
    run: Run, reading: Reading, early: EarlyFit | None, ahead: Forecast | None
) -> list[str]:
    """What happened in a run: a sentence each on entropy, reward, law, and forecasts."""
    sentences = [entropy_sentence(run), reward_sentence(run), law_sentence(reading)]
    if ahead is not None:
        sentences.append(outlook_sentence(ahead))
    if early is not None and reading.usable:
        sentences.append(
            f"The law of the first {early.points} evaluations, up to step {early.last_step}, "
            f"foresaw the others with an error of {100 * early.rmse:.1f} points (RMSE)."
        )
    return sentences


def outlook_sentence(ahead: Forecast) -> str:
    """The reward that is foreseen at the planned end."""
    return (
        f"At step {ahead.steps[-1]:.0f} accuracy is foreseen to be {percent(ahead.reward[-1])} "
        f"({percent(ahead.law.level, 0)} band {100 * ahead.low[-1]:.1f} to {100 * ahead.high[-1]:.1f})."
    )


def entropy_sentence(run: Run) -> str:
    """How much entropy is gone, and when half of that was gone."""
    entropy = Change.of(run.entropy)
    if not entropy.is_known:
        return "Entropy was not logged."
    what = f"from {entropy.start:.3f} to {entropy.end:.3f} nats in {run.steps} steps"
    if entropy.lost_share < 0:
        return f"Entropy rose {what}: {percent(-entropy.lost_share, 0)} more."
    half = half_loss_step(run.entropy, entropy)
    when = f", half of the loss by step {half}" if half is not None else ""
    return f"Entropy fell {what}: {percent(entropy.lost_share, 0)} is gone{when}."


def half_loss_step(series: Series, entropy: Change) -> int | None:
    """The first measured step at which half of the loss was past; None for a loss under a tenth."""
    if entropy.lost_share < 0.1:
        return None
    below = series.values <= (entropy.start + entropy.end) / 2
    return int(series.steps[below.argmax()])


def reward_sentence(run: Run) -> str:
    """Reward and pass@k, from and to."""
    average, passed = Change.of(run.reward), Change.of(run.passed)
    if not average.is_known:
        return "No reward was logged."
    what = "Accuracy" if run.first("validation") else "Nothing was validated; the training reward"
    source = run.reward.meaning.source if run.reward.meaning else ""
    where = f" on {source} ({run.metric(run.reward)})" if source else ""
    text = f"{what}{where} went {span(average)}"
    if passed.is_known:
        text += f", {run.metric(run.passed)} {span(passed)}"
    return text + "."


def law_sentence(reading: Reading) -> str:
    """The law's verdict; a ceiling only where the law can be used."""
    law = reading.law
    if law is None:
        return f"The law R = -a exp(H) + b was not fitted: {reading.reason}."
    if not reading.usable:
        return f"No ceiling is given: {reading.reason}."
    return (
        f"The law R = -{law.a:.3f} exp(H) + {law.b:.3f} {law.verdict} (R2 {law.r2:.2f}): with all "
        f"entropy spent, accuracy would be {ceiling_text(law)}."
    )


def ceiling_text(law: Law) -> str:
    """The ceiling with its interval, in percent."""
    if law.ceiling_interval is None:
        return percent(law.ceiling)
    low, high = law.ceiling_interval
    interval = f"{percent(law.level, 0)} interval {100 * low:.1f} to {100 * high:.1f}"
    return f"{percent(law.ceiling)} ({interval})"


def arm_summary(arm: Arm) -> ArmSummary:
    """The numbers of one arm."""
    return ArmSummary(
        steps=max(run.steps for run in arm.runs),
        entropy=mean_change([run.entropy for run in arm.runs]),
        average=mean_change([run.reward for run in arm.runs]),
        passed=mean_change([run.passed for run in arm.runs]),
        selected_fraction=mean([mean(run.get("selected/fraction").values) for run in arm.runs]),
        minutes=mean([minutes(run) for run in arm.runs]),
    )


def mean_change(series: list[Series]) -> Change:
    """Mean start and mean end over the seeds."""
    changes = [Change.of(one) for one in series]
    return Change(mean([one.start for one in changes]), mean([one.end for one in changes]))


def minutes(run: Run) -> float:
    """Wall time of the logged steps."""
    seconds = run.get("time/step_s").values
    return float(seconds.sum()) / 60 if seconds.size else np.nan


def mean(values: Array | list[float]) -> float:
    """The mean of the finite values; NaN where there is none."""
    finite = np.asarray(values)[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


def span(change: Change) -> str:
    """Two percentages."""
    return f"from {percent(change.start)} to {percent(change.end)}"


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent."""
    return f"{100 * value:.{digits}f}{SPACE}%"
