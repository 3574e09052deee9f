"""Tasks by name, or by the path of a data file."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from isentrope.config import Scalar, TrainConfig, build
from isentrope.errors import ConfigError
from isentrope.tasks.custom import Note, Reward, RewardTask, is_named, load
from isentrope.tasks.dataset import RowTask, hold_out, make_verifier, problems_of
from isentrope.tasks.presets import GENERIC, PRESETS, Preset
from isentrope.tasks.problem import Problem, Task
from isentrope.tasks.rows import SUFFIXES, read_rows
from isentrope.verifiers.code import CodeVerifier
from isentrope.verifiers.math import MathVerifier

__all__ = [
    "ReasoningOptions",
    "RowOptions",
    "make_judge",
    "make_task",
    "read_golds",
    "read_problems",
    "task_of",
]

# name: module and class of tasks that generate their problems
GENERATED = {"countdown": ("isentrope.tasks.countdown", "Countdown")}
REASONING = "reasoning_gym:"
TASK_PARTS = ("name", "right_score", "train", "test", "verify")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions:
    """Options of a task that is a preset or a file."""

    path: str | None = None
    """File to train on; left out, the preset is read from the hub."""
    test_path: str | None = None
    """File of test problems; left out, the preset's test split, or a part held out of training."""
    prompt: str | None = None
    """Column of the problem's text; left out, the preset's."""
    answer: str | None = None
    """Column of the gold answer; left out, the preset's."""
    template: str | None = None
    """Prompt with {problem} in it; left out, the preset's, or the text alone beside task.reward."""
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


def task_of(
    config: TrainConfig,
    note: Note | None = None,
    *,
    task: Task | None = None,
    rewards: Sequence[Reward] = (),
) -> Task:
    """The task of a recipe, or `task`, judged by the recipe's reward functions or `rewards`."""
    settings = config.task
    judges = rewards or settings.reward
    task = task or make_task(
        settings.name, seed=config.seed, options=settings.options, own_reward=bool(judges)
    )
    if not judges:
        return task
    return RewardTask(
        task,
        judges,
        weights=settings.reward_weights,
        right_score=settings.right_score,
        timeout_s=settings.reward_timeout_s,
        fault_limit=settings.reward_fault_limit,
        chat=config.model.prompt == "chat",
        system=config.model.system,
        note=note,
    )


def make_task(
    name: str,
    *,
    seed: int = 0,
    options: Mapping[str, Scalar] | None = None,
    own_reward: bool = False,
) -> Task:
    """The task of a name: a preset, `countdown`, `reasoning_gym:NAME`, the path of a file, or a
    class of one's own, `file.py:Class`, with the methods of `Task`.

    The options are those of `Countdown`, `RowOptions` or `ReasoningOptions`; a wrong one is a
    ConfigError that names it. With `own_reward` rows need neither an answer nor a form of it.
    """
    given, where = dict(options or {}), "task.options"
    if is_named(name) and not name.startswith(REASONING):
        return own_task(name, seed, given)
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
    if own_reward:
        preset = replace(preset, verifier="own", template="{problem}")
    preset = replace(
        preset,
        template=rows.template or preset.template,
        prompts=(rows.prompt,) if rows.prompt else preset.prompts,
        answers=(rows.answer,) if rows.answer else preset.answers,
    )
    title = name if name in PRESETS else Path(name).stem
    train, test = read_sets(preset, path, rows.test_path, title, rows.held_out, seed)
    return RowTask(title, train, test, preset, seed=seed, workers=rows.workers)


def own_task(name: str, seed: int, options: Mapping[str, Scalar]) -> Task:
    """An instance of a class of one's own; ConfigError for what it does not take, or lacks."""
    kind = load(name)
    try:
        task = kind(seed=seed, **options)
    except TypeError as error:
        raise ConfigError(
            f"task.name is {name!r}: {error}; the seed and task.options are its arguments"
        ) from None
    missing = [part for part in TASK_PARTS if not hasattr(task, part)]
    if missing:
        raise ConfigError(
            f"task.name is {name!r}, which has no {', '.join(missing)}; a task has "
            f"{', '.join(TASK_PARTS)}"
        )
    return task


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
    if path is None and (Path(name).suffix in SUFFIXES or Path(name).exists()):
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
