"""Masked sums, and reducers whose denominator is always given.

A loss over a mini-batch is split into micro-batches and ranks. Each part is reduced with the
denominator of the whole mini-batch, so the parts add up to the undivided loss exactly.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from isentrope.objective.shapes import PerSequence, PerToken, Scalar, TokenMask

__all__ = [
    "Reducer",
    "loss_denominator",
    "masked_mean",
    "masked_sum",
    "reduce_loss",
    "response_mask",
    "sequence_means",
]

Reducer = Literal["token_mean", "sequence_mean", "sequence_sum"]


def masked_sum(values: Float[Tensor, "*shape"], mask: Tensor) -> Scalar:
    """Sum of the values where `mask` is True; what stands elsewhere, NaN too, has no effect."""
    return torch.where(mask, values, 0.0).sum()


def masked_mean(values: Float[Tensor, "*shape"], mask: Tensor) -> Scalar:
    """Mean of the values where `mask` is True; NaN, which is logged as null, where it never is."""
    return masked_sum(values, mask) / mask.sum()


def sequence_means(values: PerToken, mask: TokenMask) -> PerSequence:
    """Mean over the tokens of each sequence; 0 for a sequence without tokens."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


def loss_denominator(mask: TokenMask, reducer: Reducer, max_tokens: int | None = None) -> Scalar:
    """What the loss of the whole mini-batch is divided by.

    `token_mean`: its tokens. `sequence_mean`: its sequences that have tokens. `sequence_sum`:
    these sequences times the constant `max_tokens` (Dr. GRPO, arXiv 2503.20783).
    """
    if reducer == "token_mean":
        return mask.sum().to(torch.float32)
    sequences = mask.any(-1).sum().to(torch.float32)
    if reducer == "sequence_mean":
        return sequences
    assert max_tokens is not None, "sequence_sum divides by a constant length: give max_tokens"
    return sequences * max_tokens


def reduce_loss(
    per_token: PerToken, mask: TokenMask, reducer: Reducer, denominator: Tensor
) -> Scalar:
    """The part of a loss that these tokens contribute: their sum over the given denominator.

    Without any token it is 0, and still connected to the graph.
    """
    if reducer == "sequence_mean":
        total = sequence_means(per_token, mask).sum()
    else:
        total = masked_sum(per_token, mask)
    return total / denominator.clamp(min=1)


def response_mask(tokens: Tensor, eos_ids: Tensor) -> TokenMask:
    """True up to and including the first end-of-sequence token of each row, (B, T).

    The pad id plays no part, so it may equal an end-of-sequence id. A row that never ends is
    True throughout: it was truncated.
    """
    ended = torch.isin(tokens, eos_ids).cumsum(-1)
    before = torch.zeros_like(ended)
    before[:, 1:] = ended[:, :-1]
    return before == 0
