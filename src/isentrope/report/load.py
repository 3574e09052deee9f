"""What a run folder holds, read for the eye: rows as they were logged, missing values kept."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isentrope.errors import DataError
from isentrope.report.svg import Array

__all__ = ["Row", "Rows", "RunFolder", "column", "find_runs", "read_run", "read_samples"]

Row = Mapping[str, object]
Rows = Sequence[Row]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolder:
    """One run: its settings and the rows of its two logs, in order of step."""

    folder: Path
    config: Mapping[str, object]
    environment: Mapping[str, object]
    metrics: Rows
    evaluations: Rows
    is_torn: bool
    """Whether the last line of a log was unfinished (and left out): the run was cut off."""

    @property
    def arm(self) -> str:
        """The name that runs of several seeds share: `name` of config.toml, or the folder's."""
        name = self.config.get("name")
        return name if isinstance(name, str) and name else self.folder.resolve().name

    @property
    def seed(self) -> int | None:
        """`seed` of config.toml."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def sources(self) -> list[str]:
        """The data sets it was evaluated on, in order of appearance."""
        return list(dict.fromkeys(str(row.get("source", "")) for row in self.evaluations))

    @property
    def steps(self) -> int:
        """Training steps that the last measured policy has behind it."""
        return int(column([*self.metrics, *self.evaluations], "step").max())

    def evaluated(self, source: str | None = None) -> Rows:
        """The evaluations on one data set; on the first one where none is named."""
        wanted = source if source is not None else next(iter(self.sources), "")
        return [row for row in self.evaluations if str(row.get("source", "")) == wanted]


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among `paths`: each is one, or a folder that holds some."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path} is not a run folder; give the folder with metrics.jsonl")
        inside = [path] if (path / "metrics.jsonl").is_file() else runs_in(path)
        if not inside:
            raise DataError(f"{path} has no metrics.jsonl, nor has a folder in it; is it a run?")
        found += inside
    return list(dict.fromkeys(found))


def runs_in(folder: Path) -> list[Path]:
    """The folders directly inside `folder` that are runs, by name."""
    return sorted(child for child in folder.iterdir() if (child / "metrics.jsonl").is_file())


def read_run(folder: Path) -> RunFolder:
    """The content of a run folder; only metrics.jsonl must be there."""
    metrics_path = folder / "metrics.jsonl"
    if not metrics_path.is_file():
        raise DataError(f"{folder} has no metrics.jsonl; give the folder that a run writes to")
    metrics, metrics_torn = read_rows(metrics_path)
    if not metrics:
        raise DataError(f"{metrics_path} has no complete line yet; wait for the first step")
    evaluations: list[Row] = []
    evaluations_torn = False
    if (folder / "evaluations.jsonl").is_file():
        evaluations, evaluations_torn = read_rows(folder / "evaluations.jsonl")
    return RunFolder(
        folder=folder,
        config=read_toml(folder / "config.toml"),
        environment=read_json(folder / "environment.json"),
        metrics=latest(metrics, ("step",)),
        evaluations=latest(evaluations, ("step", "source")),
        is_torn=metrics_torn or evaluations_torn,
    )


def read_samples(folder: Path) -> list[Row]:
    """The completions in samples/*.jsonl, in order of file and line; none is fine."""
    return [row for path in sorted(folder.glob("samples/*.jsonl")) for row in read_rows(path)[0]]


def column(rows: Iterable[Row], key: str) -> Array:
    """The values of one key as floats; NaN where a row has none."""
    values = [row.get(key) for row in rows]
    return np.array(
        [float(value) if isinstance(value, int | float) else np.nan for value in values],
        dtype=np.float64,
    )


def read_rows(path: Path) -> tuple[list[Row], bool]:
    """The objects of a JSON-lines file, and whether its last line was torn off and left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows: list[Row] = []
    for index, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if index == len(lines):
                return rows, True
            raise DataError(
                f"{path}, line {index}: not a JSON object ({error.msg}): {line[:60]!r}"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {index}: expected a JSON object, found {line[:60]!r}")
        rows.append(row)
    return rows, False


def latest(rows: Rows, keys: tuple[str, ...]) -> list[Row]:
    """One row for each value of `keys`, the last one written, in order of step."""
    unique = {tuple(str(row.get(key)) for key in keys): row for row in rows}
    steps = column(unique.values(), "step")
    if np.isnan(steps).any():
        raise DataError("a row has no step; every line of a run's logs needs one")
    return [list(unique.values())[index] for index in np.argsort(steps, kind="stable")]


def read_toml(path: Path) -> Row:
    """The settings of a run, empty where the file is missing."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not valid TOML: {error}") from error


def read_json(path: Path) -> Row:
    """A JSON object, empty where the file is missing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    return content if isinstance(content, dict) else {}
