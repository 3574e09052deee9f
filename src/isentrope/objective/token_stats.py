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

from isentrope.errors import DataError
from isentrope.objective.softmax_moments import (
    LogitTransform,
    Moments,
    gradient_of_chunk,
    moments_of_chunk,
    sum_dtype,
)

__all__ = ["TokenStats", "reference_token_stats", "token_stats", "token_stats_from_hidden"]

CHUNK_BYTES = 2**20


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
) -> TokenStats:
    """Log-probability and entropy (nats) of each token, from logits of any leading shape.

    Rows where `mask` is False are not computed: 0 in every output, gradient 0, label not read.
    `byproducts` adds `top1_prob`, `sum_sq_prob` and `max_logit`, which carry no gradient.
    """
    transform = LogitTransform(temperature=temperature, softcap=softcap, scale=scale)
    width = logits.shape[-1]
    rows = logits.reshape(-1, width)
    picked = labels.reshape(-1)
    kept = None if mask is None else mask.reshape(-1)
    if kept is not None:
        rows, picked = rows[kept], picked[kept]
    check_labels(picked, width)
    outputs = _LogitStats.apply(rows, picked, transform)
    return as_token_stats(outputs, labels, kept, byproducts)


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
    """The token_stats of the logits `hidden @ weight.T + bias`, which are never held as a whole."""
    transform = LogitTransform(temperature=temperature, softcap=softcap, scale=scale)
    rows = hidden.reshape(-1, hidden.shape[-1])
    picked = labels.reshape(-1)
    kept = None if mask is None else mask.reshape(-1)
    if kept is not None:
        rows, picked = rows[kept], picked[kept]
    check_labels(picked, weight.shape[0])
    outputs = _HiddenStats.apply(rows, weight, bias, picked, transform)
    return as_token_stats(outputs, labels, kept, byproducts)


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


def as_token_stats(
    outputs: tuple[Tensor, ...], labels: Tensor, kept: Tensor | None, byproducts: bool
) -> TokenStats:
    """The per-row results put back in the labels' shape, 0 in the rows left out."""
    wanted = outputs if byproducts else outputs[:2]
    if kept is not None:
        index = kept.nonzero().squeeze(-1)
        wanted = [row.new_zeros(kept.numel()).index_copy(0, index, row) for row in wanted]
    return TokenStats(*(row.view(labels.shape) for row in wanted))


class _LogitStats(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, labels: Tensor, transform: LogitTransform):
        size = max(1, CHUNK_BYTES // max(1, 4 * logits.shape[-1]))
        parts = [moments_of_chunk(chunk, transform) for chunk in logits.split(size)]
        moments = Moments(*(torch.cat(values) for values in zip(*parts, strict=True)))
        picked = transform.policy_logits(logits.gather(-1, labels.long()[:, None]))[:, 0]
        ctx.save_for_backward(logits, labels, *moments)
        ctx.transform, ctx.size = transform, size
        ctx.set_materialize_grads(False)
        outputs = _outputs(moments, picked)
        ctx.mark_non_differentiable(*outputs[2:])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_logprob, grad_entropy, *_):
        logits, labels, *moments = ctx.saved_tensors
        grad = torch.empty_like(logits)
        zero = torch.zeros_like(moments[0])
        pieces = zip(
            grad.split(ctx.size),
            logits.split(ctx.size),
            labels.long().split(ctx.size),
            zip(*(value.split(ctx.size) for value in moments), strict=True),
            (zero if grad_logprob is None else grad_logprob).split(ctx.size),
            (zero if grad_entropy is None else grad_entropy).split(ctx.size),
            strict=True,
        )
        for out, chunk, picked, sums, g_logp, g_ent in pieces:
            out.copy_(
                gradient_of_chunk(chunk, picked, Moments(*sums), g_logp, g_ent, ctx.transform)
            )
        return grad, None, None


def _outputs(moments: Moments, picked: Tensor) -> tuple[Tensor, ...]:
    logprob = (picked - moments.shift) - moments.total.log()
    top1 = moments.total.reciprocal()
    return logprob, moments.entropy, top1, moments.square * top1.square(), moments.shift.clone()


class _HiddenStats(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, transform: LogitTransform):
        ctx.size = 64
        parts, picked = [], []
        for rows, label in zip(hidden.split(ctx.size), labels.long().split(ctx.size), strict=True):
            logits = torch.nn.functional.linear(rows, weight, bias)
            parts.append(moments_of_chunk(logits, transform))
            picked.append(transform.policy_logits(logits.gather(-1, label[:, None]))[:, 0])
        moments = Moments(*(torch.cat(values) for values in zip(*parts, strict=True)))
        ctx.save_for_backward(hidden, weight, bias, labels, *moments)
        ctx.transform = transform
        ctx.set_materialize_grads(False)
        outputs = _outputs(moments, torch.cat(picked))
        ctx.mark_non_differentiable(*outputs[2:])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_logprob, grad_entropy, *_):
        hidden, weight, bias, labels, *moments = ctx.saved_tensors
        wide = sum_dtype(hidden.dtype)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=wide)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=wide)
        zero = torch.zeros_like(moments[0])
        g_logp = zero if grad_logprob is None else grad_logprob
        g_ent = zero if grad_entropy is None else grad_entropy
        for start in range(0, hidden.shape[0], ctx.size):
            part = slice(start, start + ctx.size)
            logits = torch.nn.functional.linear(hidden[part], weight, bias)
            sums = Moments(*(value[part] for value in moments))
            grad = gradient_of_chunk(
                logits, labels[part].long(), sums, g_logp[part], g_ent[part], ctx.transform
            )
            grad_hidden[part] = (grad @ weight.to(wide)).to(hidden.dtype)
            grad_weight.addmm_(grad.T, hidden[part].to(wide))
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype),
            None if bias is None or grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
        )
