"""Rewards from verifiers, of a whole rollout or of its parts while the next ones are sampled."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch
from torch import Tensor

from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import Rollout
from isentrope.tasks.problem import Problem, Task

__all__ = ["Scorer", "score"]


def score(model: LanguageModel, task: Task, problems: list[Problem], rollout: Rollout) -> Tensor:
    """Rewards (B,) of the responses to the problems, side by side; NaN where unjudgeable."""
    samples = len(rollout.tokens) // len(problems)
    asked = [problem for problem in problems for _ in range(samples)]
    rows = zip(rollout.tokens, rollout.mask, strict=True)
    texts = [model.decode(tokens[mask].tolist()) for tokens, mask in rows]
    scores = [verdict.score for verdict in task.verify(asked, texts)]
    return torch.tensor([float("nan") if s is None else s for s in scores])


class Scorer:
    """Scores the parts of a rollout in one background thread; a context manager.

    Nothing else may use the tokenizer until `rewards` has returned: it is not made for two threads.
    """

    def __init__(
        self, model: LanguageModel, task: Task, problems: list[Problem], samples: int
    ) -> None:
        self.model = model
        self.task = task
        self.problems = problems
        self.samples = samples
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.scores: list[tuple[Tensor, Future[Tensor]]] = []

    def add(self, part: Rollout, numbers: Sequence[int]) -> None:
        """Has the responses to the problems of these numbers scored."""
        problems = [self.problems[number] for number in numbers]
        found = self.thread.submit(score, self.model, self.task, problems, part)
        self.scores.append((self.places(numbers), found))

    def places(self, numbers: Sequence[int]) -> Tensor:
        """The rows of the whole rollout that belong to these problems."""
        first = torch.tensor(numbers, dtype=torch.long)[:, None] * self.samples
        return (first + torch.arange(self.samples)).flatten()

    def rewards(self, rollout: Rollout) -> Tensor:
        """Rewards (B,) of the whole rollout, with those parts that have not been added."""
        missing = torch.ones(len(rollout.tokens), dtype=torch.bool)
        for rows, _ in self.scores:
            missing[rows] = False
        left = missing.view(-1, self.samples).all(-1).nonzero().flatten().tolist()
        if left:
            self.add(rollout.rows(self.places(left)), left)
        rewards = torch.empty(len(rollout.tokens))
        for rows, scores in self.scores:
            rewards[rows] = scores.result()
        return rewards

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thread.shutdown(cancel_futures=True)
