"""Runs grouped into arms (one setting, several seeds), and what is read off an arm."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.errors import DataError
from isentrope.law.fit import Law, fit_law
from isentrope.report.load import Rows, RunFolder, column
from isentrope.report.svg import Array

__all__ = ["Arm", "Spread", "group", "law_of", "over_seeds", "pairs", "start_and_end"]

ENTROPY = "entropy/sequence_mean"  # the paper's H


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Runs that differ in their seed only."""

    name: str
    color: int
    runs: tuple[RunFolder, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean, lowest and highest over the seeds that have a value, for each step."""

    step: Array
    mean: Array
    low: Array
    high: Array


def group(runs: Sequence[RunFolder]) -> list[Arm]:
    """The arms, in order of first appearance."""
    by_name: dict[str, list[RunFolder]] = {}
    for run in runs:
        by_name.setdefault(run.arm, []).append(run)
    return [
        Arm(name=name, color=index, runs=tuple(members))
        for index, (name, members) in enumerate(by_name.items())
    ]


def over_seeds(tables: Sequence[Rows], key: str) -> Spread:
    """One metric of several runs, aligned by step."""
    steps = np.unique(np.concatenate([column(rows, "step") for rows in tables]))
    values = np.full((len(tables), steps.size), np.nan)
    for row_index, rows in enumerate(tables):
        values[row_index, np.searchsorted(steps, column(rows, "step"))] = column(rows, key)
    measured = np.isfinite(values).any(axis=0)
    steps, values = steps[measured], values[:, measured]
    if steps.size == 0:
        return Spread(step=steps, mean=steps, low=steps, high=steps)
    return Spread(
        step=steps,
        mean=np.nanmean(values, axis=0),
        low=np.nanmin(values, axis=0),
        high=np.nanmax(values, axis=0),
    )


def pairs(run: RunFolder, source: str | None = None) -> tuple[Array, Array, Array]:
    """Step, H and R of each evaluation that has R, both of the same policy.

    H is the evaluation's own; where it was not measured, that of the training batch of the step.
    """
    rows = run.evaluated(source)
    step, entropy, reward = (column(rows, key) for key in ("step", ENTROPY, "reward/avg"))
    logged = dict(zip(column(run.metrics, "step"), column(run.metrics, ENTROPY), strict=True))
    fallback = np.array([logged.get(value, np.nan) for value in step], dtype=np.float64)
    entropy = np.where(np.isfinite(entropy), entropy, fallback)
    complete = np.isfinite(entropy) & np.isfinite(reward)
    return step[complete], entropy[complete], reward[complete]


def law_of(entropy: Array, reward: Array) -> tuple[Law | None, str]:
    """The fitted law and why its verdict is what it is; None where no line can be fitted."""
    try:
        law = fit_law(entropy, reward)
    except DataError as error:
        return None, str(error)
    return law, law.reason


def start_and_end(rows: Rows, key: str) -> tuple[float, float]:
    """The first and the last measured value of a key; NaN where there is none."""
    values = column(rows, key)
    values = values[np.isfinite(values)]
    return (float(values[0]), float(values[-1])) if values.size else (np.nan, np.nan)
