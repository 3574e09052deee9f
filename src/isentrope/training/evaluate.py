"""Reward and entropy of one set of weights, on held-out problems."""

import math
from collections.abc import Callable

import torch

from isentrope.config import EvaluationConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.evaluation.estimators import bootstrap_interval, pass_at_k
from isentrope.objective.entropy import entropy_metrics
from isentrope.objective.streams import stream
from isentrope.policy.filtering import Filter
from isentrope.policy.model import LanguageModel
from isentrope.policy.samplers import LocalSampler, Sampler
from isentrope.tasks.problem import Problem, Task
from isentrope.training.scoring import score

__all__ = ["check_held_out", "evaluate", "held_out"]

DEFAULT = EvaluationConfig().problems


def evaluate(
    model: LanguageModel,
    task: Task,
    config: TrainConfig,
    step: int,
    sampler: Sampler | None = None,
) -> dict[str, float | str]:
    """One row of evaluations.jsonl; unjudged responses stay out of the averages.

    The random numbers are the same at every step, so two evaluations differ by the weights only.
    Without a sampler the model samples by itself.
    """
    settings = config.evaluation
    problems = held_out(task, settings.problems)
    sampler = sampler or LocalSampler(model, config.rollout.rows)
    rollout = sampler.sample(
        [model.encode(problem.prompt) for problem in problems],
        samples=settings.samples,
        temperature=settings.temperature,
        max_new_tokens=config.rollout.max_new_tokens,
        generator=stream(config.seed, "evaluation"),
        keep=Filter(settings.top_p, settings.top_k, settings.min_p),
    )
    groups = torch.arange(len(problems)).repeat_interleave(settings.samples)
    rewards = score(model, task, problems, rollout).view(len(problems), settings.samples)
    average = bootstrap_interval(rewards.nanmean(-1).tolist(), seed=config.seed)
    judged, right = (
        (~rewards.isnan()).sum(-1).tolist(),
        (rewards >= task.right_score).sum(-1).tolist(),
    )
    passed = [pass_at_k(n, count, n) for n, count in zip(judged, right, strict=True) if n]
    return {
        "step": step,
        "source": task.name,
        "k": settings.samples,
        "problems": len(problems),
        "samples": rewards.numel(),
        "reward/avg": average.mean,
        "reward/avg_low": average.low,
        "reward/avg_high": average.high,
        "reward/pass": sum(passed) / len(passed) if passed else math.nan,
        **entropy_metrics(rollout.entropy, rollout.mask, groups),
        "length/mean": rollout.mask.sum(-1).float().mean().item(),
        "truncated": rollout.truncated.float().mean().item(),
    }


def held_out(task: Task, count: int) -> list[Problem]:
    """The first test problems, all where there are fewer than the default; ConfigError where there
    are not as many as are wanted."""
    problems = list(task.test())
    if len(problems) < count and (count != DEFAULT or not problems):
        raise ConfigError(
            f"evaluation.problems is {count}, but {task.name} has {len(problems)} test problems; "
            "lower it, or give the task more"
        )
    return problems[:count]


def check_held_out(task: Task, config: TrainConfig, note: Callable[[str], None]) -> None:
    """Says now, and not after hours, that there are fewer test problems than are wanted."""
    count = config.evaluation.problems
    there = len(held_out(task, count))
    if there < count:
        note(f"{task.name} has {there} test problems; all of them are evaluated, not {count}")
