"""One rollout with its rewards: what a step learns from."""

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isentrope.config import TrainConfig
from isentrope.objective.advantages import zero_signal
from isentrope.objective.masking import masked_mean, sequence_means
from isentrope.tasks.problem import Problem, Task
from isentrope.training.model import LanguageModel
from isentrope.training.sampler import Rollout, sample
from isentrope.training.streams import stream

__all__ = ["Experience", "collect", "score", "scored_tokens"]

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

    @property
    def group_count(self) -> int:
        """Number of problems."""
        return len(self.groups.unique())

    def learnable(self, drop_zero_signal: bool) -> "Experience":
        """The judged responses, without the groups of equal rewards if these are dropped."""
        kept = ~self.rewards.isnan()
        if drop_zero_signal:
            kept = kept & ~zero_signal(self.rewards, self.groups)
        rows = kept.nonzero().squeeze(-1)
        return replace(
            self,
            rollout=self.rollout.rows(rows).trimmed(),
            rewards=self.rewards[rows],
            groups=self.groups[rows],
        )

    def metrics(self) -> dict[str, float]:
        """Entropy, reward, groups and lengths."""
        rollout = self.rollout
        lengths = rollout.mask.sum(-1)
        equal = zero_signal(self.rewards, self.groups)
        positive = self.rewards.nan_to_num(nan=0.0) > 0
        return {
            "entropy/token_mean": masked_mean(rollout.entropy, rollout.mask).item(),
            "entropy/sequence_mean": sequence_means(rollout.entropy, rollout.mask).mean().item(),
            "reward/mean": self.rewards.nanmean().item(),
            "groups/all_right": (equal & positive).float().mean().item(),
            "groups/all_wrong": (equal & ~positive).float().mean().item(),
            "length/mean": lengths.float().mean().item(),
            "length/max": int(lengths.max()),
            "truncated": rollout.truncated.float().mean().item(),
        }


def collect(model: LanguageModel, task: Task, config: TrainConfig, step: int) -> Experience:
    """Samples responses to the step's problems and has them verified."""
    settings = config.rollout
    first = step * settings.prompts
    problems = [task.train(first + i) for i in range(settings.prompts)]
    started = time.perf_counter()
    rollout = sample(
        model,
        [model.encode(problem.prompt) for problem in problems],
        samples=settings.samples,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        generator=stream(config.seed, "sampling", step),
        rows=settings.rows,
    )
    sampled = time.perf_counter()
    rewards = score(model, task, problems, rollout)
    seconds = {
        "time/rollout_s": sampled - started,
        "time/verify_s": time.perf_counter() - sampled,
    }
    groups = torch.arange(len(problems)).repeat_interleave(settings.samples)
    return Experience(rollout, rewards, groups, seconds)


def score(model: LanguageModel, task: Task, problems: list[Problem], rollout: Rollout) -> Tensor:
    """Rewards (B,) of the responses to the problems, side by side; NaN where unjudgeable."""
    samples = len(rollout.tokens) // len(problems)
    asked = [problem for problem in problems for _ in range(samples)]
    rows = zip(rollout.tokens, rollout.mask, strict=True)
    texts = [model.decode(tokens[mask].tolist()) for tokens, mask in rows]
    scores = [verdict.score for verdict in task.verify(asked, texts)]
    return torch.tensor([float("nan") if s is None else s for s in scores])


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
