"""Tasks by name, or by the path of a data file."""

import importlib
from dataclasses import replace
from pathlib import Path

from isentrope.errors import ConfigError
from isentrope.tasks.dataset import RowTask, hold_out, make_verifier, problems_of
from isentrope.tasks.presets import GENERIC, PRESETS, Preset
from isentrope.tasks.problem import Problem, Task
from isentrope.tasks.rows import read_rows
from isentrope.verifiers.code import CodeVerifier
from isentrope.verifiers.math import MathVerifier

__all__ = ["make_judge", "make_task", "read_golds", "read_problems"]

# name: module and class of tasks that generate their problems
GENERATED = {"countdown": ("isentrope.tasks.countdown", "Countdown")}
REASONING = "reasoning_gym:"
HELD_OUT = 200


def make_task(
    name: str,
    path: str | None = None,
    *,
    test_path: str | None = None,
    template: str | None = None,
    formats: tuple[str, ...] | None = None,
    held_out: int = HELD_OUT,
    seed: int = 0,
    workers: int | None = None,
) -> Task:
    """The task of a name: a preset, `countdown`, `reasoning_gym:NAME`, or the path of a file.

    A preset reads `path`, or else the hub. Test problems come from `test_path`, from the preset's
    test split, or are held out of training. `template` holds {problem}; `formats` say where the
    maths verifier looks for the answer.
    """
    if name in GENERATED:
        module, attribute = GENERATED[name]
        return getattr(importlib.import_module(module), attribute)(seed=seed)
    if name.startswith(REASONING):
        reasoning = importlib.import_module("isentrope.tasks.reasoning")
        return reasoning.ReasoningTask(name.removeprefix(REASONING), seed=seed)
    preset, path = preset_of(name, path)
    if template is not None:
        if "{problem}" not in template:
            raise ConfigError(f"the template {template!r} has no {{problem}} in it")
        preset = replace(preset, template=template)
    if formats is not None:
        preset = replace(preset, formats=formats)
    title = name if name in PRESETS else Path(name).stem
    train, test = read_sets(preset, path, test_path, title, held_out, seed)
    return RowTask(title, train, test, preset, seed=seed, workers=workers)


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
