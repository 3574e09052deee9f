"""Tasks of reasoning-gym: endless generated problems, judged by the generator's own scorer."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from isentrope.errors import ConfigError, require
from isentrope.tasks.problem import Problem
from isentrope.verifiers.extraction import extract_answer
from isentrope.verifiers.pool import Status, WorkerPool
from isentrope.verifiers.verdict import Outcome, Verdict

__all__ = ["ReasoningTask", "score"]

# Loaded with this module, so that workers have it before their time is taken.
gym = require("reasoning_gym", "gym")

TEMPLATE = "{problem}\n\nReason step by step, and put your final answer within \\boxed{{}}."
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
    """The generator NAME of reasoning-gym with its defaults; test problems have another seed."""

    def __init__(self, name: str, *, seed: int = 0, test_size: int = 100, workers: int = 2) -> None:
        self.name = f"reasoning_gym:{name}"
        self.generator = name
        self.seed = seed
        self.test_size = test_size
        self.pool = WorkerPool(
            "isentrope.tasks.reasoning:score", workers=workers, timeout_s=TIMEOUT_S
        )
        generator(name, seed)

    def train(self, index: int) -> Problem:
        """The training problem at `index`."""
        return self.problem(self.seed, index)

    def test(self) -> Sequence[Problem]:
        """Problems of a seed that training does not use."""
        seed = self.seed + TEST_SEED_OFFSET
        return [self.problem(seed, index) for index in range(self.test_size)]

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The scorer's verdicts, partial scores included, from processes that can be killed."""
        answers = [extract_answer(completion) for completion in completions]
        replies = self.pool.map(
            [[p.source, answer] for p, answer in zip(problems, answers, strict=True)]
        )
        verdicts = []
        for answer, reply in zip(answers, replies, strict=True):
            if answer is None:
                verdict = Verdict(0.0, Outcome.UNPARSABLE, "no final answer in the form asked for")
            elif reply.status == Status.DONE and isinstance(reply.value, float):
                outcome = Outcome.RIGHT if reply.value >= 1.0 else Outcome.WRONG
                verdict = Verdict(reply.value, outcome)
            else:
                late = reply.status == Status.TIMEOUT
                verdict = Verdict(0.0, Outcome.TIMEOUT if late else Outcome.ERROR, reply.detail)
            verdicts.append(verdict)
        return verdicts

    def problem(self, seed: int, index: int) -> Problem:
        """The problem that this seed and index make; its source says how to make it again."""
        entry = generator(self.generator, seed)[index]
        return Problem(
            TEMPLATE.format(problem=entry["question"]),
            str(entry["answer"]),
            f"reasoning_gym/{self.generator}/{seed}/{index}",
        )


def score(request: object) -> object:
    """The score of [source, answer], in a worker process."""
    assert isinstance(request, list)
    source, answer = request
    if answer is None:
        return 0.0
    _, name, seed, index = str(source).split("/")
    dataset = generator(name, int(seed))
    return float(dataset.score_answer(answer, dataset[int(index)]))


@lru_cache(maxsize=64)
def generator(name: str, seed: int) -> Generator:
    """The generator, or a ConfigError with its name's neighbours."""
    try:
        return gym.create_dataset(name, size=SIZE, seed=seed)
    except ValueError as error:
        raise ConfigError(f"reasoning-gym has no generator {name!r}: {error}") from error
