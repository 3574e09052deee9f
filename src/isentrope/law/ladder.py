"""Runs of a TOML file, fitted one by one, then looked at over model size and over algorithms.

[[run]]
log = "qwen-0.5b.log"        # or a = 0.21 and b = 0.43, from elsewhere
family = "Qwen2.5"
parameters = 0.36e9          # without embeddings
algorithm = "GRPO"           # optional, for the comparison
reward = "val/acc"           # optional, as are entropy and name

[[predict]]
family = "Qwen2.5"
parameters = 31e9
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

from isentrope.errors import ConfigError
from isentrope.law.fit import Law, fit_law
from isentrope.law.scale import (
    Agreement,
    Prediction,
    Size,
    SizeLine,
    compare_laws,
    fit_size,
    predict_size,
)
from isentrope.law.verdict import Verdict
from isentrope.runs.pairing import pair
from isentrope.runs.read import read_run

__all__ = ["Climbed", "Ladder", "RunEntry", "Rung", "climb", "read_ladder"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEntry:
    """One [[run]] table."""

    family: str
    parameters: float
    log: str | None = None
    a: float | None = None
    b: float | None = None
    algorithm: str | None = None
    entropy: str | None = None
    reward: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        known = self.a is not None and self.b is not None
        if known == (self.log is not None):
            raise ConfigError(f"a [[run]] has either a log, or a and b: {self.family!r} does not")
        if self.parameters <= 0:
            raise ConfigError(f"parameters is a positive number, not {self.parameters:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """One [[predict]] table."""

    family: str
    parameters: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """The file."""

    folder: Path
    runs: tuple[RunEntry, ...]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """A run with its law, or with the coefficients that were given."""

    entry: RunEntry
    a: float
    b: float
    law: Law | None

    @property
    def counts(self) -> bool:
        """Whether it is used: given, or fitted with a law that holds at least weakly."""
        return self.law is None or self.law.usable


@dataclass(frozen=True, kw_only=True, slots=True)
class Climbed:
    """The result: every run, the predictions by family, the comparisons by model."""

    rungs: tuple[Rung, ...]
    lines: tuple[tuple[str, SizeLine, SizeLine], ...]
    """(family, line of a, line of b) of every family of several sizes."""
    predictions: tuple[tuple[str, Prediction], ...]
    agreements: tuple[tuple[str, Agreement], ...]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "runs": [
                {
                    **asdict(rung.entry),
                    "a": rung.a,
                    "b": rung.b,
                    "ceiling": rung.b - rung.a,
                    "verdict": str(rung.law.verdict) if rung.law else "given",
                    "used": rung.counts,
                }
                for rung in self.rungs
            ],
            "lines": [
                {
                    "family": family,
                    "a": {"start": a.start, "slope": a.slope},
                    "b": {"start": b.start, "slope": b.slope},
                }
                for family, a, b in self.lines
            ],
            "predictions": [{"family": f, **asdict(p)} for f, p in self.predictions],
            "algorithms": [
                {"model": model, **asdict(found), "shared": found.shared}
                for model, found in self.agreements
            ],
        }


def read_ladder(path: Path) -> Ladder:
    """The runs and wishes of a TOML file."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    unknown = set(tables) - {"run", "predict"}
    if unknown or not tables.get("run"):
        raise ConfigError(
            f"{path} must hold [[run]] tables and may hold [[predict]] tables; it holds "
            f"{', '.join(sorted(tables)) or 'nothing'}"
        )
    return Ladder(
        folder=path.parent,
        runs=tuple(entry(RunEntry, table) for table in tables["run"]),
        wanted=tuple(entry(Wanted, table) for table in tables.get("predict", ())),
    )


T = TypeVar("T", RunEntry, Wanted)


def entry(kind: type[T], table: Mapping[str, object]) -> T:
    """A table as a dataclass; unknown and missing keys are named."""
    known = {field.name for field in fields(kind)}
    unknown, missing = set(table) - known, {"family", "parameters"} - set(table)
    if unknown or missing:
        wrong = f"unknown: {', '.join(sorted(unknown))}" if unknown else ""
        lacking = f"missing: {', '.join(sorted(missing))}" if missing else ""
        raise ConfigError(
            f"a table of the ladder is wrong ({'; '.join(filter(None, (wrong, lacking)))}); "
            f"its keys are {', '.join(sorted(known))}"
        )
    return kind(**table)  # pyright: ignore[reportArgumentType]


def climb(ladder: Ladder, *, level: float = 0.9) -> Climbed:
    """The fit of every run, predictions of the wanted models, and the test between algorithms."""
    rungs = tuple(fitted(run, ladder.folder, level) for run in ladder.runs)
    used = [rung for rung in rungs if rung.counts]
    return Climbed(
        rungs=rungs,
        lines=tuple(size_lines(used)),
        predictions=tuple(
            (wish.family, predict_size(sizes(used, wish.family), wish.parameters, level=level))
            for wish in ladder.wanted
        ),
        agreements=tuple(comparisons(used)),
    )


def fitted(run: RunEntry, folder: Path, level: float) -> Rung:
    """A run with its law."""
    if run.log is None:
        assert run.a is not None
        assert run.b is not None
        return Rung(entry=run, a=run.a, b=run.b, law=None)
    log = run.log if run.log.startswith("wandb:") else folder / run.log
    record = read_run(log, run=run.name, entropy=run.entropy, reward=run.reward)
    pairs = pair(record, entropy=run.entropy, reward=run.reward)
    law = fit_law(pairs.h, pairs.r, level=level)
    return Rung(entry=run, a=law.a, b=law.b, law=law)


def size_lines(rungs: Sequence[Rung]) -> list[tuple[str, SizeLine, SizeLine]]:
    """The lines of a and b of each family that has several sizes."""
    families = {family: members(rungs, family) for family in {r.entry.family: 0 for r in rungs}}
    return [
        (family, fit_size(found, "a"), fit_size(found, "b"))
        for family, found in families.items()
        if len({size.parameters for size in found}) > 1
    ]


def members(rungs: Sequence[Rung], family: str) -> list[Size]:
    """The usable runs of a family."""
    return [
        Size(parameters=rung.entry.parameters, a=rung.a, b=rung.b)
        for rung in rungs
        if rung.entry.family == family
    ]


def sizes(rungs: Sequence[Rung], family: str) -> list[Size]:
    """The usable runs of a family that is to be predicted, of several sizes at least."""
    found = members(rungs, family)
    if len({size.parameters for size in found}) < 2:
        raise ConfigError(
            f"a prediction for {family!r} needs runs of at least 2 sizes whose law holds; "
            f"there are {len({size.parameters for size in found})}"
        )
    return found


def comparisons(rungs: Sequence[Rung]) -> list[tuple[str, Agreement]]:
    """The test for every model that was trained with several algorithms."""
    groups: dict[tuple[str, float], list[Rung]] = {}
    for rung in rungs:
        if rung.law and rung.law.verdict is not Verdict.UNKNOWN:
            groups.setdefault((rung.entry.family, rung.entry.parameters), []).append(rung)
    return [
        (f"{family} {parameters:.3g}", compare_laws([rung.law for rung in group if rung.law]))
        for (family, parameters), group in groups.items()
        if len({rung.entry.algorithm for rung in group}) > 1
    ]
