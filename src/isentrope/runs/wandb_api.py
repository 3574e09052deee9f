"""Reader of a run through wandb's API: the whole history, not the sampled one.

`run.history()` returns about 500 sampled rows, and `scan_history(keys=[a, b])` only rows that hold
both keys, so a sparse reward would vanish. Each key is therefore scanned alone with its step.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from isentrope.errors import DataError, require
from isentrope.runs.record import Columns
from isentrope.runs.rows import Runs, whole
from isentrope.runs.rules import framework_of, meaning_of

__all__ = ["WANDB_PREFIX", "read_wandb", "scan_run"]

WANDB_PREFIX = "wandb:"
ROW_STEP = "_step"

STEP_AXES = (
    # (keys that begin so, the key of their x axis), tried in order; then the row's own _step
    ("rollout/", "rollout/step"),
    ("eval/", "eval/step"),
    ("train/", "train/step"),
    ("train/", "train/global_step"),
    ("eval/", "train/global_step"),
)


class WandbRun(Protocol):
    """What is used of wandb's public Run."""

    @property
    def summary(self) -> Mapping[str, object]: ...

    def scan_history(self, keys: list[str]) -> Iterable[Mapping[str, object]]: ...


def read_wandb(path: str) -> Runs:
    """The columns of the run ENTITY/PROJECT/RUN, over the network."""
    wandb = require("wandb", "trackers")
    if path.count("/") != 2:
        raise DataError(f"wandb:{path} does not name a run; it reads wandb:ENTITY/PROJECT/RUN")
    return {"": scan_run(wandb.Api().run(path), path)}


def scan_run(run: WandbRun, path: str) -> Columns:
    """The columns of a run: of every key that some rule knows, or of all where none is known."""
    keys = [key for key, value in run.summary.items() if is_metric(key, value)]
    framework = framework_of(keys)
    wanted = [k for k in keys if framework and (meaning_of(k, framework) or "entropy" in k)]
    columns = Columns()
    for key in wanted or keys:
        axis = next((a for start, a in STEP_AXES if key.startswith(start) and a in keys), ROW_STEP)
        for row in run.scan_history(keys=[key, axis]):
            step = whole(row.get(axis))
            if step is not None:
                columns.add(step, {key: row.get(key)})
    if keys and not columns.count:
        raise DataError(
            f"wandb returned an empty history for {path}, though its summary has {len(keys)} keys; "
            "wandb 0.27.1 and 0.27.2 do so for resumed runs: install another version"
        )
    return columns


def is_metric(key: str, value: object) -> bool:
    """Whether a key of the summary is a number of the run, not of wandb itself."""
    return not key.startswith("_") and isinstance(value, int | float | str) and key != "epoch"
