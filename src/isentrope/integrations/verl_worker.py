"""verl's training worker, which also selects tokens over each mini-batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isentrope.errors import ConfigError, require
from isentrope.integrations.selection import (
    Choice,
    Select,
    Tokens,
    choose,
    draws,
    row_keys,
    selector,
)
from isentrope.integrations.verl_mini_batch import COLUMN, with_selection
from isentrope.integrations.verl_options import plugin_options

__all__ = ["EntropyTrainingWorker", "select_in"]

engine_workers = require("verl.workers.engine_workers", "verl")
tensordicts = require("verl.utils.tensordict_utils", "verl")

Worker = engine_workers.TrainingWorker


class EntropyTrainingWorker(Worker):
    """TrainingWorker; with another loss than isentrope's it does what TrainingWorker does."""

    plan: "Plan | None" = None

    @wraps(Worker.set_loss_fn)  # the dispatch mode of a verl worker's method is an attribute of it
    def set_loss_fn(self, loss_fn: Callable[..., Any]) -> None:
        """Takes verl's loss function, and reads the actor's configuration that is bound to it."""
        self.plan = plan_of(loss_fn)
        super().set_loss_fn(loss_fn if self.plan is None else with_selection(loss_fn))

    @wraps(Worker.train_batch)
    def train_batch(self, data: Any) -> Any:
        """One update; the tokens of all ranks' parts of the mini-batch are selected before it."""
        if self.plan is None:
            return super().train_batch(data)
        choice = select_in(data, self.plan, self.engine.get_data_parallel_group())
        output = super().train_batch(data)
        if output is not None:
            metrics = {**tensordicts.get(output, "metrics"), **choice.metrics}
            tensordicts.assign_non_tensor(output, metrics=metrics)
        return output


@dataclass(frozen=True, slots=True)
class Plan:
    """How tokens are selected."""

    select: Select | None
    seed: int


def plan_of(loss_fn: Callable[..., Any]) -> Plan | None:
    """The plan of a loss function with the actor's configuration; None for another loss."""
    config = getattr(loss_fn, "keywords", {}).get("config")  # verl binds it with partial
    settings: Any = getattr(config, "policy_loss", None)
    if settings is None:
        return None
    mode = settings.loss_mode
    if mode == "isentrope_clip_cov":
        knobs = {
            "clip_fraction": settings.clip_cov_ratio,
            "covariance_low": settings.clip_cov_lb,
            "covariance_high": settings.clip_cov_ub,
        }
    elif mode == "isentrope_kl_cov":
        knobs = {"kl_fraction": settings.kl_cov_ratio}
    elif mode.startswith("isentrope"):
        raise ConfigError(
            f"policy_loss.loss_mode is {mode!r}; choose isentrope_clip_cov or isentrope_kl_cov"
        )
    else:
        return None
    options = plugin_options()
    whole = options.selection == "mini_batch"
    select = selector(mode.removeprefix("isentrope_"), knobs) if whole else None
    return Plan(select, options.seed)


def select_in(data: Any, plan: Plan, group: dist.ProcessGroup | None) -> Choice:
    """Selects the tokens of a mini-batch, and puts this rank's part into its column.

    The covariance is that of the policy that sampled: `old_log_probs`. The draw depends on the
    seed and on what is in the mini-batch, so nothing has to be saved for a resumed run.
    """
    mask = padded(data["response_mask"]).bool()
    keys = row_keys(padded(data["responses"]), mask)
    total = keys.sum()
    if dist.is_initialized():
        dist.all_reduce(total, group=group)
    tokens = Tokens(keys, padded(data["old_log_probs"]), padded(data["advantages"]), mask)
    choice = choose(tokens, plan.select, draws(plan.seed, int(total)), group)
    data[COLUMN] = like(data["response_mask"], choice.selected)
    return choice


def padded(values: Tensor) -> Tensor:
    """(B, T), padded on the right."""
    return values.to_padded_tensor(0) if values.is_nested else values


def like(column: Any, values: Tensor) -> Tensor:
    """The values in the layout of a column of the batch: jagged or padded."""
    values = values.long()
    if not column.is_nested:
        return values
    lengths = column.offsets().diff().tolist()
    rows = [row[:length] for row, length in zip(values, lengths, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
