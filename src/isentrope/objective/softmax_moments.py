"""The softmax of a few rows of logits at a time: what it sums to, and its gradient.

With u the raw logits, the distribution is softmax(y), y = softcap(scale u) / temperature.
A chunk of rows is small enough to stay in the cache, so the handful of plain passes below cost
little more than reading the logits once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isentrope.errors import ConfigError

__all__ = ["LogitTransform", "Moments", "gradient_of_chunk", "moments_of_chunk"]

FLOOR = -1e3
"""Stands in for -inf in y - max y: exp(FLOOR) is exactly 0 in every format, and so is 0 * FLOOR."""


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
        for name in ("temperature", "softcap", "scale"):
            value = getattr(self, name)
            if value is not None and not (0 < value < float("inf")):
                raise ConfigError(f"{name} is {value}; it must be a positive finite number")

    @property
    def factor(self) -> float:
        """What multiplies the bounded logits (`bound`) to give y."""
        top = self.softcap if self.softcap is not None else (self.scale or 1.0)
        return top / self.temperature

    def bound(self, logits: Tensor) -> Tensor:
        """The logits in the format of the sums, and through tanh where there is a soft-cap."""
        wide = logits.to(sum_dtype(logits.dtype))  # the fp32 upcast
        if self.softcap is None:
            return wide
        bounded = torch.tanh(wide * ((self.scale or 1.0) / self.softcap))
        return bounded.masked_fill_(wide == -torch.inf, -torch.inf)

    def policy_logits(self, logits: Tensor) -> Tensor:
        """y, the logits of the policy."""
        return self.bound(logits) * self.factor


class Moments(NamedTuple):
    """Sums over the vocabulary, one value a row, with d = y - shift."""

    shift: Tensor  # max y
    total: Tensor  # sum exp(d)
    dot: Tensor  # sum exp(d) d
    square: Tensor  # sum exp(d)^2

    @property
    def entropy(self) -> Tensor:
        return self.total.log() - self.dot / self.total


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for everything narrower."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def moments_of_chunk(logits: Tensor, transform: LogitTransform) -> Moments:
    """The sums over the vocabulary of the rows of `logits` (rows, V)."""
    bounded = transform.bound(logits)
    # A row without any allowed token keeps total 0, hence NaN entropy and log-probability.
    shift = (bounded.amax(-1) * transform.factor).clamp_(min=torch.finfo(bounded.dtype).min)
    distance = torch.add(-shift[:, None], bounded, alpha=transform.factor).clamp_(min=FLOOR)
    weight = distance.exp()
    return Moments(
        shift=shift,
        total=weight.sum(-1),
        dot=torch.linalg.vecdot(weight, distance),
        square=torch.linalg.vecdot(weight, weight),
    )


def gradient_of_chunk(
    logits: Tensor,
    labels: Tensor,
    moments: Moments,
    grad_logprob: Tensor,
    grad_entropy: Tensor,
    transform: LogitTransform,
) -> Tensor:
    """d loss / d logits of the rows of `logits` (rows, V), from the gradients of the two outputs.

    dy = g_logp (onehot - p) - g_H p (log p + H), then through the soft-cap.
    """
    bounded = transform.bound(logits)
    distance = torch.add(-moments.shift[:, None], bounded, alpha=transform.factor)
    distance.clamp_(min=FLOOR)
    weight = distance.exp()
    # p (g_logp + g_H (log p + H)) = exp(d) (constant + slope d), log p = d - log total
    slope = grad_entropy / moments.total
    constant = grad_logprob / moments.total - slope * moments.dot / moments.total
    grad = distance.mul_(-slope[:, None]).sub_(constant[:, None]).mul_(weight)
    picked = bounded.gather(-1, labels[:, None])
    grad.scatter_add_(-1, labels[:, None], grad_logprob[:, None].where(picked != -torch.inf, 0.0))
    if transform.softcap is not None:
        grad.mul_(1 - bounded.clamp(min=-1).square())
        return grad.mul_((transform.scale or 1.0) / transform.temperature)
    return grad.mul_(transform.factor)
