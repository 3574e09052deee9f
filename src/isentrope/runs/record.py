"""The canonical run: every reader of a log format ends here.

A run is a set of series, one a key of the log, each with its steps. The series that matter carry
their meaning: what kind of entropy it is, at which temperature, averaged how, and which version of
the policy it was measured on. Version v is the policy after v updates.
"""

import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "Meaning", "Record", "Role", "Series", "number"]

Role = Literal["entropy", "train", "validation", "pass@k"]

WRAPPED = re.compile(r"(?:np|numpy|torch)?\.?(?:float|int|tensor|bfloat)\d*\((.+)\)")
SHUFFLED = 0.05  # with more backward steps than this share, rows are unordered, not restarted


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """What a key stands for in the log of a given framework."""

    role: Role
    kind: str = ""
    """Of an entropy: full (over the vocabulary), nll (of sampled tokens), is_nll, topk, unknown."""
    aggregation: str = ""
    """Of an entropy: token mean, sequence mean (of token means: the paper's H), unknown."""
    temperature: str = ""
    """Of an entropy: 1, sampling (the policy is divided by the sampling temperature), unknown."""
    population: Literal["train", "validation"] = "train"
    """The prompts it was measured on."""
    lag: int | None = None
    """The policy version is step + lag: -1 before the update of its step, 0 after it, None unknown."""
    source: str = ""
    """Of a validation reward: the data set."""
    metric: str = ""
    """Of a validation reward: mean@8, pass@4, ..."""
    note: str = ""
    """What a reader of the number should know."""

    def describe(self) -> str:
        """One line: the meaning in words."""
        if self.role != "entropy":
            return " ".join(part for part in (self.role, self.source, self.metric) if part)
        kinds = {"full": "full vocabulary", "nll": "NLL of sampled tokens"}
        return (
            f"{kinds.get(self.kind, self.kind)}, {self.aggregation}, temperature "
            f"{self.temperature}, {self.population} prompts, {self.when}"
        )

    @property
    def when(self) -> str:
        """Which policy of a step was measured, in words."""
        if self.lag is None:
            return "policy version not known"
        return "before the update of its step" if self.lag < 0 else "policy after `step` updates"


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One key of a log: strictly increasing steps, a finite value at each."""

    key: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    meaning: Meaning | None = None

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One run, whatever wrote it."""

    path: str
    name: str
    """The file's name, or the run's where a file holds several."""
    format: str
    """Framework and container, as detected: "verl, console log"."""
    series: Mapping[str, Series]
    notes: tuple[str, ...] = ()
    """What was skipped, dropped, not recognised, or should be known about the numbers."""
    unknown_entropy_keys: tuple[str, ...] = ()
    """Keys that contain "entropy" and that no rule knows."""
    entropy_hint: str = ""
    """How this framework is told to log the entropy."""

    def having(self, role: Role) -> list[Series]:
        """The series of one role, the preferred first."""
        return [s for s in self.series.values() if s.meaning and s.meaning.role == role]


class Columns:
    """Rows as they come, kept by key in compact arrays; `build` settles restarts and repeats."""

    def __init__(self) -> None:
        self.columns: dict[str, tuple[array[int], array[float]]] = {}
        self.notes: list[str] = []

    def add(self, step: int, row: Iterable[tuple[str, object]]) -> None:
        """Takes the numbers of one row; what is no number is left out."""
        columns = self.columns
        for key, raw in row:
            value = raw if type(raw) is float else number(raw)
            if value is None:
                continue
            column = columns.get(key)
            if column is None:
                column = columns[key] = (array("q"), array("d"))
            column[0].append(step)
            column[1].append(value)

    def build(self) -> dict[str, Series]:
        """The series by key; empties this object, so that the data is never held twice."""
        series: dict[str, Series] = {}
        restarts = dropped = 0
        while self.columns:
            key, (raw_steps, raw_values) = self.columns.popitem()
            steps, values = (
                np.frombuffer(raw_steps, np.int64),
                np.frombuffer(raw_values, np.float64),
            )
            finite = np.isfinite(values)
            if not finite.all():
                steps, values = steps[finite], values[finite]
            back = int((np.diff(steps) < 0).sum())
            kept = surviving(steps, restarted=back <= max(1, SHUFFLED * len(steps)))
            restarts = max(restarts, back)
            dropped = max(dropped, len(steps) - len(kept))
            if len(kept):
                series[key] = Series(key=key, steps=steps[kept], values=values[kept])
        if restarts and dropped:
            self.notes.append(
                f"the steps go back {restarts} time(s): later rows win, {dropped} earlier row(s) dropped"
            )
        return dict(reversed(series.items()))


def number(value: object) -> float | None:
    """The value as a float, also from a string such as "0.25" or "np.float64(0.25)", or None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        match = WRAPPED.fullmatch(value)
        try:
            return float(match[1] if match else value)
        except ValueError:
            return None
    return None


def surviving(steps: NDArray[np.int64], *, restarted: bool) -> NDArray[np.int64]:
    """The rows to keep, in the order of their steps; of equal steps the last one written.

    After a restart from an earlier step, the rows that the abandoned attempt wrote beyond that
    step belong to another run, so they go as well: a row stays if no later row has its step or a
    smaller one. Rows in no order at all (`restarted` False) are only sorted.
    """
    if not len(steps):
        return np.empty(0, np.int64)
    if restarted:
        smallest_later = np.minimum.accumulate(steps[::-1])[::-1]
        return np.flatnonzero(np.append(steps[:-1] < smallest_later[1:], True))
    order = np.argsort(steps, kind="stable")
    last_of_step = np.append(np.diff(steps[order]) > 0, True)
    return order[last_of_step]
