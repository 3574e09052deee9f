"""Log-probability and full-vocabulary entropy of every token, exact, both differentiable.

    log p(y) = y_label - logsumexp(y),  H = - sum_v p_v log p_v  (nats)
    y = softcap(scale * logits) / temperature,  p = softmax(y)

Neither function holds more than a chunk of full-precision logits beside what it was given: the
backward pass recomputes the softmax chunk by chunk and writes the gradient

    dy = g_logp (onehot - p) - g_H p (log p + H)

into one buffer. Sums run in fp32 (float64 for float64). A logit of -inf forbids its token: it adds
nothing and its gradient is 0. A row in which every token is forbidden has no distribution and
gives NaN.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from isentrope.errors import ConfigError, DataError
from isentrope.token_stats.hidden import HiddenStats
from isentrope.token_stats.moments import (
    LogitTransform,
    Moments,
    RowGradients,
    Scratch,
    StatsContext,
    moments_of_rows,
    write_gradient,
)

__all__ = ["TokenStats", "reference_token_stats", "token_stats", "token_stats_from_hidden"]


class TokenStats(NamedTuple):
    """One value a token, in the labels' shape; the last three only when asked for."""

    logprob: Tensor
    entropy: Tensor
    top1_prob: Tensor | None = None
    """Probability of the most likely token."""
    sum_sq_prob: Tensor | None = None
    """Sum of squared probabilities; minus its logarithm is the Renyi-2 entropy."""
    max_logit: Tensor | None = None
    """Largest logit after scale, soft-cap and temperature."""


def token_stats(
    logits: Float[Tensor, "*N V"],
    labels: Int[Tensor, "*N"],
    *,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Bool[Tensor, "*N"] | None = None,
    byproducts: bool = False,
    overwrite_logits: bool = False,
) -> TokenStats:
    """Log-probability and entropy (nats) of each token, from logits of any leading shape.

    Rows where `mask` is False are not computed: 0 in every output, gradient 0, label not read.
    `byproducts` adds `top1_prob`, `sum_sq_prob` and `max_logit`, which carry no gradient.
    `overwrite_logits` lets the backward pass write the gradient over the logits, which then takes
    no memory of its own. Give it only logits whose storage nothing else shares; an operation that
    still needs them in its backward pass afterwards gets autograd's error.
    """
    transform = LogitTransform(temperature=temperature, softcap=softcap, scale=scale)
    if overwrite_logits and logits.is_leaf and logits.requires_grad:
        raise ConfigError(
            "overwrite_logits=True would overwrite a leaf tensor; "
            "leave it out, or pass logits that a model computed"
        )
    kept = None if mask is None else mask.reshape(-1)
    picked = labels.reshape(-1, 1).long()
    if kept is not None:
        picked = picked.masked_fill(~kept[:, None], 0)
    check_labels(picked, logits.shape[-1])
    stats = _LogitStats.apply(logits, picked, kept, transform, byproducts, overwrite_logits)
    return TokenStats(*(value.view(labels.shape) for value in stats))


def token_stats_from_hidden(
    hidden: Float[Tensor, "*N D"],
    weight: Float[Tensor, "V D"],
    labels: Int[Tensor, "*N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Bool[Tensor, "*N"] | None = None,
    byproducts: bool = False,
) -> TokenStats:
    """The `token_stats` of the logits `hidden @ weight.T + bias`, never held as a whole.

    The backward pass computes the logits a second time, and gives the gradients of `hidden`,
    `weight` and `bias`, each where it is wanted.
    """
    transform = LogitTransform(temperature=temperature, softcap=softcap, scale=scale)
    rows, picked = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1, 1).long()
    index = None if mask is None else mask.reshape(-1).nonzero().squeeze(-1)
    if index is not None:
        rows, picked = rows[index], picked[index]
    check_labels(picked, weight.shape[0])
    stats = HiddenStats.apply(rows, weight, bias, picked, transform, byproducts)
    if index is not None:
        stats = [row.new_zeros(labels.numel(), 1).index_copy(0, index, row) for row in stats]
    return TokenStats(*(value.view(labels.shape) for value in stats))


def reference_token_stats(
    logits: Float[Tensor, "*N V"],
    labels: Int[Tensor, "*N"],
    *,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float | None = None,
) -> TokenStats:
    """The same two numbers by the textbook formula, eager and fully materialised, to compare with."""
    transform = LogitTransform(temperature=temperature, softcap=softcap, scale=scale)
    log_probs = transform.policy_logits(logits).log_softmax(-1)
    forbidden = log_probs == -torch.inf
    terms = log_probs.exp() * log_probs.masked_fill(forbidden, 0.0)
    logprob = log_probs.gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)
    return TokenStats(logprob=logprob, entropy=-terms.sum(-1))


def check_labels(labels: Tensor, width: int) -> None:
    """Refuses a label outside the vocabulary; on an accelerator the gather itself does."""
    if labels.numel() == 0 or labels.device.type != "cpu":
        return
    low, high = (int(value) for value in labels.aminmax())
    if low < 0 or high >= width:
        raise DataError(
            f"labels run from {low} to {high}, the vocabulary from 0 to {width - 1}; "
            "mask the tokens that have no label"
        )


class _LogitStats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: StatsContext,
        logits: Tensor,
        labels: Tensor,
        kept: Tensor | None,
        transform: LogitTransform,
        byproducts: bool,
        overwrite: bool,
    ) -> tuple[Tensor, ...]:
        scratch = Scratch()
        moments = moments_of_rows(logits, kept, transform, scratch, byproducts)
        picked = logits.gather(-1, labels.view(*logits.shape[:-1], 1)).view(-1, 1)
        distance = transform.distance(transform.bound(picked, scratch), moments.offset)
        ctx.save_for_backward(logits, labels, distance, *moments[:3])
        ctx.transform, ctx.kept, ctx.overwrite = transform, kept, overwrite
        stats = moments.stats(distance)
        if kept is not None:
            stats = tuple(value.masked_fill_(~kept[:, None], 0) for value in stats)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*stats[2:])
        return stats

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: StatsContext, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits, labels, distance, offset, total, dot = ctx.saved_tensors
        transform = ctx.transform
        moments = Moments(offset, total, dot)
        rows = RowGradients.of(moments, grads[0], grads[1], distance > -torch.inf, transform.slope)
        # detach() shares the version counter, so a later reader of the overwritten logits raises.
        grad = logits.detach() if ctx.overwrite else torch.empty_like(logits)
        write_gradient(logits, ctx.kept, labels, offset, rows, transform, Scratch(), grad)
        return grad, None, None, None, None, None
