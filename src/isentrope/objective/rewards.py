"""Rewards (B,) changed before advantages are made of them."""

import torch

from isentrope.objective.shapes import PerSequence, PerToken, TokenMask

__all__ = ["kl_penalised", "overlong_penalty"]


def overlong_penalty(mask: TokenMask, max_tokens: int, buffer: int, weight: float) -> PerSequence:
    """What a response loses for its length: 0 up to max_tokens - buffer tokens, then linearly up
    to `weight` at max_tokens. Soft overlong punishment of DAPO, arXiv 2503.14476, equation 13.
    """
    if buffer == 0:
        return torch.zeros(len(mask), device=mask.device)
    return weight * ((mask.sum(-1) - (max_tokens - buffer)) / buffer).clamp(0, 1)


def kl_penalised(rewards: PerSequence, penalty: PerToken, mask: TokenMask) -> PerSequence:
    """r - sum of the penalties of the response's tokens: a KL term in the reward."""
    return rewards - torch.where(mask, penalty, 0.0).sum(-1)
