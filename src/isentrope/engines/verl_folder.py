"""The run folder of a verl run: the recipe, the data sets, and later verl's own log."""

from pathlib import Path

from isentrope.config import TrainConfig
from isentrope.errors import require
from isentrope.tasks.problem import Problem
from isentrope.tasks.registry import make_task
from isentrope.training.run_dir import RunFolder

__all__ = ["prepare", "row"]


def prepare(config: TrainConfig, out: Path, *, resume: bool) -> None:
    """Makes the folder and writes the problems of the whole run as verl's Parquet files."""
    arrow, parquet = require("pyarrow", "verl"), require("pyarrow.parquet", "verl")
    folder = RunFolder.open(out, config, resume=resume)
    folder.begin(config, 0)
    task = make_task(config.task.name, seed=config.seed, options=config.task.options)
    count = config.steps * config.rollout.prompts
    parts = {
        "train": [task.train(index) for index in range(count)],
        "test": list(task.test())[: config.evaluation.problems],
    }
    (out / "data").mkdir(exist_ok=True)
    for name, problems in parts.items():
        rows = [row(problem, name, index) for index, problem in enumerate(problems)]
        parquet.write_table(arrow.Table.from_pylist(rows), out / "data" / f"{name}.parquet")


def row(problem: Problem, split: str, index: int) -> dict[str, object]:
    """A problem as verl's data set has it."""
    return {
        "data_source": problem.source,
        "prompt": [{"role": "user", "content": problem.prompt}],
        "ability": problem.source,
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"split": split, "index": index, "prompt": problem.prompt},
    }
