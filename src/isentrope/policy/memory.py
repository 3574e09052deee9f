"""Batches that do not fit in memory are halved, and stay so for the rest of the run."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from isentrope.errors import ConfigError

__all__ = ["RowLimit"]

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""How torch says so: on a GPU, on a CPU, and from a library that found no room on the GPU."""

T = TypeVar("T")


@dataclass(slots=True)
class RowLimit:
    """The most rows at once that memory has turned out to hold."""

    rows: int | None = None
    """None: nothing has failed to fit."""

    def fit(self, work: Callable[[int], T], rows: int, *, least: int = 1) -> T:
        """The result of work(size) for the largest size that fits: rows, or its half, quarter ...

        `work` is begun anew with each size, so it must undo what a failed call has left. Where
        `least` rows do not fit either it is a ConfigError.
        """
        while True:
            size = rows if self.rows is None else max(least, min(rows, self.rows))
            try:
                return work(size)
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                if not any(phrase in reason for phrase in OUT_OF_MEMORY):
                    raise
            # Not within `except`: the traceback holds the tensors of the failed call.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            if size <= least:
                raise ConfigError(
                    f"memory does not hold {size} response{'s' * (size > 1)} at once ({reason}); "
                    "lower rollout.max_new_tokens or rollout.samples, set "
                    "model.gradient_checkpointing, model.lora_rank or optimizer.name = "
                    "'adamw_8bit', or take a smaller model"
                )
            self.rows = max(least, size // 2)

    def metric(self, name: str, rows: int) -> dict[str, float]:
        """The number of rows by that name, where it is lower than the `rows` that were wanted."""
        return {} if self.rows is None or self.rows >= rows else {name: self.rows}
