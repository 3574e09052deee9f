"""Sampling from the likelier tokens only: min-p, top-k and top-p, for evaluation."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["WHOLE", "Filter", "filtered"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tokens may be drawn, as in the `evaluation` section; the defaults let all."""

    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


WHOLE = Filter()
"""The whole vocabulary."""


def filtered(logits: Tensor, keep: Filter) -> Tensor:
    """Logits (rows, V), already divided by the temperature, with -inf where no draw may fall.

    In the order of vLLM, each on what the one before it left: min-p keeps tokens at least `min_p`
    times as likely as the likeliest (arXiv 2407.01082), top-k the `top_k` likeliest and those that
    tie with the last of them, top-p the fewest of the likeliest that have `top_p` of the
    probability (arXiv 1904.09751). The likeliest token always stays.
    """
    if keep.min_p > 0:
        share = (logits - logits.amax(-1, keepdim=True)).exp()
        logits = logits.masked_fill(share < keep.min_p, -torch.inf)
    if 0 < keep.top_k < logits.shape[-1]:
        last = logits.topk(keep.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < last, -torch.inf)
    if keep.top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True, stable=True)
        probability = ordered.softmax(-1)
        likelier = probability.cumsum(-1) - probability  # the mass of the tokens before
        outside = (likelier >= keep.top_p).scatter(-1, index, likelier >= keep.top_p)
        logits = logits.masked_fill(outside, -torch.inf)
    return logits
