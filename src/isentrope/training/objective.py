"""The objective that a configuration describes, checked before anything is loaded."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from isentrope.config import ObjectiveConfig
from isentrope.control.controllers import Control
from isentrope.errors import ConfigError
from isentrope.objective.advantages import ADVANTAGES
from isentrope.objective.losses import LOSSES, TokenLoss
from isentrope.objective.micro_batch import micro_batch_clip_cov, micro_batch_kl_cov
from isentrope.objective.shaping import SHAPINGS

__all__ = ["Objective", "make_objective"]

ADVANTAGE_KNOBS = ("pass_k", "success_weight")

LOSS_KNOBS = (
    "clip_low",
    "clip_high",
    "dual_clip",
    "clip_fraction",
    "covariance_low",
    "covariance_high",
    "kl_fraction",
    "kl_coefficient",
    "kl_estimator",
    "entropy_fraction",
    "budget",
)

SHAPING_KNOBS = (
    "shaping_weight",
    "shaping_bound",
    "strength",
    "strength_limit",
    "likely_probability",
    "likely_success",
    "unlikely_success",
    "likely_mistake",
    "unlikely_mistake",
)

T = TypeVar("T")

MICRO_BATCH_LOSSES = {"clip_cov": micro_batch_clip_cov, "kl_cov": micro_batch_kl_cov}


@dataclass(frozen=True, slots=True)
class Objective:
    """Functions with their settings filled in."""

    advantage: Callable[[Tensor, Tensor, Tensor], Tensor]
    loss: Callable[..., object]
    selection: Callable[..., Tensor] | None
    micro_batch: bool
    """The loss selects by itself in each micro-batch, for comparison with other software."""
    shaping: Callable[..., Tensor] | None = None
    later: Callable[..., Tensor] | None = None
    """The advantage from step `switch` on; None: there is no other."""
    switch: int = 0

    def advantage_at(self, step: int) -> Callable[..., Tensor]:
        """The advantage of a step."""
        return self.later if self.later and step >= self.switch else self.advantage

    def credit(
        self, rewards: Tensor, groups: Tensor, mask: Tensor, step: int = 0, **terms: Tensor | None
    ) -> Tensor:
        """The advantages (B, T); of the `terms` (process, penalty) it takes what it knows."""
        given = {name: term for name, term in terms.items() if term is not None}
        advantage = call(self.advantage_at(step), rewards, groups, mask, **given)
        return advantage.view(len(advantage), -1).expand(mask.shape)

    def shape(
        self,
        advantage: Tensor,
        mask: Tensor,
        entropy: Tensor,
        logprob: Tensor,
        control: Control | None = None,
    ) -> Tensor:
        """The advantages (B, T) of a whole mini-batch as the loss gets them."""
        if self.shaping is None:
            return advantage
        control = control or Control()
        terms = {"budget": control.budget, "strength": control.strength}
        optional = {name: value for name, value in terms.items() if value is not None}
        return call(self.shaping, advantage, mask, entropy=entropy, logprob=logprob, **optional)

    def select(
        self,
        covariance: Tensor,
        mask: Tensor,
        draws: torch.Generator,
        entropy: Tensor,
        budget: float | None = None,
    ) -> Tensor:
        """The tokens (B, T) of a whole mini-batch that the loss treats apart."""
        if self.selection is None:
            return torch.zeros_like(mask)
        optional = {} if budget is None else {"budget": budget}
        return call(self.selection, covariance, mask, generator=draws, entropy=entropy, **optional)

    def token_loss(
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        advantage: Tensor,
        mask: Tensor,
        selected: Tensor,
        draws: torch.Generator,
    ) -> tuple[TokenLoss, Tensor]:
        """The loss of the tokens of a micro-batch, and which of them were treated apart."""
        tensors = (logprob, old_logprob, advantage, mask)
        if self.micro_batch:
            return call(self.loss, *tensors, generator=draws)
        return call(self.loss, *tensors, selected=selected), selected


def make_objective(config: ObjectiveConfig) -> Objective:
    """The objective, or a ConfigError that names what does not fit together."""
    advantage = look_up(ADVANTAGES, "advantage", config.advantage)
    later = None
    if config.advantage_then is not None:
        later = look_up(ADVANTAGES, "advantage_then", config.advantage_then)
    policy_loss = look_up(LOSSES, "loss", config.loss)
    loss, selection = policy_loss.loss, policy_loss.select
    micro_batch = config.selection == "micro_batch"
    if micro_batch:
        loss, selection = (
            look_up(MICRO_BATCH_LOSSES, "selection is micro_batch: loss", config.loss),
            None,
        )
    shaping = None if config.shaping == "none" else SHAPINGS[config.shaping]
    terms = given(config, ADVANTAGE_KNOBS, f"advantage {config.advantage!r}", advantage, later)
    knobs = given(config, LOSS_KNOBS, f"loss {config.loss!r}", loss, selection, shaping)
    bounds = given(config, SHAPING_KNOBS, f"shaping {config.shaping!r}", shaping)
    return Objective(
        advantage=fill_in(advantage, terms),
        loss=fill_in(loss, knobs),
        selection=fill_in(selection, knobs) if selection else None,
        micro_batch=micro_batch,
        shaping=fill_in(shaping, knobs | bounds) if shaping else None,
        later=fill_in(later, terms) if later else None,
        switch=config.advantage_steps or 0,
    )


def given(
    config: ObjectiveConfig, names: Iterable[str], what: str, *users: Callable[..., Any] | None
) -> dict[str, Any]:
    """The settings of these names that are given, or a ConfigError for one that has no user."""
    knobs = {name: getattr(config, name) for name in names}
    knobs = {name: value for name, value in knobs.items() if value is not None}
    for name, value in knobs.items():
        if not any(user and takes(user, name) for user in users):
            raise ConfigError(f"{name} is {value!r}, but {what} does not use it; leave it out")
    return knobs


def look_up(table: dict[str, T], what: str, name: str) -> T:
    """The entry of that name, or a ConfigError with the names there are."""
    if name not in table:
        raise ConfigError(f"{what} is {name!r}; choose one of {', '.join(table)}")
    return table[name]


def fill_in(function: Callable[..., Any], knobs: dict[str, Any]) -> Callable[..., Any]:
    """The function with those settings that it has."""
    return partial(function, **{name: knobs[name] for name in knobs if takes(function, name)})


def call(function: Callable[..., Any], *arguments: Tensor, **optional: object) -> Any:
    """Calls the function with those of the optional arguments that it has."""
    return function(
        *arguments, **{name: optional[name] for name in optional if takes(function, name)}
    )


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the function has a parameter of that name."""
    return name in inspect.signature(function).parameters
