"""Advantages reshaped token by token, before the loss. No gradient flows through anything here.

Each function takes the advantages (B, T) of the whole optimizer mini-batch and its mask, and what
it needs of the sampling policy, and returns advantages (B, T).
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from isentrope.objective.covariance import moments, token_covariance
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = [
    "SHAPINGS",
    "budget_by_decorrelation",
    "budget_by_success",
    "covariance_kernel",
    "entropic",
    "entropy_shaping",
    "quadrants",
    "repo_r",
]


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


@torch.no_grad()
def quadrants(
    advantage: PerToken,
    mask: TokenMask,
    *,
    logprob: PerToken,
    likely_success: float = 1.0,
    unlikely_success: float = 1.0,
    likely_mistake: float = 1.0,
    unlikely_mistake: float = 1.0,
) -> PerToken:
    """A times the weight of its part: the sign of A, and log pi above its mean (likely) or not.

    The covariance of log-prob and advantage is the sum over these four parts, so each takes or
    gives entropy on its own: reinforcing likely successes and unlearning unlikely mistakes take
    it, the other two give it. Negative-sample reinforcement (arXiv 2506.01347) is a weight of
    0 for both successes.
    """
    likely = centred_logprob(logprob, mask) > 0
    success = torch.where(likely, likely_success, unlikely_success)
    mistake = torch.where(likely, likely_mistake, unlikely_mistake)
    weight = torch.where(advantage > 0, success, mistake).to(advantage.dtype)
    return torch.where(mask, weight * advantage, 0.0)


@torch.no_grad()
def entropic(
    advantage: PerToken,
    mask: TokenMask,
    *,
    logprob: PerToken,
    strength: float,
    likely_probability: float = 0.9,
) -> PerToken:
    """A + strength x |A| where pi > likely_probability. EntroPIC, arXiv 2511.15248.

    A strength above 0 reinforces likely successes more and unlearns likely mistakes less, which
    takes entropy; below 0 it gives. The paper's code adds the same to the loss, with a ratio that
    the PPO clip does not reach; the threshold is ours.
    """
    likely = logprob > log(likely_probability)
    shaped = torch.where(likely, advantage + strength * advantage.abs(), advantage)
    return torch.where(mask, shaped, 0.0)


@torch.no_grad()
def repo_r(advantage: PerToken, mask: TokenMask, *, logprob: PerToken, strength: float) -> PerToken:
    """A - strength x |A| log pi, with the sign of A kept. REPO-R, arXiv 2603.11682.

    Unlikely successes are reinforced more and unlikely mistakes unlearnt less, in proportion to
    -log pi; a strength below 0 does the opposite. The paper takes log pi of the newest policy,
    this function that which it is given.
    """
    finite = torch.where(mask & logprob.isfinite(), logprob, 0.0)
    shaped = advantage - strength * advantage.abs() * finite
    kept = torch.where(advantage > 0, shaped.clamp(min=0), shaped.clamp(max=0))
    return torch.where(mask & (advantage != 0), kept, 0.0)


@torch.no_grad()
def budget_by_success(
    advantage: PerToken,
    mask: TokenMask,
    *,
    logprob: PerToken,
    budget: float,
    strength_limit: float = 5.0,
) -> PerToken:
    """max(0, A (1 - z l)) where A > 0, and A elsewhere; l = log pi - its mean over the tokens.

    z is the strength at which the covariance that remains, sum of A' l / N, is the budget: likely
    successes are reinforced less and unlikely ones more, and mistakes are unlearnt in full. No sign
    changes. Where the budget is above the covariance and positive (entropy is above its target) z
    is negative, and entropy falls faster; above one that is not positive nothing is reshaped.
    |z| <= strength_limit: where that is reached, or no token was rewarded, the budget is not met.
    """
    centred = centred_logprob(logprob, mask)
    success = mask & (advantage > 0)
    fixed = torch.where(mask & ~success, advantage.double() * centred, 0.0).sum()
    gains, scores = advantage[success].double(), centred[success]
    wanted = budget * mask.sum() - fixed
    excess = (gains * scores).sum() - wanted
    if excess <= 0 and budget <= 0:
        return torch.where(mask, advantage, 0.0)
    sign = 1.0 if excess > 0 else -1.0  # z < 0 is z > 0 with the signs of l and the budget turned
    strength = sign * falling_root(gains, sign * scores, sign * wanted, strength_limit)
    reshaped = (advantage.double() * (1 - strength * centred)).clamp(min=0)
    kept = torch.where(success, reshaped.to(advantage.dtype), advantage)
    return torch.where(mask, kept, 0.0)


@torch.no_grad()
def budget_by_decorrelation(
    advantage: PerToken,
    mask: TokenMask,
    *,
    logprob: PerToken,
    budget: float,
    strength_limit: float = 5.0,
) -> PerToken:
    """A - z l at all tokens, l = log pi - its mean, so that the covariance sum of A' l / N is the budget.

    z = (sum of A l / N - budget) / variance of l. As in `budget_by_success`, z < 0 only towards a
    positive budget, and |z| <= strength_limit. Signs may change. REPO, arXiv 2603.11682, solved for
    the budget.
    """
    centred = centred_logprob(logprob, mask)
    excess = (torch.where(mask, advantage, 0.0) * centred).sum() - budget * mask.sum()
    strength = (excess / centred.square().sum().clamp(min=TINY)).clamp(
        -strength_limit if budget > 0 else 0.0, strength_limit
    )
    return torch.where(mask, (advantage - strength * centred).to(advantage.dtype), 0.0)


TINY = 1e-30
"""Stands for a sum of squares that is 0: nothing varies, and nothing is reshaped."""


def centred_logprob(logprob: PerToken, mask: TokenMask) -> PerToken:
    """log pi - its mean over the tokens, (B, T) in float64; 0 where masked or not finite."""
    total = moments(logprob, torch.zeros_like(logprob), mask)
    centred = logprob.double() - total.logprob / total.count.clamp(min=1)
    return torch.where(mask & logprob.isfinite(), centred, 0.0)


def falling_root(gains: Tensor, scores: Tensor, wanted: Tensor, limit: float) -> float:
    """The z in [0, limit] at which sum of max(0, a (1 - z l)) l is `wanted`, for gains a > 0.

    The sum falls with z, linearly between the breakpoints 1 / l at which tokens of l > 0 reach 0.
    Sorted by them, those that are left at each breakpoint are a suffix, and the sum there is
    S1 - z S2 with the suffix sums S1 of a l and S2 of a l^2: exact, in one sort.
    """
    order = torch.where(scores > 0, -scores, 0.0).argsort(
        stable=True
    )  # largest l first, l <= 0 last
    gains, scores = gains[order], scores[order]
    first = (gains * scores).flip(0).cumsum(0).flip(0)
    second = (gains * scores.square()).flip(0).cumsum(0).flip(0)
    count = int((scores > 0).sum())
    points = 1 / scores[:count]
    at_points = first[:count] - points * second[:count]
    left = int((at_points > wanted).sum())  # tokens that have reached 0 before the root
    if left == len(scores) or second[left] <= TINY:
        return limit
    return float(((first[left] - wanted) / second[left]).clamp(0.0, limit))


SHAPINGS: dict[str, Callable[..., PerToken]] = {
    "entropy": entropy_shaping,
    "covariance_kernel": covariance_kernel,
    "quadrants": quadrants,
    "entropic": entropic,
    "repo_r": repo_r,
    "success": budget_by_success,
    "decorrelation": budget_by_decorrelation,
}
