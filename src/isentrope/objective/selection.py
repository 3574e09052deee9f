"""Tokens whose gradient is cut: all but those of high entropy, or those that exceed a budget.

As in `covariance.py`, a selection is over the whole optimizer mini-batch, draws no gradient, and
does not depend on padding.
"""

import torch
from torch import Tensor

from isentrope.objective.covariance import quota, scatter_selection
from isentrope.objective.shapes import PerToken, TokenMask

__all__ = ["select_budget", "select_low_entropy"]


@torch.no_grad()
def select_low_entropy(
    covariance: PerToken, mask: TokenMask, *, entropy: PerToken, entropy_fraction: float = 0.2
) -> TokenMask:
    """True at all but the floor(entropy_fraction x N) tokens of highest entropy (80/20).

    arXiv 2506.01939. Its threshold is a quantile over the batch; here exactly the quota is kept,
    and among equal entropies the token that comes first in row order.
    """
    values = entropy[mask]
    order = values.argsort(descending=True, stable=True)
    return scatter_selection(order[quota(values.numel(), entropy_fraction) :], mask)


@torch.no_grad()
def select_budget(
    covariance: PerToken, mask: TokenMask, *, budget: float, clip_fraction: float = 1.0
) -> TokenMask:
    """True at the fewest tokens whose cut brings the covariance of the others to the budget.

    The covariance that remains is sum over kept tokens of Cov_i / N: the denominator of the loss
    counts cut tokens too. Where it is above `budget` tokens are cut from the top, and entropy
    falls more slowly; where it is below a positive `budget` (entropy is above its target) they
    are cut from the bottom, and entropy falls faster. Below a budget that is not positive nothing
    is cut. No more than floor(clip_fraction x N) tokens are cut, and none whose cut would lead
    away from the budget. Among equal covariances the first in row order goes first.
    """
    values = covariance[mask].double()
    excess = values.sum() - budget * values.numel()
    if excess <= 0 and budget <= 0:
        return torch.zeros_like(mask)
    surplus = values if excess > 0 else -values
    order = surplus.argsort(descending=True, stable=True)
    wanted = fewest(surplus[order], excess.abs())
    return scatter_selection(order[: min(wanted, quota(values.numel(), clip_fraction))], mask)


def fewest(descending: Tensor, amount: Tensor) -> int:
    """How many of the values, largest first, add up to `amount`; all positive ones if none do."""
    reached = descending.clamp(min=0).cumsum(0) >= amount
    positive = int((descending > 0).sum())
    return min(positive, int((~reached).sum()) + 1) if amount > 0 else 0
