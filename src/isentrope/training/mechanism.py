"""The entropy mechanism, measured on a rollout: covariance of whole responses, by difficulty of
the problem, and of tokens, by their class."""

import torch
from torch import Tensor

from isentrope.config import TrainConfig
from isentrope.errors import DataError
from isentrope.objective.advantages import group_means
from isentrope.objective.covariance import (
    covariance_metrics,
    rewarded_tokens,
    sequence_covariance,
    token_covariance,
)
from isentrope.objective.masking import masked_mean
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.sampler import Rollout
from isentrope.policy.token_classes import CLASSES, token_classes
from isentrope.tasks.registry import task_of
from isentrope.training.experience import collect, keep
from isentrope.training.objective import make_objective

__all__ = ["DIFFICULTIES", "class_metrics", "mechanism_metrics", "probe"]

DIFFICULTIES = {"hard": (0.0, 0.25), "middle": (0.25, 0.75), "easy": (0.75, 1.0)}
"""Bounds of the accuracy of a problem's responses; the middle one excludes them."""


def probe(config: TrainConfig) -> dict[str, float]:
    """What the first step of such a run would log before its update, for a model as it is."""
    objective = make_objective(config.objective)
    task = task_of(config)
    model = load_model(config.model)
    experience = collect(model, task, config, 0)
    kept = keep(experience, config)
    if not kept.group_count:
        raise DataError(
            f"no group of {config.rollout.samples} responses has both right and wrong ones; the "
            "covariance needs some: take more samples, other problems or another model"
        )
    rollout, groups = kept.rollout, kept.groups
    advantage = objective.credit(kept.rewards, groups, rollout.mask)
    covariance = token_covariance(rollout.logprob, advantage, rollout.mask)
    accuracy = group_means(kept.rewards, groups)
    counts = {
        f"problems/{name}": float(len(groups[of_difficulty(accuracy, name)].unique()))
        for name in DIFFICULTIES
    }
    return {
        **experience.metrics(),
        "groups/used": kept.group_count,
        **covariance_metrics(covariance, rewarded_tokens(advantage, rollout.mask), rollout.mask),
        **class_metrics(model, rollout, covariance),
        **counts,
        **mechanism_metrics(rollout, advantage, kept.rewards, groups),
    }


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


def class_metrics(model: LanguageModel, rollout: Rollout, covariance: Tensor) -> dict[str, float]:
    """The mean covariance of the tokens of each class, and the share of tokens that are of it.

    Share times mean, summed over the classes, is the mean covariance of all tokens.
    """
    classes = token_classes(model, rollout.tokens)
    metrics = {}
    for number, name in enumerate(CLASSES):
        of_class = rollout.mask & (classes == number)
        metrics[f"covariance/class_{name}"] = masked_mean(covariance, of_class).item()
        metrics[f"tokens/class_{name}"] = masked_mean(of_class.float(), rollout.mask).item()
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
