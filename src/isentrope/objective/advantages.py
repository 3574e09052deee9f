"""Advantages from rewards: how much better a response did than it was expected to.

Each function takes the rewards (B,) of the responses, the group (prompt) that each belongs to
(B,) and the response mask (B, T), and returns (B,) or (B, T). A group may stand anywhere in the
batch. A reward of NaN could not be judged: it stays out of every mean and its advantage is 0.
Rewards may be integers or booleans.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from isentrope.objective.masking import sequence_means
from isentrope.objective.shapes import GroupIds, PerSequence, PerToken, Rewards, TokenMask

__all__ = [
    "ADVANTAGES",
    "dr_grpo",
    "group_means",
    "grpo",
    "opo",
    "pass_at_k",
    "pkpo",
    "prime",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "w_reinforce",
    "whiten",
    "zero_signal",
]

STD_EPSILON = 1e-6
"""Added to a group's standard deviation, as in the paper's code."""

VARIANCE_EPSILON = 1e-8
"""Added to a batch's variance when whitening."""


def grpo(rewards: Rewards, groups: GroupIds, mask: TokenMask) -> PerSequence:
    """(r - group mean) / (group sample standard deviation + 1e-6). GRPO, arXiv 2402.03300."""
    centred = dr_grpo(rewards, groups, mask)
    variance = group_sums(centred.square(), groups) / (judged_counts(rewards, groups) - 1)
    std = torch.where(variance.isfinite(), variance, 0.0).sqrt()
    return centred / (std + STD_EPSILON)


def dr_grpo(rewards: Rewards, groups: GroupIds, mask: TokenMask) -> PerSequence:
    """r - group mean. Dr. GRPO, arXiv 2503.20783: use it with the reducer `sequence_sum`.

    Equal rewards have an advantage of 0, and not the rounding error of their mean.
    """
    rewards = as_float(rewards)
    centred = (rewards - group_means(rewards, groups)).nan_to_num(nan=0.0)
    return centred.masked_fill(zero_signal(rewards, groups), 0.0)


def rloo(rewards: Rewards, groups: GroupIds, mask: TokenMask) -> PerSequence:
    """r - mean of the others in the group; 0 in a group of one. RLOO, arXiv 2402.14740."""
    count = judged_counts(rewards, groups)
    return dr_grpo(rewards, groups, mask) * count / (count - 1).clamp(min=1)


def opo(rewards: Rewards, groups: GroupIds, mask: TokenMask) -> PerSequence:
    """r - length-weighted group mean. OPO, arXiv 2505.23585."""
    rewards = as_float(rewards)
    lengths = torch.where(rewards.isnan(), 0.0, mask.sum(-1).to(rewards.dtype))
    weighted = group_sums(rewards.nan_to_num(nan=0.0) * lengths, groups)
    baseline = weighted / group_sums(lengths, groups).clamp(min=1)
    centred = (rewards - baseline).nan_to_num(nan=0.0)
    return centred.masked_fill(zero_signal(rewards, groups), 0.0)


def reinforce_pp(
    rewards: Rewards,
    groups: GroupIds,
    mask: TokenMask,
    penalty: PerToken | None = None,
) -> PerToken:
    """Reward-to-go of each token, whitened over the batch. REINFORCE++, arXiv 2501.03262.

    The reward comes with the last token and is not discounted; `penalty` (a KL term, say) is
    subtracted token by token.
    """
    rewards = as_float(rewards)
    to_go = rewards.nan_to_num(nan=0.0).unsqueeze(-1).expand(mask.shape)
    if penalty is not None:
        cost = torch.where(mask, penalty, 0.0)
        to_go = to_go - cost.flip(-1).cumsum(-1).flip(-1)
    return whiten(to_go, mask & ~rewards.isnan().unsqueeze(-1))


def reinforce_pp_baseline(rewards: Rewards, groups: GroupIds, mask: TokenMask) -> PerToken:
    """(r - group mean), whitened over the batch. REINFORCE++-baseline, arXiv 2501.03262."""
    centred = dr_grpo(rewards, groups, mask).unsqueeze(-1).expand(mask.shape)
    return whiten(centred, mask & ~rewards.isnan().unsqueeze(-1))


def prime(
    rewards: Rewards,
    groups: GroupIds,
    mask: TokenMask,
    process: PerToken | None = None,
) -> PerToken:
    """RLOO return of process rewards plus RLOO of the outcome. PRIME, arXiv 2502.01456, eq. 5.

        A_t = sum over s >= t of (p_s - b) + rloo(r)

    p_s is the process reward of token s (none given: 0), b the mean over the other judged
    responses of the group of their mean process reward a token. Nothing is discounted.
    """
    outcome = rloo(rewards, groups, mask).unsqueeze(-1).expand(mask.shape)
    if process is None:
        return outcome
    judged = ~rewards.isnan()
    means = torch.where(judged, sequence_means(process, mask), 0.0)
    others = (judged_counts(rewards, groups) - 1).clamp(min=1)
    baseline = (group_sums(means, groups) - means) / others
    centred = torch.where(mask & judged.unsqueeze(-1), process - baseline.unsqueeze(-1), 0.0)
    return outcome + torch.where(mask, centred.flip(-1).cumsum(-1).flip(-1), 0.0)


def pass_at_k(
    rewards: Rewards, groups: GroupIds, mask: TokenMask, *, pass_k: int = 4
) -> PerSequence:
    """(mean of the best of k with i - mean of the best of k) / its deviation. arXiv 2508.10751.

    The means and the standard deviation are over all sets of `pass_k` judged responses of the
    group: for rewards of 0 and 1 the paper's analytic form (equations 14 and 15), for graded
    ones the same with max@k for pass@k. In a group of at most `pass_k` responses it is 0, and
    where every set holds a right one too: nothing is left to learn for pass@k.
    """
    return by_group(rewards, groups, lambda ascending: best_of_k(ascending, pass_k))


def pkpo(rewards: Rewards, groups: GroupIds, mask: TokenMask, *, pass_k: int = 4) -> PerSequence:
    """n / C(n, k) x the sum over sets of k with i of max(set) - max(set without i). PKPO.

    arXiv 2505.15201, the estimator with a baseline of k - 1 others (equation 33), times the
    group's n judged responses, so that the mean over them, and not their sum, is an unbiased
    gradient of max@k, for rewards of 0 and 1 of pass@k. It is never negative: what does not
    improve the best of k has no gradient. 0 in a group of fewer than `pass_k` responses.
    """
    return by_group(rewards, groups, lambda ascending: added_to_best(ascending, pass_k))


def w_reinforce(
    rewards: Rewards, groups: GroupIds, mask: TokenMask, *, success_weight: float = 0.1
) -> PerSequence:
    """`success_weight` for a reward above 0, else -1. Weighted REINFORCE, arXiv 2506.01347.

    Without a baseline: a group of mistakes alone is unlearnt too (with `drop_zero_signal` it is
    left out before). `success_weight = 0` is the paper's negative-sample reinforcement.
    """
    rewards = as_float(rewards)
    advantage = torch.where(rewards > 0, success_weight, -1.0).to(rewards.dtype)
    return advantage.masked_fill(rewards.isnan(), 0.0)


def by_group(
    rewards: Rewards, groups: GroupIds, advantages: Callable[[Tensor], Tensor]
) -> PerSequence:
    """The function of each group's judged rewards, ascending in float64, put back in place."""
    rewards = as_float(rewards)
    values, index = rewards.double().cpu(), group_index(groups).cpu()
    result = torch.zeros_like(values)
    for group in range(int(index.max()) + 1 if index.numel() else 0):
        members = ((index == group) & ~values.isnan()).nonzero().squeeze(-1)
        order = members[values[members].argsort(stable=True)]
        result[order] = advantages(values[order])
    return result.to(rewards)


def best_of_k(ascending: Tensor, k: int) -> Tensor:
    """`pass_at_k` of one group. The sets of k whose best is number j are C(j - 1, k - 1)."""
    count = len(ascending)
    if count <= k:
        return torch.zeros_like(ascending)
    sets = math.comb(count, k)
    best = ascending.new_tensor([math.comb(j, k - 1) / sets for j in range(count)])
    mean = best @ ascending
    deviation = (best @ (ascending - mean).square()).sqrt()
    # Of the sets with i, C(i - 1, k - 1) have i as their best, C(j - 2, k - 2) a better j.
    own = ascending.new_tensor([math.comb(j, k - 1) for j in range(count)])
    other = ascending.new_tensor([math.comb(j - 1, k - 2) if j else 0 for j in range(count)])
    weighted = other * ascending
    better = weighted.flip(0).cumsum(0).flip(0) - weighted
    with_i = (own * ascending + better) / math.comb(count - 1, k - 1)
    varies = ascending[k - 1] < ascending[-1]  # the best of some set is not that of another
    return (with_i - mean) / deviation if varies else torch.zeros_like(ascending)


def added_to_best(ascending: Tensor, k: int) -> Tensor:
    """`pkpo` of one group: i adds to a set of others whose best is a lower j, C(j - 1, k - 2) of them."""
    count = len(ascending)
    if count < k:
        return torch.zeros_like(ascending)
    sets = ascending.new_tensor([math.comb(j, k - 2) for j in range(count)])
    gaps = (ascending.unsqueeze(1) - ascending.unsqueeze(0)).clamp(min=0)  # [i, j]
    return (gaps * sets).sum(1) * (count / math.comb(count, k))


ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "opo": opo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "prime": prime,
    "pass_at_k": pass_at_k,
    "pkpo": pkpo,
    "w_reinforce": w_reinforce,
}


def zero_signal(rewards: Rewards, groups: GroupIds) -> Tensor:
    """True (B,) where all judged rewards of the group are equal: nothing to learn from it."""
    rewards = as_float(rewards)
    value = rewards.nan_to_num(nan=0.0)
    judged = ~rewards.isnan()
    index = group_index(groups)
    size = int(index.max()) + 1 if index.numel() else 0
    highest = torch.full((size,), -torch.inf, dtype=value.dtype, device=value.device)
    highest.scatter_reduce_(0, index, torch.where(judged, value, -torch.inf), "amax")
    lowest = torch.full((size,), torch.inf, dtype=value.dtype, device=value.device)
    lowest.scatter_reduce_(0, index, torch.where(judged, value, torch.inf), "amin")
    return (highest <= lowest)[index]


def whiten(values: PerToken, mask: TokenMask) -> PerToken:
    """(x - mean) / sqrt(sample variance + 1e-8) over the masked tokens, 0 elsewhere.

    With fewer than two tokens there is no variance, and the result is 0; so it is, without the
    rounding error of a mean that the small constant would magnify, where all values are equal.
    """
    count, inside = mask.sum(), values[mask]
    if not inside.numel() or inside.min() == inside.max():
        return torch.zeros_like(values)
    centred = torch.where(mask, values - torch.where(mask, values, 0.0).sum() / count, 0.0)
    variance = centred.square().sum() / (count - 1).clamp(min=1)
    return centred * (variance + VARIANCE_EPSILON).rsqrt()


def group_means(rewards: Rewards, groups: GroupIds) -> PerSequence:
    """Mean of the judged rewards of each response's group; NaN where none was judged."""
    rewards = as_float(rewards)
    return group_sums(rewards.nan_to_num(nan=0.0), groups) / judged_counts(rewards, groups)


def judged_counts(rewards: Rewards, groups: GroupIds) -> PerSequence:
    """Number of judged responses in each response's group."""
    rewards = as_float(rewards)
    return group_sums((~rewards.isnan()).to(rewards.dtype), groups)


def as_float(rewards: Rewards) -> PerSequence:
    """The rewards as floating-point numbers."""
    return rewards if rewards.is_floating_point() else rewards.float()


def group_sums(values: Float[Tensor, " B"], groups: GroupIds) -> PerSequence:
    """Sum over the group of each response."""
    index = group_index(groups)
    size = int(index.max()) + 1 if index.numel() else 0
    return values.new_zeros(size).index_add_(0, index, values)[index]


def group_index(groups: GroupIds) -> Tensor:
    """The groups renumbered 0, 1, ... so that any ids will do."""
    return torch.unique(groups, return_inverse=True)[1]
