"""verl's training worker, which also selects tokens over each mini-batch."""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isentrope.config import ObjectiveConfig
from isentrope.control.controllers import Control, Tracking, state_of, with_state
from isentrope.errors import ConfigError, require
from isentrope.integrations.rollout_entropy import entropy_means, entropy_sums
from isentrope.integrations.selection import (
    ACTS,
    Choice,
    Select,
    Shape,
    Tokens,
    choose,
    draws,
    remarks,
    row_keys,
    selector,
    shaper,
)
from isentrope.integrations.verl.mini_batch import COLUMN, with_selection
from isentrope.integrations.verl.options import plugin_options

__all__ = ["EntropyTrainingWorker", "select_in"]

engine_workers = require("verl.workers.engine_workers", "verl")
tensordicts = require("verl.utils.tensordict_utils", "verl")

logger = logging.getLogger(__name__)

Worker = engine_workers.TrainingWorker


class EntropyTrainingWorker(Worker):
    """TrainingWorker; with another loss than isentrope's it does what TrainingWorker does."""

    plan: "Plan | None" = None
    controller: Tracking | None = None
    """Of the isentropic budget."""

    @wraps(Worker.set_loss_fn)  # the dispatch mode of a verl worker's method is an attribute of it
    def set_loss_fn(self, loss_fn: Callable[..., Any]) -> None:
        """Takes verl's loss function, and reads the actor's configuration that is bound to it."""
        self.plan = plan_of(loss_fn)
        if self.plan is not None and self.plan.control in ACTS:
            self.controller = plugin_options().controller()
        super().set_loss_fn(loss_fn if self.plan is None else with_selection(loss_fn))

    @wraps(Worker.train_mini_batch)
    def train_mini_batch(self, data: Any) -> Any:
        """The updates of a rollout; the controller sees the rollout's entropy before them."""
        if self.controller is not None:
            entropy = sampled_entropy(data, self.engine.get_data_parallel_group())
            measure = plugin_options().control.measure
            self.controller = self.controller.update(entropy[measure])
        return super().train_mini_batch(data)

    @wraps(Worker.train_batch)
    def train_batch(self, data: Any) -> Any:
        """One update; the tokens of all ranks' parts of the mini-batch are selected before it."""
        if self.plan is None:
            return super().train_batch(data)
        control = self.controller.control if self.controller else Control()
        plan = self.plan.with_budget(control.budget)
        choice = select_in(data, plan, self.engine.get_data_parallel_group())
        output = super().train_batch(data)
        if output is not None:
            decided = {"control/budget": control.budget, "control/target": control.target}
            decided = {name: value for name, value in decided.items() if value is not None}
            metrics = {**tensordicts.get(output, "metrics"), **choice.metrics, **decided}
            tensordicts.assign_non_tensor(output, metrics=metrics)
        return output

    @wraps(Worker.save_checkpoint)
    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> Any:
        """verl's checkpoint, and what the controller has learnt."""
        result = super().save_checkpoint(local_path, *args, **kwargs)
        if self.controller is not None:
            state_file(local_path).write_text(json.dumps(state_of(self.controller)))
        return result

    @wraps(Worker.load_checkpoint)
    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> Any:
        """The same the other way; without the controller's file it begins anew."""
        file = state_file(local_path) if local_path else None
        if self.controller is not None and file is not None and file.is_file():
            self.controller = with_state(self.controller, json.loads(file.read_text()))
        return super().load_checkpoint(local_path, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Plan:
    """How tokens are selected, or advantages reshaped."""

    control: str
    """clip_cov, kl_cov, or one of ACTS."""
    knobs: dict[str, float]
    whole: bool
    """Over the whole mini-batch; else the loss selects in each micro-batch."""
    seed: int
    budget: float | None = None

    @property
    def select(self) -> Select | None:
        """The selection over a mini-batch."""
        if self.shape or not self.whole:
            return None
        of_budget = {} if self.budget is None else {"budget": self.budget}
        return selector(self.control, {**self.knobs, **of_budget})

    @property
    def shape(self) -> Shape | None:
        """The shaping of the advantages of a mini-batch."""
        return shaper(self.control, self.budget)

    def with_budget(self, budget: float | None) -> "Plan":
        """The same with what the controller says of this rollout."""
        if self.control not in ACTS:
            return self
        if budget is None or not math.isfinite(budget):
            raise ConfigError(
                f"the budget is {budget}: the controller has seen no rollout, or one without finite "
                "log-probabilities. Updates must come through verl's train_mini_batch"
            )
        return replace(self, budget=budget)


MODES = {f"isentrope_{control}": control for control in ("clip_cov", "kl_cov", *ACTS)}
"""loss_mode of each control."""


def plan_of(loss_fn: Callable[..., Any]) -> Plan | None:
    """The plan of a loss function with the actor's configuration; None for another loss."""
    config = getattr(loss_fn, "keywords", {}).get("config")  # verl binds it with partial
    settings: Any = getattr(config, "policy_loss", None)
    if settings is None:
        return None
    mode, options = settings.loss_mode, plugin_options()
    if mode == "isentrope_clip_cov":
        knobs = {
            "clip_fraction": settings.clip_cov_ratio,
            "covariance_low": settings.clip_cov_lb,
            "covariance_high": settings.clip_cov_ub,
        }
    elif mode == "isentrope_kl_cov":
        knobs = {"kl_fraction": settings.kl_cov_ratio}
        ObjectiveConfig(kl_coefficient=settings.ppo_kl_coef)  # refuses a negative one
    elif mode == "isentrope_budget":
        knobs = {"clip_fraction": options.clip_fraction}
    elif mode in MODES:
        knobs = {}
    elif mode.startswith("isentrope"):
        raise ConfigError(f"policy_loss.loss_mode is {mode!r}; choose one of {', '.join(MODES)}")
    else:
        return None
    plan = Plan(MODES[mode], knobs, options.selection == "mini_batch", options.seed)
    _ = plan.select  # a knob out of bounds is an error at the start
    for remark in remarks(knobs):
        logger.warning(remark)
    return plan


def select_in(data: Any, plan: Plan, group: dist.ProcessGroup | None) -> Choice:
    """Selects the tokens of a mini-batch, and puts this rank's part into its column.

    A control that reshapes advantages puts these in place of verl's. The covariance is that of the policy that sampled: `old_log_probs`. The draw depends on the
    seed and on what is in the mini-batch, so nothing has to be saved for a resumed run.
    """
    mask = padded(data["response_mask"]).bool()
    keys = row_keys(padded(data["responses"]), mask)
    total = keys.sum()
    if dist.is_initialized():
        dist.all_reduce(total, group=group)
    tokens = Tokens(keys, padded(data["old_log_probs"]), padded(data["advantages"]), mask)
    choice = choose(tokens, plan.select, draws(plan.seed, int(total)), group, plan.shape)
    data[COLUMN] = like(data["response_mask"], choice.selected.long())
    if plan.shape:
        data["advantages"] = like(data["advantages"], choice.advantage)
    return choice


def sampled_entropy(data: Any, group: dist.ProcessGroup | None) -> dict[str, float]:
    """Entropy of the policy that sampled, in nats, over the responses of all ranks.

    verl keeps none of its entropies for an update, so it is the mean of -log p over the tokens
    that were drawn: unbiased, with an error that falls with the square root of their number. It is
    at the sampling temperature.
    """
    sums = entropy_sums(-padded(data["old_log_probs"]), padded(data["response_mask"]).bool())
    if dist.is_initialized():
        dist.all_reduce(sums, group=group)
    return entropy_means(sums)


def state_file(checkpoint: str) -> Path:
    """Where a rank keeps the controller's state in a checkpoint, beside its part of the weights."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    return Path(checkpoint) / f"isentrope_control_rank_{rank}.json"


def padded(values: Tensor) -> Tensor:
    """(B, T), padded on the right."""
    return values.to_padded_tensor(0) if values.is_nested else values


def like(column: Any, values: Tensor) -> Tensor:
    """The values in the layout of a column of the batch: jagged or padded."""
    if not column.is_nested:
        return values
    lengths = column.offsets().diff().tolist()
    rows = [row[:length] for row, length in zip(values, lengths, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
