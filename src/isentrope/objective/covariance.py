"""The covariance of log-probability and advantage, token by token, and selection by it.

    Cov_i = (log pi(y_i) - mean_j log pi(y_j)) (A_i - mean_j A_j)        (paper, equation 10)

The means are over all N response tokens of the optimizer mini-batch. They come from `Moments`,
which add up over micro-batches and ranks, so that the covariance of a token does not depend on
how the mini-batch is split. No gradient flows through anything here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isentrope.objective.masking import masked_mean, sequence_means
from isentrope.objective.shapes import GroupIds, PerSequence, PerToken, TokenMask

__all__ = [
    "QUADRANTS",
    "TOP_FRACTIONS",
    "Moments",
    "covariance_metrics",
    "moments",
    "quadrants",
    "quota",
    "rewarded_tokens",
    "select_top",
    "select_window",
    "selection_metrics",
    "sequence_covariance",
    "token_covariance",
    "top_means",
]

TOP_FRACTIONS = (0.0002, 0.002, 0.02, 0.2, 0.5)
"""The rows of the paper's table 1."""

QUADRANTS = ("rewarded_likely", "rewarded_unlikely", "punished_likely", "punished_unlikely")
"""Advantage above its mean or below, log-prob above its mean or below. The first and the last have
a positive covariance and lower the entropy: choices that are reinforced, and mistakes that are
unlearnt. The other two raise it."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over tokens, in float64: `a + b` are the moments of both sets of tokens together."""

    count: Tensor
    logprob: Tensor
    advantage: Tensor

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            self.count + other.count,
            self.logprob + other.logprob,
            self.advantage + other.advantage,
        )


@torch.no_grad()
def moments(logprob: PerToken, advantage: PerToken, mask: TokenMask) -> Moments:
    """The moments of the masked tokens; those of log-prob -inf, which no policy draws, are left out."""
    counted = mask & logprob.isfinite()
    return Moments(
        count=counted.sum().double(),
        logprob=torch.where(counted, logprob.double(), 0.0).sum(),
        advantage=torch.where(counted, advantage.double(), 0.0).sum(),
    )


@torch.no_grad()
def token_covariance(
    logprob: PerToken, advantage: PerToken, mask: TokenMask, of: Moments | None = None
) -> PerToken:
    """The centred cross product of each token, 0 where masked; its token mean is the covariance.

    A token whose log-prob is not finite has none: it would make every mean infinite.
    `of` are the moments of the whole mini-batch; without it these tokens are the mini-batch.
    """
    total = moments(logprob, advantage, mask) if of is None else of
    count = total.count.clamp(min=1)
    product = (logprob.double() - total.logprob / count) * (
        advantage.double() - total.advantage / count
    )
    return torch.where(mask & logprob.isfinite(), product, 0.0).to(logprob.dtype)


@torch.no_grad()
def sequence_covariance(
    logprob: PerToken,
    advantage: PerToken,
    mask: TokenMask,
    groups: GroupIds,
    *,
    times_probability: bool = False,
) -> PerSequence:
    """Covariance over each response's group of length-normalised log-prob and advantage, (B,).

    The states are prompts, the actions whole responses (paper, section 3): l is the mean log-prob
    of a response's tokens, A its advantage (the mean over its tokens), and the result

        mean over the group of (l - mean l) (A - mean A)      natural policy gradient, theorem 2

    stands at every response of the group. `times_probability` puts exp(l) A in place of A:
    vanilla policy gradient, theorem 1, equation 8.
    """
    score = sequence_means(logprob.double(), mask)
    value = sequence_means(advantage.double(), mask)
    if times_probability:
        value = score.exp() * value
    names, index = torch.unique(groups, return_inverse=True)
    count = score.new_zeros(len(names)).index_add_(0, index, torch.ones_like(score))

    def means(values: PerSequence) -> PerSequence:
        return (score.new_zeros(len(names)).index_add_(0, index, values) / count)[index]

    return means((score - means(score)) * (value - means(value))).to(logprob.dtype)


def quota(count: int, fraction: float, at_least: int = 0) -> int:
    """floor(fraction x count), at least `at_least` and at most `count`.

    The paper's rule is `at_least=0`; the public code uses 1. The small addition keeps products
    such as 0.29 x 100, which is 28.999... in floating point, from losing a token.
    """
    return min(count, max(at_least, int(fraction * count + 1e-9)))


@torch.no_grad()
def select_top(
    covariance: PerToken, mask: TokenMask, *, kl_fraction: float = 2e-3, at_least: int = 0
) -> TokenMask:
    """True at the floor(kl_fraction x N) tokens of largest covariance (KL-Cov, equation 13).

    Among equal covariances the token that comes first in row order is taken. Beyond
    `at_least`, none is whose covariance is 0, as where all rewards are equal: it does not move
    the entropy.
    """
    values = covariance[mask]
    wanted = quota(values.numel(), kl_fraction, at_least)
    chosen = values.argsort(descending=True, stable=True)[:wanted]
    moving = torch.cat([chosen[:at_least], chosen[at_least:][values[chosen[at_least:]] != 0]])
    return scatter_selection(moving, mask)


@torch.no_grad()
def select_window(
    covariance: PerToken,
    mask: TokenMask,
    *,
    generator: torch.Generator,
    clip_fraction: float = 2e-4,
    covariance_low: float = 1.0,
    covariance_high: float = 5.0,
    at_least: int = 0,
) -> TokenMask:
    """True at floor(clip_fraction x N) random tokens of the window (Clip-Cov, equation 11).

    The window is covariance_low <= Cov_i <= covariance_high; fewer tokens are taken where it
    holds fewer. The draw is uniform, from a CPU `generator`, over the window's tokens in row
    order: padding and device do not change it.
    """
    values = covariance[mask]
    candidates = ((values >= covariance_low) & (values <= covariance_high)).nonzero().squeeze(-1)
    wanted = quota(values.numel(), clip_fraction, at_least)
    order = torch.randperm(candidates.numel(), generator=generator)[:wanted]
    return scatter_selection(candidates[order.to(candidates.device)], mask)


def scatter_selection(chosen: Tensor, mask: TokenMask) -> TokenMask:
    """The mask of the chosen tokens, given by their positions among the masked ones."""
    flags = torch.zeros(int(mask.sum()), dtype=torch.bool, device=mask.device)
    flags[chosen] = True
    return torch.zeros_like(mask).masked_scatter(mask, flags)


@torch.no_grad()
def top_means(
    covariance: PerToken,
    mask: TokenMask,
    fractions: Sequence[float],
    of: PerToken | None = None,
) -> list[Tensor]:
    """Mean covariance of the top fraction of tokens, for each fraction (paper, table 1); or the
    mean `of` other values of these tokens.

    A fraction of the batch that is less than one token is NaN: there is nothing to average.
    """
    order = covariance[mask].argsort(descending=True, stable=True)
    values = (covariance if of is None else of)[mask][order]
    return [values[: quota(values.numel(), fraction)].mean() for fraction in fractions]


def rewarded_tokens(advantage: PerToken, mask: TokenMask) -> TokenMask:
    """The tokens (B, T) of a mini-batch whose advantage is above the mean over it."""
    return mask & (advantage > masked_mean(advantage, mask))


def quadrants(covariance: PerToken, rewarded: TokenMask, mask: TokenMask) -> dict[str, TokenMask]:
    """The tokens (B, T) by the signs of the covariance's two factors, by the names in QUADRANTS.

    Tokens whose covariance is 0 are in none of them.
    """
    likely = (covariance > 0) == rewarded  # the sign of a product is that of its factors
    masks = (rewarded & likely, rewarded & ~likely, ~rewarded & likely, ~rewarded & ~likely)
    some = mask & (covariance != 0)
    return {name: some & of_it for name, of_it in zip(QUADRANTS, masks, strict=True)}


def covariance_metrics(
    covariance: PerToken, rewarded: TokenMask, mask: TokenMask
) -> dict[str, float]:
    """How the covariance is distributed over the tokens: its mean; that of the top fractions, and
    which share of these is rewarded; the part of the mean that comes from each quadrant, and the
    share of tokens in it."""
    metrics = {"covariance/mean": masked_mean(covariance, mask).item()}
    for name, values in (("covariance", covariance), ("rewarded", rewarded.float())):
        tops = top_means(covariance, mask, TOP_FRACTIONS, of=values)
        metrics |= {
            f"{name}/top_{f}": top.item() for f, top in zip(TOP_FRACTIONS, tops, strict=True)
        }
    for name, of_it in quadrants(covariance, rewarded, mask).items():
        part = torch.where(of_it, covariance, 0.0)
        metrics[f"covariance/part_{name}"] = masked_mean(part, mask).item()
        metrics[f"tokens/{name}"] = masked_mean(of_it.float(), mask).item()
    return metrics


def selection_metrics(
    covariance: PerToken, rewarded: TokenMask, selected: TokenMask, mask: TokenMask
) -> dict[str, float]:
    """How the covariance is distributed, how many tokens were selected, and which share of these
    is rewarded."""
    return {
        **covariance_metrics(covariance, rewarded, mask),
        "selected/tokens": int(selected.sum()),
        "selected/fraction": masked_mean(selected.float(), mask).item(),
        "selected/rewarded": masked_mean(rewarded.float(), selected).item(),
    }
