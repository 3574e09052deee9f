"""Policy losses, token by token.

Each takes the log-probabilities of the sampled tokens under the policy being trained (with
gradient) and under the policy that sampled them, the advantages and the mask, all (B, T), and
returns the loss of each token. `reduce_loss` makes a scalar of it:

    per_token, metrics = ppo_clip(logprob, old_logprob, advantage, mask)
    loss = reduce_loss(per_token, mask, "token_mean", loss_denominator(mask, "token_mean"))

Signs: losses are minimised. The gradient flows through `logprob` only. The metrics are values
per token, detached, to be averaged over the mini-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from isentrope.objective.covariance import select_top, select_window
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = [
    "LOSSES",
    "KLEstimator",
    "PolicyLoss",
    "TokenLoss",
    "clip_cov",
    "entropy_bonus",
    "kl_cov",
    "kl_estimate",
    "log_ratio",
    "policy_gradient",
    "ppo_clip",
    "reference_kl",
]

KLEstimator = Literal["abs", "k1", "k2", "k3"]

LOG_RATIO_LIMIT = 20.0
"""Log ratios are clamped to +-20: exp(20) is 5e8, far beyond use, and stays finite in fp32."""


class TokenLoss(NamedTuple):
    """The loss of each token, and metrics of each token."""

    per_token: PerToken
    metrics: dict[str, PerToken]


def policy_gradient(
    logprob: PerToken, old_logprob: PerToken, advantage: PerToken, mask: TokenMask
) -> TokenLoss:
    """-ratio A: importance-weighted policy gradient, no clip.

    On policy (old_logprob equal to logprob) its gradient is REINFORCE's, -A grad log pi.
    """
    return ppo_clip(logprob, old_logprob, advantage, mask, clip_low=inf, clip_high=inf)


def ppo_clip(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = inf,
) -> TokenLoss:
    """max(-ratio A, -clip(ratio, 1 - clip_low, 1 + clip_high) A). PPO, arXiv 1707.06347.

    GRPO uses 0.2 and 0.2; clip-higher (DAPO, arXiv 2503.14476) 0.2 and 0.28. For A < 0 the
    loss is at most -dual_clip A (dual clip, arXiv 1912.09729; off when infinite).
    """
    ratio = log_ratio(logprob, old_logprob, mask).exp()
    plain = -ratio * advantage
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    per_token = torch.maximum(plain, clipped)
    flat = clipped > plain
    if dual_clip < inf:
        ceiling = torch.where(advantage < 0, -dual_clip * advantage, inf)
        flat = flat | (per_token > ceiling)
        per_token = torch.minimum(per_token, ceiling)
    return TokenLoss(per_token, {"clip/fraction": flat.to(per_token.dtype)})


def clip_cov(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    selected: TokenMask,
    clip_low: float = inf,
    clip_high: float = inf,
    dual_clip: float = inf,
) -> TokenLoss:
    """-ratio A, its gradient cut at the selected tokens. Clip-Cov, paper equation 11.

    `selected` comes from `select_window`. The value of the selected tokens stays, and so does
    the denominator. The PPO clip is off, as in the paper's formula; it can be combined.
    """
    loss = ppo_clip(
        logprob,
        old_logprob,
        advantage,
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )
    return loss._replace(per_token=torch.where(selected, loss.per_token.detach(), loss.per_token))


def kl_cov(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    selected: TokenMask,
    kl_coefficient: float = 1.0,
    kl_estimator: KLEstimator = "abs",
    clip_low: float = inf,
    clip_high: float = inf,
) -> TokenLoss:
    """-ratio A, plus kl_coefficient x KL(old || new) at the selected tokens. KL-Cov, equation 12.

    `selected` comes from `select_top`. The estimator `abs`, |log ratio|, is what the paper's
    code computes. While the two policies agree (the first mini-batch of a rollout) every
    estimator but k1 has zero gradient, so with one update a rollout KL-Cov does nothing.
    """
    loss = ppo_clip(logprob, old_logprob, advantage, mask, clip_low=clip_low, clip_high=clip_high)
    kl = kl_estimate(log_ratio(logprob, old_logprob, mask), kl_estimator)
    return loss._replace(per_token=loss.per_token + kl_coefficient * torch.where(selected, kl, 0.0))


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A loss, and how its tokens are selected (None: it selects none)."""

    loss: Callable[..., TokenLoss]
    select: Callable[..., Tensor] | None = None


LOSSES = {
    "policy_gradient": PolicyLoss(policy_gradient),
    "ppo_clip": PolicyLoss(ppo_clip),
    "clip_cov": PolicyLoss(clip_cov, select_window),
    "kl_cov": PolicyLoss(kl_cov, select_top),
}


def entropy_bonus(entropy: PerToken, entropy_coefficient: float) -> PerToken:
    """-entropy_coefficient x H of each token: added to a loss, it pays for entropy."""
    return -entropy_coefficient * entropy


def reference_kl(
    logprob: PerToken,
    reference_logprob: PerToken,
    mask: TokenMask,
    estimator: KLEstimator = "k3",
) -> PerToken:
    """Estimate of KL(policy || reference) at each token, from tokens of the policy.

    Its gradient goes through the value only, not through which tokens were sampled.
    """
    return kl_estimate(log_ratio(reference_logprob, logprob, mask), estimator)


def kl_estimate(
    log_ratio: Float[Tensor, "*shape"], estimator: KLEstimator
) -> Float[Tensor, "*shape"]:
    """Per-sample estimate of KL(p || q) from log_ratio = log(q / p) at samples of p.

    k1 = -l (unbiased, either sign), k2 = l^2 / 2, k3 = e^l - 1 - l (unbiased, nonnegative;
    J. Schulman, "Approximating KL divergence", 2020), abs = |l| (biased, nonnegative).
    """
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    if estimator == "k3":
        return log_ratio.expm1() - log_ratio
    return log_ratio.abs()


def log_ratio(logprob: PerToken, old_logprob: PerToken, mask: TokenMask) -> PerToken:
    """log pi - log pi_old clamped to +-20, and 0 where masked, whatever stands there."""
    difference = torch.where(mask, logprob - old_logprob, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
