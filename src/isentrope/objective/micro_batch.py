"""Clip-Cov and KL-Cov as the public code computes them, for comparison only.

verl (0.9.1) and the paper's own fork select inside each micro-batch, so their result depends on
the micro-batch size. These two functions return the same numbers as verl's `clip_cov` and
`kl_cov` on the same tensors. They differ from `losses.clip_cov` and `losses.kl_cov` in this:
the means, the quota and the candidates are those of the micro-batch; at least one token is
taken; the covariance uses the policy being trained; the bounds of the window are excluded;
PPO-clipped tokens are no candidates; a cut token loses its value too.
"""

from math import inf

import torch

from isentrope.objective.covariance import quota, scatter_selection, select_top, token_covariance
from isentrope.objective.losses import TokenLoss, kl_cov, ppo_clip
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = ["micro_batch_clip_cov", "micro_batch_kl_cov"]


def micro_batch_clip_cov(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    generator: torch.Generator,
    clip_fraction: float = 2e-4,
    covariance_low: float = 1.0,
    covariance_high: float = 5.0,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> tuple[TokenLoss, TokenMask]:
    """The loss, and the tokens it cut."""
    loss = ppo_clip(logprob, old_logprob, advantage, mask, clip_low=clip_low, clip_high=clip_high)
    covariance = token_covariance(logprob.detach(), advantage, mask)
    covariance = torch.where(loss.metrics["clip/fraction"] > 0, -inf, covariance)[mask]
    candidates = ((covariance > covariance_low) & (covariance < covariance_high)).nonzero()
    wanted = quota(covariance.numel(), clip_fraction, at_least=1)
    order = torch.randperm(candidates.numel(), generator=generator)[:wanted]
    selected = scatter_selection(candidates.squeeze(-1)[order.to(candidates.device)], mask)
    return loss._replace(per_token=loss.per_token * ~selected), selected


def micro_batch_kl_cov(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    kl_fraction: float = 2e-3,
    kl_coefficient: float = 1.0,
) -> tuple[TokenLoss, TokenMask]:
    """The loss, and the tokens it penalised."""
    covariance = token_covariance(logprob.detach(), advantage, mask)
    selected = select_top(covariance, mask, kl_fraction=kl_fraction, at_least=1)
    loss = kl_cov(
        logprob, old_logprob, advantage, mask, selected=selected, kl_coefficient=kl_coefficient
    )
    return loss, selected
