"""Runs grouped into arms: one setting, several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.report.run_files import Run
from isentrope.report.svg import Array
from isentrope.runs import Series

__all__ = ["Arm", "Spread", "group", "over_seeds"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Runs that differ in their seed only."""

    name: str
    color: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean, lowest and highest over the seeds that have a value, for each step."""

    step: Array
    mean: Array
    low: Array
    high: Array


def group(runs: Sequence[Run]) -> list[Arm]:
    """The arms, in order of first appearance."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.arm, []).append(run)
    return [
        Arm(name=name, color=index, runs=tuple(members))
        for index, (name, members) in enumerate(by_name.items())
    ]


def over_seeds(series: Sequence[Series]) -> Spread:
    """One metric of several runs, aligned by step."""
    steps = np.unique(np.concatenate([one.steps for one in series]))
    values = np.full((len(series), steps.size), np.nan)
    for row, one in zip(values, series, strict=True):
        row[np.searchsorted(steps, one.steps)] = one.values
    if not steps.size:
        nothing = np.empty(0)
        return Spread(step=nothing, mean=nothing, low=nothing, high=nothing)
    return Spread(
        step=steps.astype(np.float64),
        mean=np.nanmean(values, axis=0),
        low=np.nanmin(values, axis=0),
        high=np.nanmax(values, axis=0),
    )
