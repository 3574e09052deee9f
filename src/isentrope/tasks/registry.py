"""Tasks by name, or by the path of a data file."""

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from isentrope.config import Scalar, build
from isentrope.errors import ConfigError
from isentrope.tasks.dataset import RowTask, hold_out, make_verifier, problems_of
from isentrope.tasks.presets import GENERIC, PRESETS, Preset
from isentrope.tasks.problem import Problem, Task
from isentrope.tasks.rows import read_rows
from isentrope.verifiers.code import CodeVerifier
from isentrope.verifiers.math import MathVerifier

__all__ = [
    "ReasoningOptions",
    "RowOptions",
    "make_judge",
    "make_task",
    "read_golds",
    "read_problems",
]

# name: module and class of tasks that generate their problems
GENERATED = {"countdown": ("isentrope.tasks.countdown", "Countdown")}
REASONING = "reasoning_gym:"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions:
    """Options of a task that is a preset or a file."""

    path: str | None = None
    """File to train on; left out, the preset is read from the hub."""
    test_path: str | None = None
    """File of test problems; left out, the preset's test split, or a part held out of training."""
    template: str | None = None
    """Prompt with {problem} in it; left out, the preset's."""
    held_out: int = 200
    """Problems held out where there is no test set: at most a tenth."""
    workers: int = 2
    """Processes that verify."""

    def __post_init__(self) -> None:
        check_template(self.template)
        if self.held_out < 1 or self.workers < 1:
            raise ConfigError(
                f"held_out is {self.held_out} and workers is {self.workers}; both must be at least 1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningOptions:
    """Options of a reasoning-gym task; the others are given to its generator."""

    test_size: int = 100
    """Test problems."""
    workers: int = 2
    """Processes that verify."""
    template: str | None = None
    """Prompt with {problem} in it; left out, one that asks for an answer of the form below."""
    answer: Literal["boxed", "line"] = "boxed"
    """Where the answer is: in \\boxed{}, or, after a prompt that ends in Answer:, on the first line."""

    def __post_init__(self) -> None:
        check_template(self.template)


def check_template(template: str | None) -> None:
    """Raises a ConfigError for a template without a place for the problem."""
    if template is not None and "{problem}" not in template:
        raise ConfigError(f"the template {template!r} has no {{problem}} in it")


def make_task(name: str, *, seed: int = 0, options: Mapping[str, Scalar] | None = None) -> Task:
    """The task of a name: a preset, `countdown`, `reasoning_gym:NAME`, or the path of a file.

    The options are those of `Countdown`, `RowOptions` or `ReasoningOptions`; a wrong one is a
    ConfigError that names it.
    """
    given, where = dict(options or {}), "task.options"
    if name in GENERATED:
        module, attribute = GENERATED[name]
        kind = getattr(importlib.import_module(module), attribute)
        return build(kind, {"seed": seed, **given}, where)
    if name.startswith(REASONING):
        reasoning = importlib.import_module("isentrope.tasks.reasoning")
        own = {item.name for item in fields(ReasoningOptions)}
        gym = build(ReasoningOptions, {k: v for k, v in given.items() if k in own}, where)
        return reasoning.ReasoningTask(
            name.removeprefix(REASONING),
            seed=seed,
            **asdict(gym),
            options={k: v for k, v in given.items() if k not in own},
        )
    preset_of(name, None)  # a name that is not there comes before its options
    rows = build(RowOptions, given, where)
    preset, path = preset_of(name, rows.path)
    preset = replace(preset, template=rows.template or preset.template)
    title = name if name in PRESETS else Path(name).stem
    train, test = read_sets(preset, path, rows.test_path, title, rows.held_out, seed)
    return RowTask(title, train, test, preset, seed=seed, workers=rows.workers)


def read_problems(name: str, path: str | None = None, *, split: str | None = None) -> list[Problem]:
    """All problems of a preset, from a file or from the hub, or of a file."""
    preset, path = preset_of(name, path)
    title = name if name in PRESETS else Path(name).stem
    rows = read_rows(path or preset.hub, split or preset.test_split or preset.train_split)
    return problems_of(rows, preset, title)


def read_golds(path: str, preset_name: str | None = None) -> list[str]:
    """The gold answers of a file, read by a preset, or by the preset of a benchmark's file name."""
    if preset_name is not None and preset_name not in PRESETS:
        raise ConfigError(f"there is no preset {preset_name!r}; there are: {', '.join(PRESETS)}")
    preset = PRESETS[preset_name] if preset_name else guess_preset(path)
    return [problem.answer for problem in problems_of(read_rows(path), preset, Path(path).name)]


def guess_preset(path: str) -> Preset:
    """The preset that a file's name begins with, the longest; else the generic one."""
    stem = Path(path).stem.lower().replace("-", "_")
    named = [name for name in PRESETS if stem.startswith(name)]
    return PRESETS[max(named, key=len)] if named else GENERIC


def make_judge(name: str) -> tuple[MathVerifier | CodeVerifier, tuple[str, ...]]:
    """The verifier of a preset or file, and where it looks for answers (nowhere, for code)."""
    preset, _ = preset_of(name, None)
    return make_verifier(preset), () if preset.verifier == "code" else preset.formats


def preset_of(name: str, path: str | None) -> tuple[Preset, str | None]:
    """The preset of a name and the path to read; a file that is no preset is read generically."""
    if name in PRESETS:
        return PRESETS[name], path
    if path is None and (
        Path(name).suffix in (".jsonl", ".json", ".parquet") or Path(name).exists()
    ):
        return GENERIC, name
    known = [*PRESETS, *GENERATED, REASONING + "NAME"]
    raise ConfigError(f"there is no task {name!r}; the tasks are: {', '.join(known)}, or a file")


def read_sets(
    preset: Preset, path: str | None, test_path: str | None, title: str, held_out: int, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """Training and test problems."""
    train = problems_of(read_rows(path or preset.hub, preset.train_split), preset, title)
    if test_path is None and path is None and preset.test_split:
        test_path = preset.hub
    if test_path is None:
        return hold_out(train, held_out, seed)
    return train, problems_of(read_rows(test_path, preset.test_split), preset, title)
