"""The canonical run: every reader of a log format ends here.

A run is a set of series, one a key of the log, each with its steps. The series that matter carry
their meaning: what kind of entropy it is, at which temperature, averaged how, and which version of
the policy it was measured on. Version v is the policy after v updates.
"""

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

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
    """Rows as they come, in compact arrays; `build` turns them into series.

    Most rows of a log have the same keys, so rows are kept by their set of keys: one array of
    numbers, row after row.
    """

    def __init__(self) -> None:
        self.blocks: dict[tuple[str, ...], Block] = {}
        self.count = 0
        self.notes: list[str] = []

    def add(self, step: int, row: Mapping[str, object]) -> None:
        """Takes the numbers of one row; what is no number is left out."""
        try:
            values, keys = array("d", cast("Iterable[float]", row.values())), tuple(row)
        except TypeError:
            numbers = {key: found for key in row if (found := number(row[key])) is not None}
            values, keys = array("d", numbers.values()), tuple(numbers)
        block = self.blocks.get(keys)
        if block is None:
            block = self.blocks[keys] = Block(array("q"), array("q"), array("d"))
        block.steps.append(step)
        block.places.append(self.count)
        block.values.extend(values)
        self.count += 1

    def build(self) -> dict[str, Series]:
        """The series by key, restarts settled; empties this object to hold the data only once."""
        pieces: dict[str, list[Piece]] = {}
        while self.blocks:
            keys, block = self.blocks.popitem()
            steps, places = np.array(block.steps), np.array(block.places)
            table = np.frombuffer(block.values).reshape(len(steps), len(keys))
            for key, values in zip(keys, table.T.copy(), strict=True):
                pieces.setdefault(key, []).append(Piece(steps, places, values))
        series, restarts, dropped = {}, 0, 0
        for key in sorted(pieces, key=lambda key: int(min(p.places[0] for p in pieces[key]))):
            steps, values = join(pieces.pop(key))
            back = int((np.diff(steps) < 0).sum())
            kept = surviving(steps, restarted=back <= max(1, SHUFFLED * len(steps)))
            restarts, dropped = max(restarts, back), max(dropped, len(steps) - len(kept))
            if len(kept):
                series[key] = Series(key=key, steps=steps[kept], values=values[kept])
        if restarts and dropped:
            self.notes.append(
                f"the steps go back {restarts} time(s): later rows win, {dropped} earlier row(s) dropped"
            )
        return series


class Block(NamedTuple):
    """Rows of the same keys: their steps, their places in the log, their numbers."""

    steps: "array[int]"
    places: "array[int]"
    values: "array[float]"


class Piece(NamedTuple):
    """One key in the rows of one block."""

    steps: NDArray[np.int64]
    places: NDArray[np.int64]
    values: NDArray[np.float64]


def join(pieces: Sequence[Piece]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(steps, values) of a key in the order of the log, finite values only."""
    steps, values = pieces[0].steps, pieces[0].values
    if len(pieces) > 1:
        order = np.argsort(np.concatenate([piece.places for piece in pieces]))
        steps = np.concatenate([piece.steps for piece in pieces])[order]
        values = np.concatenate([piece.values for piece in pieces])[order]
    finite = np.isfinite(values)
    return (steps, values) if finite.all() else (steps[finite], values[finite])


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
    if (np.diff(steps) > 0).all():
        return np.arange(len(steps))
    if restarted:
        smallest_later = np.minimum.accumulate(steps[::-1])[::-1]
        return np.flatnonzero(np.append(steps[:-1] < smallest_later[1:], True))
    order = np.argsort(steps, kind="stable")
    last_of_step = np.append(np.diff(steps[order]) > 0, True)
    return order[last_of_step]
