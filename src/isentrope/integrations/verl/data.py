"""The problems of a recipe as verl's Parquet files."""

import json
from pathlib import Path

from isentrope.config import TrainConfig
from isentrope.errors import require
from isentrope.tasks.problem import Problem, conversation
from isentrope.tasks.registry import task_of

__all__ = ["row", "write_data"]


def write_data(config: TrainConfig, out: Path) -> None:
    """Writes the problems of the whole run, and those of its evaluations."""
    arrow, parquet = require("pyarrow", "verl"), require("pyarrow.parquet", "verl")
    task = task_of(config)
    count = config.steps * config.rollout.prompts
    parts = {
        "train": [task.train(index) for index in range(count)],
        "test": list(task.test())[: config.evaluation.problems],
    }
    (out / "data").mkdir(exist_ok=True)
    for name, problems in parts.items():
        rows = [row(problem, config, name, index) for index, problem in enumerate(problems)]
        parquet.write_table(arrow.Table.from_pylist(rows), out / "data" / f"{name}.parquet")


def row(problem: Problem, config: TrainConfig, split: str, index: int) -> dict[str, object]:
    """A problem as verl's data set has it, and the task that judges it."""
    settings = {
        name: getattr(config.task, name)
        for name in ("reward", "reward_weights", "reward_timeout_s", "right_score")
        if config.task.reward
    }
    task = {
        "task": config.task.name,
        "options": json.dumps(config.task.options),
        "reward": json.dumps({**settings, "system": config.model.system} if settings else {}),
        "columns": json.dumps(dict(problem.columns), default=str),
    }
    return {
        "data_source": problem.source,
        "prompt": conversation(problem.prompt, config.model.system),
        "ability": problem.source,
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"split": split, "index": index, "prompt": problem.prompt, **task},
    }
