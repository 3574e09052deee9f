"""Tasks of reasoning-gym: endless generated problems, judged by the generator's own scorer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from typing import Protocol

from isentrope.config import Scalar
from isentrope.errors import ConfigError, require
from isentrope.tasks.presets import fill
from isentrope.tasks.problem import Problem
from isentrope.verifiers.extraction import extract_answer
from isentrope.verifiers.pool import Status, WorkerPool
from isentrope.verifiers.verdict import RIGHT_SCORE, Outcome, Verdict

__all__ = ["ReasoningTask", "score"]

# Loaded with this module, so that workers have it before their time is taken.
gym = require("reasoning_gym", "gym")

TEMPLATE = "{problem}\n\nReason step by step, and put your final answer within \\boxed{{}}."
LINE_TEMPLATE = "{problem}\nAnswer:"
SIZE = 2**31 - 1  # problems are made when asked for, each from the seed and its index
TIMEOUT_S = 10.0
TEST_SEED_OFFSET = 1_000_003


class Generator(Protocol):
    """What is used of reasoning-gym's data sets."""

    def __getitem__(self, index: int) -> dict[str, object]:
        """The entry at `index`: question, answer, metadata."""
        ...

    def score_answer(self, answer: str, entry: dict[str, object]) -> float:
        """The score of an answer, in [0, 1]."""
        ...


class ReasoningTask:
    """The generator NAME of reasoning-gym with its `options`; test problems have another seed.

    `template` is the prompt with {problem} in it; `answer` is where a completion's answer is looked
    for: in the box, or, where the prompt ends in "Answer:", on the first line.
    """

    right_score = RIGHT_SCORE

    def __init__(
        self,
        name: str,
        *,
        seed: int = 0,
        test_size: int = 100,
        workers: int = 2,
        template: str | None = None,
        answer: str = "boxed",
        options: Mapping[str, Scalar] | None = None,
    ) -> None:
        self.name = f"reasoning_gym:{name}"
        self.generator = name
        self.options = json.dumps(dict(options or {}))
        self.seed = seed
        self.test_size = test_size
        self.template = template or (LINE_TEMPLATE if answer == "line" else TEMPLATE)
        self.answer = answer
        self.pool = WorkerPool(
            "isentrope.tasks.reasoning:score", workers=workers, timeout_s=TIMEOUT_S
        )
        generator(name, seed, self.options)

    def train(self, index: int) -> Problem:
        """The training problem at `index`."""
        return self.problem(self.seed, index)

    def test(self) -> Sequence[Problem]:
        """Problems of a seed that training does not use."""
        seed = self.seed + TEST_SEED_OFFSET
        return [self.problem(seed, index) for index in range(self.test_size)]

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The scorer's verdicts, partial scores included, from processes that can be killed."""
        answers = [extract_answer(completion, (self.answer,)) for completion in completions]
        replies = self.pool.map(
            [[p.source, self.options, answer] for p, answer in zip(problems, answers, strict=True)]
        )
        verdicts = []
        for answer, reply in zip(answers, replies, strict=True):
            if answer is None:
                verdict = Verdict(0.0, Outcome.UNPARSABLE, "no final answer in the form asked for")
            elif reply.status == Status.DONE and isinstance(reply.value, float):
                outcome = Outcome.RIGHT if reply.value >= self.right_score else Outcome.WRONG
                verdict = Verdict(reply.value, outcome)
            else:
                late = reply.status == Status.TIMEOUT
                verdict = Verdict(0.0, Outcome.TIMEOUT if late else Outcome.ERROR, reply.detail)
            verdicts.append(verdict)
        return verdicts

    def problem(self, seed: int, index: int) -> Problem:
        """The problem that this seed and index make; its source says how to make it again."""
        entry = generator(self.generator, seed, self.options)[index]
        return Problem(
            fill(self.template, str(entry["question"]).strip()),
            str(entry["answer"]),
            f"reasoning_gym/{self.generator}/{seed}/{index}",
        )


def score(request: object) -> object:
    """The score of [source, options of the generator, answer], in a worker process."""
    assert isinstance(request, list)
    source, options, answer = request
    if answer is None:
        return 0.0
    _, name, seed, index = str(source).split("/")
    dataset = generator(name, int(seed), str(options))
    return float(dataset.score_answer(answer, dataset[int(index)]))


@lru_cache(maxsize=64)
def generator(name: str, seed: int, options: str = "{}") -> Generator:
    """The generator with its options (JSON), or a ConfigError that says what it does not take."""
    if name not in gym.factory.DATASETS:
        near = get_close_matches(name, gym.factory.DATASETS, n=3, cutoff=0.4)
        advice = f"did you mean {' or '.join(near)}?" if near else "see reasoning-gym's list"
        raise ConfigError(f"reasoning-gym has no generator {name!r}; {advice}")
    try:
        return gym.create_dataset(name, size=SIZE, seed=seed, **json.loads(options))
    except (TypeError, ValueError, AssertionError) as error:
        known = [item.name for item in fields(gym.factory.DATASETS[name][1])]
        raise ConfigError(
            f"reasoning_gym:{name} does not take the options {options}: {error}; it has: "
            f"{', '.join(known)}"
        ) from error
