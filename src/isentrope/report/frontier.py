"""Several arms at the end of their runs: accuracy against pass@k and against entropy.

The end of a run is the mean of its last evaluations, so that one lucky evaluation decides nothing.
Intervals are over seeds; gains are paired: the runs of one seed start alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.law.noise import t_quantile
from isentrope.report.arms import Arm
from isentrope.report.run_files import Run
from isentrope.report.svg import Chart, Trace
from isentrope.runs import Series

__all__ = ["LAST", "Estimate", "Standing", "frontier_charts", "standings"]

LAST = 3
"""Evaluations that the end of a run is the mean of; half of them where there are fewer than six."""

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, and half of its interval by Student's t; NaN with fewer than two seeds."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """From one value a seed."""
        known = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
        if not known.size:
            return cls(np.nan, np.nan)
        if known.size == 1:
            return cls(float(known[0]), np.nan)
        error = float(known.std(ddof=1)) / known.size**0.5
        return cls(float(known.mean()), t_quantile(0.5 + LEVEL / 2, known.size - 1) * error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where an arm ends, and who is better."""

    arm: Arm
    average: Estimate
    passed: Estimate
    entropy: Estimate
    average_gain: Estimate
    """Over the first arm, paired by seed."""
    passed_gain: Estimate
    beaten_by: tuple[str, ...]
    """Arms with no smaller mean in avg@k and pass@k, and a larger one in one of them."""


def standings(arms: Sequence[Arm]) -> list[Standing]:
    """The standing of each arm, in their order; gains are over the first."""
    averages, passes = (
        [ends(arm, choose) for arm in arms]
        for choose in (lambda run: run.reward, lambda run: run.passed)
    )
    means = [
        (Estimate.of([*average.values()]).mean, Estimate.of([*passed.values()]).mean)
        for average, passed in zip(averages, passes, strict=True)
    ]
    return [
        Standing(
            arm=arm,
            average=Estimate.of([*averages[index].values()]),
            passed=Estimate.of([*passes[index].values()]),
            entropy=Estimate.of([*ends(arm, lambda run: run.entropy).values()]),
            average_gain=gain(averages[index], averages[0]),
            passed_gain=gain(passes[index], passes[0]),
            beaten_by=tuple(
                other.name
                for other, mean in zip(arms, means, strict=True)
                if mean != means[index]
                and all(theirs >= ours for theirs, ours in zip(mean, means[index], strict=True))
            ),
        )
        for index, arm in enumerate(arms)
    ]


def ends(arm: Arm, choose: Callable[[Run], Series]) -> dict[int, float]:
    """By seed, the mean of the last evaluations; without a seed, by the run's place in the arm."""
    return {
        place if run.seed is None else run.seed: end(choose(run))
        for place, run in enumerate(arm.runs)
    }


def end(series: Series) -> float:
    """The mean of the last values of a series; NaN of an empty one."""
    if not len(series):
        return np.nan
    count = min(LAST, max(1, len(series) // 2))
    return float(series.values[-count:].mean())


def gain(mine: dict[int, float], first: dict[int, float]) -> Estimate:
    """The mean difference over the seeds that both have."""
    return Estimate.of([mine[seed] - first[seed] for seed in mine if seed in first])


def frontier_charts(arms: Sequence[Arm]) -> list[Chart]:
    """pass@k against avg@k, and avg@k against the entropy that is left, one point an arm."""
    placed = standings(arms)
    first = arms[0].runs[0]
    average, passed = first.metric(first.reward), first.metric(first.passed)
    unbeaten = sorted((one for one in placed if not one.beaten_by), key=lambda s: s.average.mean)
    edge = Trace(
        label="beaten by no other",
        x=np.array([one.average.mean for one in unbeaten]),
        y=np.array([one.passed.mean for one in unbeaten]),
        color=-1,
        kind="dashed",
    )
    how = (
        "Means over the seeds of the last evaluations of each run; a cross is the 95 % interval "
        "over the seeds, where there are two or more."
    )
    return [
        Chart(
            title=f"The frontier: {passed} against {average}",
            x_label=average,
            y_label=passed,
            series=(*points(placed, "average", "passed"), edge),
            note=f"{how} No other arm has more of both than those on the dashed line.",
            absent="no pass@k",
        ),
        Chart(
            title=f"{average} against the entropy that is left",
            x_label="entropy H, nats",
            y_label=average,
            series=tuple(points(placed, "entropy", "average")),
            note=how,
        ),
    ]


def points(placed: Sequence[Standing], across: str, up: str) -> list[Trace]:
    """A dot and a cross for each arm, and a faint line through the arms of one sweep."""
    traces: list[Trace] = []
    sweeps: dict[str, list[tuple[float, float, int]]] = {}
    for one in placed:
        x, y = getattr(one, across), getattr(one, up)
        color = one.arm.color
        dot = np.array([x.mean]), np.array([y.mean])
        traces.append(Trace(label=one.arm.name, x=dot[0], y=dot[1], color=color, kind="dots"))
        bars = ((x.half, 0.0), (0.0, y.half))
        traces += [
            Trace(
                label=one.arm.name,
                x=np.array([x.mean - dx, x.mean + dx]),
                y=np.array([y.mean - dy, y.mean + dy]),
                color=color,
                kind="bar",
                in_legend=False,
            )
            for dx, dy in bars
        ]
        name, swept, _ = one.arm.name.partition(",")
        if swept:
            sweeps.setdefault(name, []).append((x.mean, y.mean, color))
    for name, corners in sweeps.items():
        xs, ys, colors = zip(*corners, strict=True)
        line = np.array(xs), np.array(ys)
        traces.append(
            Trace(label=name, x=line[0], y=line[1], color=colors[0], kind="faint", in_legend=False)
        )
    return traces
