"""One run as the report sees it: the record of its log, and what its folder holds beside it."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from isentrope.errors import DataError
from isentrope.runs import Record, Series, read_run, read_runs
from isentrope.runs.json_lines import read_objects
from isentrope.runs.pairing import choose_entropy
from isentrope.runs.record import Role

__all__ = ["Run", "Table", "load_run", "load_runs", "load_samples"]

Table = Mapping[str, object]

EMPTY = Series(key="", steps=np.empty(0, np.int64), values=np.empty(0, np.float64))


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run folder of isentrope, or the log of another trainer: then only `record` has content."""

    path: Path
    record: Record
    config: Table
    environment: Table

    @property
    def arm(self) -> str:
        """The name that runs of several seeds share: `name` of config.toml, or the record's."""
        name = self.config.get("name")
        return name if isinstance(name, str) and name else self.record.name

    @property
    def seed(self) -> int | None:
        """`seed` of config.toml."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def planned_steps(self) -> int | None:
        """`steps` of config.toml."""
        steps = self.config.get("steps")
        return steps if isinstance(steps, int) and steps > 0 else None

    @property
    def steps(self) -> int:
        """The last step that anything was measured at."""
        return max(int(series.steps[-1]) for series in self.record.series.values())

    @property
    def reward(self) -> Series:
        """R: the first validation reward, or the training reward where nothing was validated."""
        return self.first("validation") or self.first("train") or EMPTY

    @property
    def entropy(self) -> Series:
        """H that goes with R: of the same evaluation, or of the training prompts."""
        if not self.first("entropy"):
            return EMPTY
        return choose_entropy(self.record, self.reward) if self.reward else self.training_entropy

    @property
    def training_entropy(self) -> Series:
        """The preferred entropy on training prompts: the one of every step."""
        train = [
            s
            for s in self.record.having("entropy")
            if s.meaning and s.meaning.population == "train"
        ]
        return train[0] if train else EMPTY

    @property
    def passed(self) -> Series:
        """pass@k of the first data set that has it."""
        return self.first("pass@k") or EMPTY

    def _repr_html_(self) -> str:
        """Its page, for a notebook."""
        from isentrope.report.page import render  # which draws what this module reads

        page = escape(render([self], samples=4), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50em; border: 0"></iframe>'

    def first(self, role: Role) -> Series | None:
        """The preferred series of a role."""
        return next(iter(self.record.having(role)), None)

    def metric(self, series: Series) -> str:
        """What a reward is called: avg@8 where the data set has a pass@8, mean@1, pass@8, ..."""
        if series.meaning is None:
            return "reward"
        if series.meaning.role == "train":
            return "training reward"
        metric, source = series.meaning.metric or "reward", series.meaning.source
        if metric == "avg":
            counts = [
                passed.meaning.metric.partition("@")[2]
                for passed in self.record.having("pass@k")
                if passed.meaning and passed.meaning.source == source
            ]
            return f"avg@{counts[0]}" if counts else metric
        return metric

    def name_of(self, series: Series) -> str:
        """Data set and metric of a reward."""
        source = series.meaning.source if series.meaning else ""
        return f"{source}, {self.metric(series)}" if source else self.metric(series)

    def get(self, key: str) -> Series:
        """The series of a key, empty where it was not logged."""
        return self.record.series.get(key, EMPTY)


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at `paths`: run folders, folders that hold some, or logs of other trainers."""
    found = [folder for path in paths for folder in expand(path)]
    return [run for path in dict.fromkeys(found) for run in load_all(path)]


def expand(path: Path) -> list[Path]:
    """The run folders directly inside a folder that is no run itself, or the path as it is."""
    if not path.is_dir() or (path / "metrics.jsonl").is_file():
        return [path]
    inside = sorted(child for child in path.iterdir() if (child / "metrics.jsonl").is_file())
    return inside or [path]


def load_run(path: Path) -> Run:
    """The run at `path`; DataError where there is none yet."""
    return with_settings(path, read_run(path))


def load_all(path: Path) -> list[Run]:
    """All runs of one file or folder."""
    return [with_settings(path, record) for record in read_runs(path)]


def with_settings(path: Path, record: Record) -> Run:
    """A run with the settings and the environment that its folder holds."""
    return Run(
        path=path,
        record=record,
        config=read_toml(path / "config.toml"),
        environment=read_json(path / "environment.json"),
    )


def load_samples(run: Run) -> list[Table]:
    """The completions in samples/*.jsonl, in order of file and line; none is fine."""
    return [row for path in sorted(run.path.glob("samples/*.jsonl")) for row in read_objects(path)]


def read_toml(path: Path) -> Table:
    """The settings of a run, empty where the file is missing."""
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not valid TOML: {error}") from error


def read_json(path: Path) -> Table:
    """A JSON object, empty where the file is missing."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object, found {str(content)[:60]!r}")
    return content
