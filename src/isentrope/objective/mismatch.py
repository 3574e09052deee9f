"""A sampler that is not quite the trainer: how far apart they are, and the correction.

Another engine, another precision or another batch give the sampled tokens log-probabilities that
differ from those of the trainer's forward pass. The gradient is then off policy from the start.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from isentrope.objective.losses import kl_estimate, log_ratio
from isentrope.objective.masking import masked_mean
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = ["ImportanceWeight", "importance_weight", "mismatch_metrics"]


class ImportanceWeight(NamedTuple):
    """The weight of each token, without gradient, and 1 where the cap cut it."""

    weight: PerToken
    cut: PerToken


def importance_weight(
    logprob: PerToken, sampler_logprob: PerToken, mask: TokenMask, cap: float
) -> ImportanceWeight:
    """min(pi_trainer / pi_sampler, cap) of each token; 1 where masked.

    `logprob` is the trainer's before the update, so the ratio of the loss and this weight multiply
    to pi / pi_sampler. Truncated importance sampling: F. Yao et al., "Your efficient RL framework
    secretly brings you off-policy RL training", 2025. The cap bounds the variance, and biases.
    """
    weight = log_ratio(logprob, sampler_logprob, mask).exp().detach()
    return ImportanceWeight(weight.clamp(max=cap), (weight > cap).to(weight.dtype))


def mismatch_metrics(
    logprob: PerToken, sampler_logprob: PerToken, mask: TokenMask
) -> dict[str, float]:
    """`mismatch/kl`, KL(sampler || trainer) in nats a token (k3), and `mismatch/max`, the largest
    difference of a token's log-probs in nats."""
    kl = kl_estimate(log_ratio(logprob, sampler_logprob, mask), "k3")
    gap: Tensor = torch.where(mask, logprob - sampler_logprob, 0.0).abs()
    return {"mismatch/kl": masked_mean(kl, mask).item(), "mismatch/max": gap.max().item()}
