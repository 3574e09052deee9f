"""Selection of tokens over a whole mini-batch that is spread over micro-batches and ranks.

Every rank gathers the log-probability, advantage and mask of each token of the mini-batch, puts
the responses in an order that depends on their content alone, and calls the functions of
`isentrope.objective` on them. So every rank computes the same means, the same quota and the same
draw, and the result does not depend on how the mini-batch is divided.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isentrope.bounds import finite
from isentrope.config import ObjectiveConfig
from isentrope.control.combination import BUDGET_SHAPINGS
from isentrope.errors import ConfigError
from isentrope.objective.covariance import rewarded_tokens, selection_metrics, token_covariance
from isentrope.objective.losses import LOSSES
from isentrope.objective.shaping import SHAPINGS
from isentrope.objective.streams import stream

__all__ = [
    "ACTS",
    "Choice",
    "Select",
    "Shape",
    "Tokens",
    "choose",
    "draws",
    "remarks",
    "row_keys",
    "selector",
    "shaper",
]

ACTS = ("budget", *BUDGET_SHAPINGS)
"""Controls that meet the isentropic budget: by cutting, or by reshaping advantages."""

LARGE_FRACTION = 0.05

Select = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""(covariance, mask, generator) -> the tokens (B, T) that a loss treats apart."""

Shape = Callable[..., Tensor]
"""(advantage, mask, logprob=...) -> the advantages (B, T) that the loss gets."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What selection needs to know of the responses of a mini-batch, or of this rank's part."""

    keys: Tensor
    """(B,) from `row_keys`."""
    logprob: Tensor
    advantage: Tensor
    """(B, T), or (B, 1) where all tokens of a response have the same."""
    mask: Tensor

    def ordered(self, order: Tensor) -> "Tokens":
        """The same responses in another order."""
        return Tokens(*(getattr(self, field.name)[order] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Choice:
    """The result for this rank's responses, and the metrics of the whole mini-batch."""

    advantage: Tensor
    """(B, T), reshaped where the control does that."""
    covariance: Tensor
    selected: Tensor
    metrics: dict[str, float]


def selector(loss: str, knobs: Mapping[str, Any]) -> Select | None:
    """The selection of that loss with its knobs filled in; None where it selects nothing.

    A knob of None has the default of the loss; one that the loss lacks, or that is out of the
    bounds of a recipe, is refused.
    """
    if loss not in LOSSES:
        raise ConfigError(f"there is no loss {loss!r}; choose one of {', '.join(LOSSES)}")
    select = LOSSES[loss].select
    given = {name: value for name, value in knobs.items() if value is not None}
    known = inspect.signature(select).parameters if select else {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{name} is {value!r}, but {loss} does not use it; leave it out")
    finite(ObjectiveConfig(loss=loss, **given))
    if select is None:
        return None
    ready = partial(select, **given)
    if "generator" not in known:
        return lambda covariance, mask, generator: ready(covariance, mask)
    return lambda covariance, mask, generator: ready(covariance, mask, generator=generator)


def shaper(control: str, budget: float | None) -> Shape | None:
    """The shaping by which the control meets the budget; None where it reshapes nothing."""
    if control not in BUDGET_SHAPINGS:
        return None
    return partial(SHAPINGS[control], budget=budget)


def remarks(knobs: Mapping[str, Any]) -> list[str]:
    """What is worth a second look among knobs that are within their bounds."""
    large = ((name, knobs.get(name)) for name in ("clip_fraction", "kl_fraction"))
    return [
        f"{name} is {value}: {value:.0%} of the tokens, where the paper takes 0.02 to 0.2 %. It is "
        "a fraction, not percent"
        for name, value in large
        if value is not None and LARGE_FRACTION < value < 1
    ]


@torch.no_grad()
def choose(
    tokens: Tokens,
    select: Select | None,
    generator: torch.Generator,
    group: dist.ProcessGroup | None = None,
    shape: Shape | None = None,
) -> Choice:
    """Advantage, covariance and selection of this rank's tokens, over those of all ranks.

    Every rank must bring equally many responses and a generator in the same state. Without
    torch.distributed these tokens are the whole mini-batch.
    """
    rows, width = tokens.mask.shape
    everything, first = gather(tokens, group)
    order = everything.keys.argsort(stable=True)
    ordered = everything.ordered(order)
    advantage = ordered.advantage.expand(ordered.mask.shape)
    if shape is not None:
        advantage = shape(advantage, ordered.mask, logprob=ordered.logprob)
    covariance = token_covariance(ordered.logprob, advantage, ordered.mask)
    selected = torch.zeros_like(ordered.mask)
    if select is not None:
        selected = select(covariance, ordered.mask, generator)
    # What is not defined is left out: trackers take NaN for a value.
    rewarded = rewarded_tokens(advantage, ordered.mask)
    metrics = selection_metrics(covariance, rewarded, selected, ordered.mask)
    here = order.argsort()[first : first + rows]
    return Choice(
        advantage=advantage[here, :width],
        covariance=covariance[here, :width],
        selected=selected[here, :width],
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
    )


def gather(tokens: Tokens, group: dist.ProcessGroup | None) -> tuple[Tokens, int]:
    """The responses of all ranks, rank after rank, and the place of this rank's first one."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return tokens, 0
    rows, width = tokens.mask.shape
    shape = torch.tensor([rows, width, -rows], device=tokens.mask.device)
    dist.all_reduce(shape, dist.ReduceOp.MAX, group=group)
    most, widest, fewest = shape.tolist()
    if most != -fewest:
        raise ConfigError(
            f"the ranks hold between {-fewest} and {most} responses of a mini-batch; all must hold "
            "equally many: make the mini-batch divisible by the number of ranks"
        )
    wide = replace(
        tokens,
        logprob=pad(tokens.logprob.float(), widest),
        advantage=pad(tokens.advantage.expand(rows, width).float(), widest),
        mask=pad(tokens.mask, widest),
    )
    together = [gather_rows(getattr(wide, field.name), group) for field in fields(Tokens)]
    return Tokens(*together), dist.get_rank(group) * rows


def pad(values: Tensor, width: int) -> Tensor:
    """Padded on the right with 0 or False."""
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))


def gather_rows(values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The rows of all ranks."""
    boolean = values.dtype == torch.bool
    mine = (values.to(torch.uint8) if boolean else values).contiguous()
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine, group=group)
    together = torch.cat(parts)
    return together.bool() if boolean else together


KEY_FACTOR = 6_364_136_223_846_793_005
"""An odd multiplier of good spread modulo 2^64 (D. Knuth's MMIX generator)."""


def row_keys(tokens: Tensor, mask: Tensor) -> Tensor:
    """An integer (B,) for each row of token ids that does not depend on its padding.

    It puts rows in an order that is the same on every rank. Equal keys do no harm: rows with the
    same tokens keep the order in which they come.
    """
    place = mask.long().cumsum(-1)
    mixed = (tokens.long() + 1) * KEY_FACTOR + place
    mixed = (mixed ^ (mixed >> 29)) * (2 * place + KEY_FACTOR)
    return torch.where(mask.bool(), mixed ^ (mixed >> 32), 0).sum(-1)


def draws(seed: int, step: int) -> torch.Generator:
    """The CPU generator of the selection at an update: a function of seed and number only, so
    that a resumed run draws what the uninterrupted run would have drawn."""
    return stream(seed, "selection", step)
