"""The softmax of a few rows of logits at a time: what it sums to, and its gradient.

With u the raw logits, the distribution is softmax(y), y = softcap(scale u) / temperature.
Everything below works on d = (y - max y) / ln 2, so that p is proportional to 2^d: base 2 because
`exp2` takes half the time of `exp`, and the factor 1 / ln 2 costs nothing where the temperature
is multiplied in anyway. A chunk of rows fits the cache, and its passes write into scratch buffers
that stay there.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from isentrope.errors import ConfigError

__all__ = [
    "LogitTransform",
    "Moments",
    "RowGradients",
    "Scratch",
    "StatsContext",
    "gradient_of_chunk",
    "moments_of_chunk",
    "sum_dtype",
]

LN2 = math.log(2)

FLOOR = -2e3
"""Stands in for -inf in d: 2^FLOOR is exactly 0 in every format, and so is 0 * FLOOR."""


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The format of every sum: float64 for float64, float32 for everything narrower."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True, kw_only=True, slots=True)
class LogitTransform:
    """From raw logits u to the logits of the policy: softcap(scale u) / temperature."""

    temperature: float = 1.0
    """Divides last; the entropy and the log-probability are those of this temperature."""
    softcap: float | None = None
    """Gemma: c tanh(u / c). A forbidden token (-inf) stays forbidden."""
    scale: float | None = None
    """Cohere multiplies by its `logit_scale`; Granite divides, so give 1 / `logits_scaling`."""

    def __post_init__(self) -> None:
        settings = {
            "temperature": self.temperature,
            "softcap": self.softcap,
            "scale": self.scale,
        }
        for name, value in settings.items():
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be a positive finite number")

    @property
    def inner(self) -> float:
        """What multiplies u before tanh."""
        return (self.scale or 1.0) / (self.softcap or 1.0)

    @property
    def outer(self) -> float:
        """What multiplies the bounded logits to give y."""
        return (self.softcap or self.scale or 1.0) / self.temperature

    @property
    def slope(self) -> float:
        """dy / du, without the derivative of tanh."""
        return (self.scale or 1.0) / self.temperature

    def bound(self, logits: Tensor, out: Tensor | None = None) -> Tensor:
        """The logits in the format of the sums, and tanh(inner u) of them where there is a cap."""
        wide = sum_dtype(logits.dtype)
        if self.softcap is None:
            if logits.dtype == wide:
                return logits
            return logits.to(wide) if out is None else out.copy_(logits)  # the fp32 upcast
        bounded = torch.mul(logits.to(wide), self.inner, out=out).tanh_()
        return bounded.masked_fill_(logits == -torch.inf, -torch.inf)

    def distance(self, bounded: Tensor, offset: Tensor, out: Tensor | None = None) -> Tensor:
        """d = y / ln 2 + offset of bounded logits: factors of 2 below the likeliest token."""
        return torch.add(offset, bounded, alpha=self.outer / LN2, out=out)

    def policy_logits(self, logits: Tensor) -> Tensor:
        """y, the logits of the policy."""
        return self.bound(logits) * self.outer


class Moments(NamedTuple):
    """Sums over the vocabulary of each row, in columns (rows, 1)."""

    offset: Tensor
    """- max y / ln 2"""
    total: Tensor
    """sum 2^d"""
    dot: Tensor
    """sum 2^d d"""
    square: Tensor | None = None
    """sum 4^d, where asked for"""

    @classmethod
    def absent(cls, rows: int, like: Tensor, *, square: bool) -> "Moments":
        """The moments of rows left out: any numbers, since nobody reads them."""
        zero = like.new_zeros(rows, 1, dtype=sum_dtype(like.dtype))
        return cls(zero, zero, zero, zero if square else None)

    @classmethod
    def join(cls, parts: list["Moments"]) -> "Moments":
        """The moments of all rows, from those of the chunks."""
        columns = zip(*parts, strict=True)
        return cls(*(None if None in column else torch.cat(column) for column in columns))

    def stats(self, distance: Tensor) -> tuple[Tensor, ...]:
        """The fields of TokenStats for labels at `distance`; NaN where no token is allowed.

        The clamps only undo rounding: log p <= 0 and H = log(sum 2^d) - E[d] ln 2 >= 0.
        """
        log_total = self.total.log()
        logprob = (distance * LN2 - log_total).clamp_(max=0)
        entropy = (log_total - LN2 * self.dot / self.total).clamp_(min=0)
        if self.square is None:
            return logprob, entropy
        top1 = self.total.reciprocal().where(self.total > 0, torch.nan)
        max_logit = (self.offset * -LN2).where(self.total > 0, torch.nan)
        return logprob, entropy, top1, self.square * top1.square(), max_logit


class RowGradients(NamedTuple):
    """What the gradient needs of each row: dy_v = 2^d_v (constant + slope d_v) + [v = label] label."""

    constant: Tensor
    slope: Tensor
    label: Tensor

    @classmethod
    def of(
        cls,
        moments: Moments,
        grad_logprob: Tensor | None,
        grad_entropy: Tensor | None,
        label_allowed: Tensor,
        factor: float,
    ) -> "RowGradients":
        """From dy = g_logp (onehot - p) - g_H p (log p + H) with log p = d ln 2 - log(sum 2^d).

        `factor` is the part of dy / du that all tokens share. A forbidden label gets no gradient.
        """
        zero = torch.zeros_like(moments.total)
        grad_logprob = zero if grad_logprob is None else grad_logprob.view_as(zero)
        grad_entropy = zero if grad_entropy is None else grad_entropy.view_as(zero)
        slope = grad_entropy / moments.total * (-factor * LN2)
        constant = grad_logprob / moments.total * -factor - slope * moments.dot / moments.total
        return cls(constant, slope, factor * grad_logprob * label_allowed)


if TYPE_CHECKING:

    class StatsContext(FunctionCtx):
        """What the forward pass leaves for the backward pass."""

        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        transform: LogitTransform
        kept: Tensor | None
        overwrite: bool
        bias: Tensor | None

else:
    StatsContext = FunctionCtx


class Scratch:
    """The buffers that the passes over one chunk write into, allocated once for all chunks."""

    def __init__(self, rows: int, logits: Tensor, transform: LogitTransform) -> None:
        wide = sum_dtype(logits.dtype)
        shape = (rows, logits.shape[-1])
        self.distance = logits.new_empty(shape, dtype=wide)
        self.weight = logits.new_empty(shape, dtype=wide)
        converted = logits.dtype != wide or transform.softcap is not None
        self.bounded = logits.new_empty(shape, dtype=wide) if converted else None

    def rows(self, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """`distance`, `weight` and `bounded`, cut to `count` rows."""
        bounded = None if self.bounded is None else self.bounded[:count]
        return self.distance[:count], self.weight[:count], bounded


def moments_of_chunk(
    logits: Tensor, transform: LogitTransform, scratch: Scratch, *, square: bool
) -> Moments:
    """The sums over the vocabulary of the rows of `logits` (rows, V)."""
    distance, weight, bounded = scratch.rows(logits.shape[0])
    bounded = transform.bound(logits, bounded)
    # The clamp leaves a row in which every token is forbidden with total 0: no distribution, NaN.
    offset = bounded.amax(-1, keepdim=True).mul_(-transform.outer / LN2)
    offset.clamp_(max=torch.finfo(offset.dtype).max)
    transform.distance(bounded, offset, distance).clamp_(min=FLOOR)
    torch.exp2(distance, out=weight)
    total = weight.sum(-1, keepdim=True)
    dot = distance.mul_(weight).sum(-1, keepdim=True)
    return Moments(offset, total, dot, weight.square_().sum(-1, keepdim=True) if square else None)


def gradient_of_chunk(
    logits: Tensor,
    labels: Tensor,
    offset: Tensor,
    rows: RowGradients,
    transform: LogitTransform,
    scratch: Scratch,
    out: Tensor,
) -> None:
    """Writes d loss / d logits of the rows of `logits` (rows, V) into `out`, which may be `logits`.

    `labels`, `offset` and the fields of `rows` are columns (rows, 1).
    """
    distance, weight, bounded = scratch.rows(logits.shape[0])
    bounded = transform.bound(logits, bounded)
    transform.distance(bounded, offset, distance).clamp_(min=FLOOR)
    torch.exp2(distance, out=weight)
    distance.mul_(rows.slope).add_(rows.constant)
    direct = torch.mul(distance, weight, out=out if out.dtype == weight.dtype else distance)
    direct.scatter_add_(-1, labels, rows.label)
    if transform.softcap is not None:
        # tanh' = 1 - tanh^2; the clamp gives a forbidden token 0 in place of 0 * inf.
        direct.mul_(bounded.clamp_(min=-1).square_().neg_().add_(1))
    if direct is not out:
        out.copy_(direct)
