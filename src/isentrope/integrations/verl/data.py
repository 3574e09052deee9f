"""The problems of a recipe as verl's Parquet files."""

import json
from pathlib import Path

from isentrope.config import TrainConfig
from isentrope.errors import require
from isentrope.tasks.problem import Problem, conversation
from isentrope.tasks.registry import make_task

__all__ = ["row", "write_data"]


def write_data(config: TrainConfig, out: Path) -> None:
    """Writes the problems of the whole run, and those of its evaluations."""
    arrow, parquet = require("pyarrow", "verl"), require("pyarrow.parquet", "verl")
    task = make_task(config.task.name, seed=config.seed, options=config.task.options)
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
    task = {"task": config.task.name, "options": json.dumps(config.task.options)}
    return {
        "data_source": problem.source,
        "prompt": conversation(problem.prompt, config.model.system),
        "ability": problem.source,
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"split": split, "index": index, "prompt": problem.prompt, **task},
    }
