"""Rewards from verifiers, of a whole rollout or of its parts while the next ones are sampled."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch
from torch import Tensor

from isentrope.tasks.problem import Problem, Task
from isentrope.training.model import LanguageModel
from isentrope.training.sampler import Rollout

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
    """Scores the parts of a rollout in one background thread, in order; a context manager.

    Nothing else may use the tokenizer until `rewards` has returned: it is not made for two threads.
    """

    def __init__(
        self, model: LanguageModel, task: Task, problems: list[Problem], samples: int
    ) -> None:
        self.model = model
        self.task = task
        self.waiting = problems
        self.samples = samples
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.scores: list[Future[Tensor]] = []

    def add(self, part: Rollout) -> None:
        """Has the responses scored to the next of the problems."""
        count = len(part.tokens) // self.samples
        problems, self.waiting = self.waiting[:count], self.waiting[count:]
        self.scores.append(self.thread.submit(score, self.model, self.task, problems, part))

    def rewards(self, rollout: Rollout) -> Tensor:
        """Rewards (B,) of the whole rollout, with those parts that have not been added."""
        if self.waiting:
            self.add(
                rollout.rows(slice(len(rollout.tokens) - len(self.waiting) * self.samples, None))
            )
        return torch.cat([scores.result() for scores in self.scores])

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thread.shutdown(cancel_futures=True)
