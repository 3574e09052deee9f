"""The entropy mechanism, measured on a rollout: covariance of whole responses, by difficulty."""

import torch
from torch import Tensor

from isentrope.objective.advantages import group_means
from isentrope.objective.covariance import sequence_covariance
from isentrope.training.sampler import Rollout

__all__ = ["DIFFICULTIES", "mechanism_metrics"]

DIFFICULTIES = {"hard": (0.0, 0.25), "middle": (0.25, 0.75), "easy": (0.75, 1.0)}
"""Bounds of the accuracy of a problem's responses; the middle one excludes them."""


def mechanism_metrics(
    rollout: Rollout, advantage: Tensor, rewards: Tensor, groups: Tensor
) -> dict[str, float]:
    """The covariance of the paper's section 3 over each problem's responses, mean over problems.

    `covariance/sequence` with A (theorem 2) and `covariance/sequence_pi` with pi A (theorem 1,
    equation 8), and each for hard, middle and easy problems. On policy by construction: the
    log-probs are those of the policy that sampled.
    """
    accuracy = group_means(rewards, groups)
    weight = 1 / torch.unique(groups, return_inverse=True, return_counts=True)[2].float()
    weight = weight[torch.unique(groups, return_inverse=True)[1]]  # each problem counts alike
    metrics = {}
    for name, times_probability in (("sequence", False), ("sequence_pi", True)):
        covariance = sequence_covariance(
            rollout.logprob, advantage, rollout.mask, groups, times_probability=times_probability
        )
        metrics[f"covariance/{name}"] = weighted_mean(covariance, weight)
        for difficulty in DIFFICULTIES:
            rows = of_difficulty(accuracy, difficulty)
            metrics[f"covariance/{name}_{difficulty}"] = weighted_mean(
                covariance[rows], weight[rows]
            )
    return metrics


def of_difficulty(accuracy: Tensor, difficulty: str) -> Tensor:
    """Which responses (B,) belong to problems of that difficulty."""
    low, high = DIFFICULTIES[difficulty]
    if difficulty == "middle":
        return (accuracy > low) & (accuracy < high)
    return (accuracy >= low) & (accuracy <= high)


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """NaN, which is logged as null, where there is none."""
    return ((values * weight).sum() / weight.sum()).item()
