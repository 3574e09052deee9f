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
from isentrope.token_stats.kernels import has_kernels
from isentrope.token_stats.row_chunks import RowChunks

__all__ = [
    "LogitTransform",
    "Moments",
    "RowGradients",
    "Scratch",
    "StatsContext",
    "moments_of_rows",
    "sum_dtype",
    "write_gradient",
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

    def bound(self, logits: Tensor, scratch: "Scratch") -> Tensor:
        """The logits in the format of the sums, and tanh(inner u) of them where there is a cap."""
        if self.softcap is None and logits.dtype == sum_dtype(logits.dtype):
            return logits
        bounded = scratch.like(logits, "bounded").copy_(logits)  # the fp32 upcast
        if self.softcap is None:
            return bounded
        forbidden = logits == -torch.inf
        return bounded.mul_(self.inner).tanh_().masked_fill_(forbidden, -torch.inf)

    def distance(self, bounded: Tensor, offset: Tensor, out: Tensor | None = None) -> Tensor:
        """d = y / ln 2 + offset of bounded logits: factors of 2 below the likeliest token."""
        return torch.add(offset, bounded, alpha=self.outer / LN2, out=out)

    def policy_logits(self, logits: Tensor) -> Tensor:
        """y, the logits of the policy, as an ordinary differentiable expression."""
        wide = logits.to(sum_dtype(logits.dtype))
        if self.softcap is not None:
            bounded = torch.tanh(wide * self.inner)
            wide = bounded.masked_fill(wide == -torch.inf, -torch.inf)
        return wide * self.outer


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
    def absent(cls, rows: int, like: Tensor, square: bool) -> "Moments":
        """The moments of rows left out: any numbers, since nobody reads them."""
        zero = like.new_zeros(rows, 1, dtype=sum_dtype(like.dtype))
        return cls(zero, zero, zero, zero if square else None)

    @classmethod
    def join(cls, parts: list["Moments"], dim: int = 0) -> "Moments":
        """The moments of all rows, from those of the chunks (in columns side by side: dim 1)."""
        square = [part.square for part in parts if part.square is not None]
        return cls(
            torch.cat([part.offset for part in parts], dim),
            torch.cat([part.total for part in parts], dim),
            torch.cat([part.dot for part in parts], dim),
            torch.cat(square, dim) if square else None,
        )

    @classmethod
    def merge(cls, parts: list["Moments"]) -> "Moments":
        """The moments over the whole vocabulary, from those over its parts."""
        each = cls.join(parts, dim=1)
        offset = each.offset.amin(-1, keepdim=True)
        lower = (offset - each.offset).clamp_(min=FLOOR)  # what turns a part's d into the whole's
        weight = lower.exp2()
        total = (each.total * weight).sum(-1, keepdim=True)
        dot = ((each.dot + lower * each.total) * weight).sum(-1, keepdim=True)
        if each.square is None:
            return cls(offset, total, dot)
        return cls(offset, total, dot, (each.square * weight.square()).sum(-1, keepdim=True))

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

else:
    StatsContext = FunctionCtx


class Scratch:
    """Buffers that the passes over a chunk write into, kept from one chunk to the next."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def like(self, logits: Tensor, name: str) -> Tensor:
        """A buffer of the shape of `logits` in the format of the sums."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < logits.numel():
            buffer = logits.new_empty(logits.numel(), dtype=sum_dtype(logits.dtype))
            self._buffers[name] = buffer
        return buffer[: logits.numel()].view(logits.shape)


def moments_of_rows(
    logits: Tensor,
    kept: Tensor | None,
    transform: LogitTransform,
    scratch: Scratch,
    square: bool,
) -> Moments:
    """The moments of the rows of logits (..., V); arbitrary where `kept` (rows,) is False."""
    chunks = RowChunks.of(logits, kept, sum_dtype(logits.dtype).itemsize)
    return Moments.join(
        [
            moments_of_chunk(chunk, transform, scratch, square)
            if flag
            else Moments.absent(chunk.shape[0], logits, square)
            for chunk, flag in zip(chunks.matrices(logits), chunks.kept, strict=True)
        ]
    )


def write_gradient(
    logits: Tensor,
    kept: Tensor | None,
    labels: Tensor,
    offset: Tensor,
    rows: RowGradients,
    transform: LogitTransform,
    scratch: Scratch,
    out: Tensor,
) -> None:
    """Writes d loss / d logits into `out`, which may be `logits`; 0 where `kept` is False.

    `labels`, `offset` and the fields of `rows` are columns (rows, 1).
    """
    chunks = RowChunks.of(logits, kept, sum_dtype(logits.dtype).itemsize)
    pieces = zip(
        chunks.kept,
        chunks.matrices(logits),
        chunks.columns(labels),
        chunks.columns(offset),
        map(RowGradients, *(chunks.columns(column) for column in rows)),
        chunks.matrices(out),
        strict=True,
    )
    for flag, chunk, label, shift, of_rows, target in pieces:
        if flag:
            gradient_of_chunk(chunk, label, shift, of_rows, transform, scratch, target)
        else:
            target.zero_()


def moments_of_chunk(
    logits: Tensor, transform: LogitTransform, scratch: Scratch, square: bool
) -> Moments:
    """The sums over the vocabulary of the rows of `logits` (rows, V)."""
    if has_kernels(logits):
        return kernel_moments(logits, transform, square)
    distance, weight = scratch.like(logits, "distance"), scratch.like(logits, "weight")
    bounded = transform.bound(logits, scratch)
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
    """Writes the gradient of the rows of `logits` (rows, V) into `out`."""
    if has_kernels(logits):
        return kernel_gradient(logits, labels, offset, rows, transform, out)
    distance, weight = scratch.like(logits, "distance"), scratch.like(logits, "weight")
    bounded = transform.bound(logits, scratch)
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


def kernel_moments(logits: Tensor, transform: LogitTransform, square: bool) -> Moments:
    """`moments_of_chunk` by the Triton kernel."""
    from isentrope.token_stats import triton_softmax  # needs Triton

    sums = triton_softmax.moments(
        logits,
        transform.inner,
        transform.outer / LN2,
        FLOOR,
        capped=transform.softcap is not None,
        square=square,
    )
    return Moments(*sums)


def kernel_gradient(
    logits: Tensor,
    labels: Tensor,
    offset: Tensor,
    rows: RowGradients,
    transform: LogitTransform,
    out: Tensor,
) -> None:
    """`gradient_of_chunk` by the Triton kernel."""
    from isentrope.token_stats import triton_softmax  # needs Triton

    triton_softmax.gradient(
        logits,
        labels,
        (offset, rows.constant, rows.slope, rows.label),
        transform.inner,
        transform.outer / LN2,
        FLOOR,
        out,
        capped=transform.softcap is not None,
    )
