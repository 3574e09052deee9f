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
from functools import partial
from math import inf
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from isentrope.objective.covariance import select_top, select_window
from isentrope.objective.masking import sequence_means
from isentrope.objective.selection import select_budget, select_low_entropy
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = [
    "LOSSES",
    "KLEstimator",
    "PolicyLoss",
    "ReferenceEstimator",
    "TokenLoss",
    "budget",
    "cispo",
    "clip_cov",
    "entropy_bonus",
    "gmpo",
    "gspo",
    "kl_cov",
    "kl_estimate",
    "log_ratio",
    "policy_gradient",
    "ppo_clip",
    "reference_kl",
    "top_entropy",
]

KLEstimator = Literal["abs", "k1", "k2", "k3"]

ReferenceEstimator = Literal["k2", "k3"]
"""Those whose gradient, as `reference_kl` takes it, is that of the KL divergence."""

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
    per_token, flat = clipped_surrogate(ratio, advantage, clip_low, clip_high)
    if dual_clip < inf:
        ceiling = torch.where(advantage < 0, -dual_clip * advantage, inf)
        flat = flat | (per_token > ceiling)
        per_token = torch.minimum(per_token, ceiling)
    return TokenLoss(per_token, {"clip/fraction": flat.to(per_token.dtype)})


def cispo(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    clip_low: float = inf,
    clip_high: float = 4.0,
) -> TokenLoss:
    """-stop_gradient(clip(ratio, 1 - clip_low, 1 + clip_high)) A log pi. CISPO, arXiv 2506.13585.

    The weight is clipped, not the update: every token keeps a gradient. The paper sets no lower
    bound and names no upper one; 1 + 4 is the cap of ScaleRL, arXiv 2510.13786. On policy the
    gradient is REINFORCE's; the value is not comparable with that of the ratio losses.
    """
    ratio = log_ratio(logprob, old_logprob, mask).exp().detach()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return TokenLoss(
        -weight * advantage * logprob, {"clip/fraction": (weight != ratio).to(logprob.dtype)}
    )


def gspo(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> TokenLoss:
    """ppo_clip with the ratio of the sequence, exp(mean of log ratios). GSPO, arXiv 2507.18071.

    This is its token form (equation 13): the value of each token's ratio is the sequence's, the
    gradient its own, so advantages may differ within a sequence. With the reducer `sequence_mean`
    and one advantage a sequence it is GSPO.
    """
    ratio = sequence_ratio(log_ratio(logprob, old_logprob, mask), mask)
    per_token, flat = clipped_surrogate(ratio, advantage, clip_low, clip_high)
    return TokenLoss(per_token, {"clip/fraction": flat.to(per_token.dtype)})


def gmpo(
    logprob: PerToken,
    old_logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    *,
    clip_low: float = 0.4,
    clip_high: float = 0.4,
) -> TokenLoss:
    """-A times the geometric mean of the sequence's clipped ratios. GMPO, arXiv 2507.20673.

    The log of a token's ratio is cut at clip_high where A > 0 and at -clip_low where A < 0, before
    the mean: a clipped token has no gradient, the others keep theirs. In the token form of `gspo`;
    with the reducer `sequence_mean` and one advantage a sequence it is GMPO.
    """
    plain = log_ratio(logprob, old_logprob, mask)
    clipped = torch.where(advantage > 0, plain.clamp(max=clip_high), plain.clamp(min=-clip_low))
    ratio = sequence_ratio(clipped, mask)
    return TokenLoss(-ratio * advantage, {"clip/fraction": (clipped != plain).to(ratio.dtype)})


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
    """-ratio A, its gradient cut at the selected tokens. Clip-Cov, equation 12 of the paper.

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
    """-ratio A, plus kl_coefficient x KL(old || new) at the selected tokens. KL-Cov, equation 14.

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


top_entropy = partial(clip_cov, clip_low=0.2, clip_high=0.28)
"""PPO clip at the tokens of highest entropy only ("80/20", arXiv 2506.01939, on DAPO's clip):
`selected` are the others, from `select_low_entropy`. The denominator counts them."""

budget = partial(clip_cov, clip_low=0.2, clip_high=0.2)
"""PPO clip without the tokens that exceed the entropy budget, from `select_budget`."""

LOSSES = {
    "policy_gradient": PolicyLoss(policy_gradient),
    "ppo_clip": PolicyLoss(ppo_clip),
    "cispo": PolicyLoss(cispo),
    "gspo": PolicyLoss(gspo),
    "gmpo": PolicyLoss(gmpo),
    "clip_cov": PolicyLoss(clip_cov, select_window),
    "kl_cov": PolicyLoss(kl_cov, select_top),
    "top_entropy": PolicyLoss(top_entropy, select_low_entropy),
    "budget": PolicyLoss(budget, select_budget),
}


def entropy_bonus(entropy: PerToken, entropy_coefficient: float) -> PerToken:
    """-entropy_coefficient x H of each token: added to a loss, it pays for entropy."""
    return -entropy_coefficient * entropy


def reference_kl(
    logprob: PerToken,
    old_logprob: PerToken,
    reference_logprob: PerToken,
    mask: TokenMask,
    estimator: ReferenceEstimator = "k3",
) -> PerToken:
    """Estimate of KL(policy || reference) at each token, from tokens that the old policy drew.

    The gradient of KL(p || q) has the weight log(p / q), with the ratio p / p_old where the tokens
    are those of p_old. k2 has it with a ratio that is held fixed; k3 has it where the gradient
    goes through the ratio too (k3 alone has the weight 1 - q / p, that of another divergence).
    """
    ratio = log_ratio(logprob, old_logprob, mask).exp()
    value = kl_estimate(log_ratio(reference_logprob, logprob, mask), estimator)
    return (ratio.detach() if estimator == "k2" else ratio) * value


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


def clipped_surrogate(
    ratio: PerToken, advantage: PerToken, clip_low: float, clip_high: float
) -> tuple[PerToken, TokenMask]:
    """max(-ratio A, -clip(ratio) A), and where the clip took the gradient away."""
    plain = -ratio * advantage
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    return torch.maximum(plain, clipped), clipped > plain


def sequence_ratio(log_ratios: PerToken, mask: TokenMask) -> PerToken:
    """exp(mean log ratio of the sequence) at each of its tokens, with the token's own gradient."""
    mean = sequence_means(log_ratios, mask).detach().unsqueeze(-1)
    return mean.exp() * (log_ratios - log_ratios.detach()).exp()


def log_ratio(logprob: PerToken, old_logprob: PerToken, mask: TokenMask) -> PerToken:
    """log pi - log pi_old clamped to +-20, and 0 where masked, whatever stands there."""
    difference = torch.where(mask, logprob - old_logprob, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
