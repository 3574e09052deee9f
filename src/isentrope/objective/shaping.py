"""Advantages reshaped token by token, before the loss. No gradient flows through anything here.

Each function takes the advantages (B, T) of the whole optimizer mini-batch and its mask, and what
it needs of the sampling policy, and returns advantages (B, T).
"""

from collections.abc import Callable

import torch

from isentrope.objective.covariance import token_covariance
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = ["SHAPINGS", "covariance_kernel", "entropy_shaping"]


@torch.no_grad()
def entropy_shaping(
    advantage: PerToken,
    mask: TokenMask,
    *,
    entropy: PerToken,
    shaping_weight: float = 0.4,
    shaping_bound: float = 2.0,
) -> PerToken:
    """A + min(shaping_weight x H, |A| / shaping_bound). arXiv 2506.14758, alpha 0.4, kappa 2.

    With shaping_bound above 1 no advantage changes its sign. `entropy` is that of the sampling
    policy, in nats.
    """
    bonus = torch.minimum(shaping_weight * entropy, advantage.abs() / shaping_bound)
    return torch.where(mask, advantage + bonus, 0.0)


@torch.no_grad()
def covariance_kernel(advantage: PerToken, mask: TokenMask, *, logprob: PerToken) -> PerToken:
    """w A with w = exp(-Cov^2 / (2 sigma^2)), scaled to a mean of 1. arXiv 2605.11538 (CW-GRPO).

    Cov is the token covariance and sigma its standard deviation over the tokens: extreme tokens
    of either sign move the policy less, without a setting. The paper takes the moments over a
    group, this function over the mini-batch that it is given.
    """
    covariance = token_covariance(logprob, advantage, mask).double()
    count = mask.sum().clamp(min=1)
    centred = torch.where(mask, covariance - covariance.sum() / count, 0.0)
    variance = centred.square().sum() / count
    weight = torch.where(mask, (-covariance.square() / (2 * variance)).exp(), 0.0)
    weight = torch.where(variance > 0, weight * count / weight.sum(), 1.0)
    return torch.where(mask, (weight * advantage).to(advantage.dtype), 0.0)


SHAPINGS: dict[str, Callable[..., PerToken]] = {
    "entropy": entropy_shaping,
    "covariance_kernel": covariance_kernel,
}
