"""A run in words and an arm in numbers."""

from dataclasses import dataclass

import numpy as np

from isentrope.law.fit import Law
from isentrope.report.alarms import entropy_alarms
from isentrope.report.arms import ENTROPY, Arm, law_of, over_seeds, pairs, start_and_end
from isentrope.report.figures import samples_of
from isentrope.report.load import Rows, RunFolder, column
from isentrope.report.svg import Array

__all__ = ["ArmSummary", "Change", "arm_law", "arm_summary", "ceiling_text", "course", "verdict"]

MISSING = "\u2013"
PHASES = ("rollout", "verify", "update", "evaluate")


@dataclass(frozen=True, slots=True)
class Change:
    """A quantity at the start and at the end; NaN where it was not measured."""

    start: float
    end: float

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

    name: str
    seeds: int
    steps: int
    entropy: Change
    average: Change
    passed: Change
    law: Law | None
    reason: str
    selected_fraction: float
    minutes: float


def verdict(run: RunFolder, law: Law | None, reason: str) -> list[str]:
    """What happened in a run: one sentence each on entropy, accuracy, the law and the alarms."""
    sentences = [entropy_sentence(run), reward_sentence(run), law_sentence(law, reason)]
    alarms = entropy_alarms(column(run.metrics, "step"), column(run.metrics, ENTROPY))
    sentences += [f"Alarm: {alarm.text}." for alarm in alarms]
    if run.is_torn:
        sentences.append(
            "The last line of a log is unfinished and was left out: the run was cut off."
        )
    return [sentence for sentence in sentences if sentence]


def course(run: RunFolder, key: str) -> Change:
    """Start and end of an evaluated quantity; of the training metrics where it was not evaluated."""
    change = Change(*start_and_end(run.evaluated(), key))
    return change if change.is_known else Change(*start_and_end(run.metrics, key))


def entropy_sentence(run: RunFolder) -> str:
    """How much entropy is gone, and when half of that was gone."""
    entropy = course(run, ENTROPY)
    if not entropy.is_known:
        return "Entropy was not logged."
    what = f"from {entropy.start:.3f} to {entropy.end:.3f} nats in {run.steps} steps"
    if entropy.lost_share < 0:
        return f"Entropy rose {what} ({-100 * entropy.lost_share:.0f}\u00a0% more)."
    half = half_loss_step(run, entropy)
    when = f"; half of the loss came by step {half}" if half is not None else ""
    return f"Entropy fell {what}: {100 * entropy.lost_share:.0f}\u00a0% is gone{when}."


def half_loss_step(run: RunFolder, entropy: Change) -> int | None:
    """The first step at which half of the loss had happened; None for a loss under a tenth."""
    if entropy.lost_share < 0.1:
        return None
    step, values = column(run.metrics, "step"), column(run.metrics, ENTROPY)
    below = np.flatnonzero(values <= (entropy.start + entropy.end) / 2)
    return int(step[below[0]]) if below.size else None


def reward_sentence(run: RunFolder) -> str:
    """Accuracy and pass@k, from and to."""
    rows = run.evaluated()
    average, passed = course(run, "reward/avg"), course(run, "reward/pass")
    k = samples_of(rows)
    if not average.is_known:
        training = Change(*start_and_end(run.metrics, "reward/mean"))
        if not training.is_known:
            return "No reward was logged."
        return f"No evaluation was logged; the training reward went {span(training)}."
    where = f" on {run.sources[0]}" if run.sources and run.sources[0] else ""
    text = f"Accuracy{where} (avg@{k}) went {span(average)}"
    if passed.is_known:
        text += f", pass@{k} {span(passed)}"
        if average.end > average.start and passed.end < passed.start:
            text += ": better on average, fewer problems within reach"
    return text + "."


def law_sentence(law: Law | None, reason: str) -> str:
    """The law's verdict; a ceiling only where the law can be used."""
    if law is None:
        return f"The law R = -a exp(H) + b was not fitted: {reason}."
    if not law.usable:
        return f"The law R = -a exp(H) + b {law.verdict}: {reason}. No ceiling is given."
    return (
        f"The law R = {-law.a:.3f} exp(H) + {law.b:.3f} {law.verdict} (R2 {law.r2:.2f}): "
        f"when all entropy is spent, accuracy ends at {ceiling_text(law)}."
    )


def ceiling_text(law: Law) -> str:
    """The ceiling with its interval, in percent."""
    text = f"{100 * law.ceiling:.1f}\u00a0%"
    if law.ceiling_interval is None:
        return text
    low, high = law.ceiling_interval
    return f"{text} ({100 * law.level:.0f}\u00a0% interval {100 * low:.1f} to {100 * high:.1f})"


def arm_summary(arm: Arm) -> ArmSummary:
    """The numbers of one arm."""
    law, reason = law_of(*arm_law_points(arm))
    return ArmSummary(
        name=arm.name,
        seeds=len(arm.runs),
        steps=max(run.steps for run in arm.runs),
        entropy=mean_change(arm, ENTROPY),
        average=mean_change(arm, "reward/avg"),
        passed=mean_change(arm, "reward/pass"),
        law=law,
        reason=reason,
        selected_fraction=mean([mean(column(r.metrics, "selected/fraction")) for r in arm.runs]),
        minutes=mean([minutes(run) for run in arm.runs]),
    )


def arm_law(arm: Arm) -> tuple[Array, Array, Law | None]:
    """H, R and law of an arm."""
    entropy, reward = arm_law_points(arm)
    return entropy, reward, law_of(entropy, reward)[0]


def arm_law_points(arm: Arm) -> tuple[Array, Array]:
    """H and R of an arm in order of step, averaged over its seeds."""
    tables: list[Rows] = [
        [{"step": s, "H": h, "R": r} for s, h, r in zip(*pairs(run), strict=True)]
        for run in arm.runs
    ]
    return over_seeds(tables, "H").mean, over_seeds(tables, "R").mean


def mean_change(arm: Arm, key: str) -> Change:
    """Mean start and mean end over the seeds."""
    changes = [course(run, key) for run in arm.runs]
    return Change(mean([one.start for one in changes]), mean([one.end for one in changes]))


def minutes(run: RunFolder) -> float:
    """Wall time of the logged steps."""
    seconds = column(run.metrics, "time/step_s")
    return float(np.nansum(seconds)) / 60 if np.isfinite(seconds).any() else np.nan


def mean(values: Array | list[float]) -> float:
    """The mean of the finite values; NaN where there is none."""
    finite = np.asarray(values)[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


def span(change: Change) -> str:
    """Two percentages."""
    return f"from {100 * change.start:.1f}\u00a0% to {100 * change.end:.1f}\u00a0%"
