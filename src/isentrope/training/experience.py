"""One rollout with its rewards: what a step learns from."""

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from isentrope.config import TrainConfig
from isentrope.objective.advantages import group_means, zero_signal
from isentrope.objective.entropy import entropy_metrics
from isentrope.objective.streams import stream
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import Rollout, join_rollouts
from isentrope.policy.samplers import LocalSampler, Sampler
from isentrope.tasks.problem import Task
from isentrope.training.scoring import Scorer

__all__ = ["Experience", "collect", "keep", "scored_tokens"]

SAVED_SAMPLES = 64
"""Completions in a file of samples/: enough to read, little to store."""


@dataclass(frozen=True, slots=True)
class Experience:
    """Responses to problems, and what the verifier says of them."""

    rollout: Rollout
    rewards: Tensor
    """(B,); NaN where a response could not be judged."""
    groups: Tensor
    """(B,) number of the problem."""
    seconds: dict[str, float]
    right_score: float = 1.0
    """Reward from which on a response is right."""

    @property
    def group_count(self) -> int:
        """Number of problems."""
        return len(self.groups.unique())

    def learnable(
        self, drop_zero_signal: bool, accuracy: tuple[float, float] = (-inf, inf)
    ) -> "Experience":
        """The judged responses, without the groups of equal rewards if these are dropped, and
        without those whose mean reward is outside the bounds."""
        kept = ~self.rewards.isnan()
        if drop_zero_signal:
            kept = kept & ~zero_signal(self.rewards, self.groups)
        means = group_means(self.rewards, self.groups)
        kept = kept & (means >= accuracy[0]) & (means <= accuracy[1])
        return self.rows(kept.nonzero().squeeze(-1))

    def first_groups(self, count: int) -> "Experience":
        """The responses of the first `count` problems."""
        return self.rows(
            torch.isin(self.groups, self.groups.unique()[:count]).nonzero().squeeze(-1)
        )

    def rows(self, index: Tensor) -> "Experience":
        """Some of the responses."""
        return replace(
            self,
            rollout=self.rollout.rows(index).trimmed(),
            rewards=self.rewards[index],
            groups=self.groups[index],
        )

    def metrics(self) -> dict[str, float]:
        """Entropy, reward, groups and lengths."""
        rollout = self.rollout
        lengths = rollout.mask.sum(-1)
        equal = zero_signal(self.rewards, self.groups)
        common = group_means(self.rewards, self.groups)  # NaN where none of a group was judged
        unjudged = self.rewards.isnan().float().mean().item()
        return {
            **entropy_metrics(rollout.entropy, rollout.mask, self.groups),
            "reward/mean": self.rewards.nanmean().item(),
            **({"reward/unjudged": unjudged} if unjudged else {}),
            "groups/all_right": (equal & (common >= self.right_score)).float().mean().item(),
            "groups/all_wrong": (equal & (common < self.right_score)).float().mean().item(),
            "length/mean": lengths.float().mean().item(),
            "length/max": int(lengths.max()),
            "truncated": rollout.truncated.float().mean().item(),
        }


def collect(
    model: LanguageModel,
    task: Task,
    config: TrainConfig,
    step: int,
    first: int | None = None,
    sampler: Sampler | None = None,
) -> Experience:
    """Samples responses to the step's problems and has them verified.

    Without a sampler the model samples by itself. `first` is the number of the first problem. With
    dynamic sampling further problems are drawn, as many a round as the first time, until
    `rollout.prompts` groups carry signal.
    """
    settings = config.rollout
    first = step * settings.prompts if first is None else first
    sampler = sampler or LocalSampler(model, settings.rows)
    experience = collect_round(model, sampler, task, config, step, first, 0)
    for number in range(1, settings.max_rounds):
        if keep(experience, config).group_count >= settings.prompts:
            break
        more = collect_round(model, sampler, task, config, step, first, number)
        experience = join(experience, more)
    return experience


def keep(experience: Experience, config: TrainConfig) -> Experience:
    """What of it the step learns from: groups with signal, at most `rollout.prompts` of them."""
    bounds = (-inf, inf)
    if config.objective.advantage == "prime":
        bounds = (config.prime.accuracy_low, config.prime.accuracy_high)
    kept = experience.learnable(config.objective.drop_zero_signal, bounds)
    return kept.first_groups(config.rollout.prompts) if config.rollout.max_rounds > 1 else kept


def collect_round(
    model: LanguageModel,
    sampler: Sampler,
    task: Task,
    config: TrainConfig,
    step: int,
    first: int,
    number: int,
) -> Experience:
    """The responses to `rollout.prompts` problems: round `number` of those that start at `first`."""
    settings = config.rollout
    names = range(number * settings.prompts, (number + 1) * settings.prompts)
    problems = [task.train(first + i) for i in names]
    started = time.perf_counter()
    with Scorer(model, task, problems, settings.samples) as scorer:
        rollout = sampler.sample(
            [model.encode(problem.prompt) for problem in problems],
            samples=settings.samples,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            generator=stream(config.seed, f"sampling {number}" if number else "sampling", step),
            on_part=scorer.add,
        )
        sampled = time.perf_counter()
        rewards = scorer.rewards(rollout)
    seconds = {
        "time/rollout_s": sampled - started,
        "time/verify_s": time.perf_counter() - sampled,
    }
    groups = torch.tensor(names).repeat_interleave(settings.samples)
    return Experience(rollout, rewards, groups, seconds, task.right_score)


def join(one: Experience, other: Experience) -> Experience:
    """The responses of both."""
    return Experience(
        join_rollouts([one.rollout, other.rollout]),
        torch.cat([one.rewards, other.rewards]),
        torch.cat([one.groups, other.groups]),
        {name: one.seconds[name] + other.seconds[name] for name in one.seconds},
        one.right_score,
    )


def scored_tokens(
    model: LanguageModel,
    experience: Experience,
    advantage: Tensor,
    covariance: Tensor,
    selected: Tensor,
) -> list[dict[str, object]]:
    """The first responses with the numbers of each of their tokens."""
    rollout = experience.rollout
    rows = []
    for row in range(min(SAVED_SAMPLES, len(rollout.tokens))):
        kept = rollout.mask[row]
        tokens = rollout.tokens[row][kept].tolist()
        rows.append(
            {
                "prompt": model.decode(rollout.prompts[row][rollout.prompt_mask[row]].tolist()),
                "completion": model.decode(tokens),
                "tokens": [model.tokenizer.decode([token]) for token in tokens],
                "logprob": rollout.logprob[row][kept].tolist(),
                "entropy": rollout.entropy[row][kept].tolist(),
                "covariance": covariance[row][kept].tolist(),
                "selected": selected[row][kept].tolist(),
                "advantage": advantage[row, 0].item(),
                "reward": experience.rewards[row].item(),
            }
        )
    return rows
