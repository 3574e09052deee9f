"""Responses are verified while the next ones are sampled, with the same rewards."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from isentrope.config import TrainConfig
from isentrope.policy import sampler
from isentrope.policy.model import LanguageModel
from isentrope.tasks.countdown import Countdown
from isentrope.tasks.problem import Problem
from isentrope.training.experience import collect
from isentrope.training.scoring import Scorer, score
from isentrope.verifiers.verdict import Verdict


class Watched:
    """Keeps how many responses it was asked about; waits for `event` in the first call."""

    name = "countdown"

    def __init__(self) -> None:
        self.task = Countdown(seed=0)
        self.train, self.test = self.task.train, self.task.test
        self.right_score = self.task.right_score
        self.calls: list[int] = []
        self.event = threading.Event()
        self.overlapped = False

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        if not self.calls:
            self.overlapped = self.event.wait(20)
        self.calls.append(len(completions))
        return self.task.verify(problems, completions)


def with_rows(tiny: TrainConfig, rows: int) -> TrainConfig:
    return replace(tiny, rollout=replace(tiny.rollout, rows=rows))


def test_the_first_part_is_verified_while_the_second_is_sampled(
    model: LanguageModel, tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = collect(model, Countdown(seed=0), tiny, 0)
    task, sampled, plain = Watched(), [], sampler.sample_groups

    def sample_groups(*arguments: Any) -> sampler.Rollout:
        if sampled:
            task.event.set()
        sampled.append(1)
        return plain(*arguments)

    monkeypatch.setattr(sampler, "sample_groups", sample_groups)
    experience = collect(model, task, with_rows(tiny, 20), 0)
    assert task.overlapped
    assert task.calls == [20, 20, 8]  # 12 problems x 4 samples, five groups at once
    assert torch.equal(experience.rewards, expected.rewards)
    assert torch.equal(experience.rollout.tokens, expected.rollout.tokens)
    assert experience.rewards.any()


def test_a_sampler_that_tells_of_no_part(model: LanguageModel, tiny: TrainConfig) -> None:
    task = Countdown(seed=0)
    rollout = collect(model, task, tiny, 0).rollout
    problems = [task.train(i) for i in range(12)]
    expected = score(model, task, problems, rollout)
    for told in (0, 8):
        with Scorer(model, task, problems, 4) as scorer:
            if told:
                scorer.add(rollout.rows(slice(4, 4 + told)), [1, 2])
            assert torch.equal(scorer.rewards(rollout), expected)


class Broken(Countdown):
    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        raise ZeroDivisionError("in the verifier")


def test_an_error_of_the_verifier_ends_the_step(model: LanguageModel, tiny: TrainConfig) -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="in the verifier"):
        collect(model, Broken(seed=0), with_rows(tiny, 20), 0)
    assert threading.active_count() == before
