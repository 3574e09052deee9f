"""Countdown: reach a target with the given numbers, each used exactly once.

    prompt      3 7 5=16:
    completion  3*7=21,21-5=16

A problem is a multiset of numbers and a target. It is drawn by working forwards: random numbers,
then random allowed steps until one value is left, which becomes the target; the steps are kept
as the gold answer. A stable hash of the problem decides whether it is held out, so no problem is
ever in both parts, whatever the seed and the options.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from isentrope.errors import ConfigError
from isentrope.tasks.problem import Problem
from isentrope.verifiers.verdict import RIGHT_SCORE, Outcome, Verdict

__all__ = ["Countdown", "held_out", "judge"]

HELD_OUT_SHARE = 10
"""One problem in this many belongs to the test part."""

DRAWS_PER_TEST_PROBLEM = 200
"""Draws after which a test set that does not fill up is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Countdown:
    """The Countdown task at one difficulty."""

    numbers: int = 3
    """How many numbers are given: 3 or 4."""
    largest_number: int = 12
    """The given numbers are between 1 and this one."""
    largest_value: int = 99
    """No target, and no value on the way of a gold answer, is larger; builtin:countdown reads up to 99."""
    num_test: int = 128
    """Size of the held-out set. It depends on the difficulty alone, not on the seed."""
    seed: int = 0
    """Seed of the stream of training problems."""

    def __post_init__(self) -> None:
        """Raise ConfigError for options that no problem can satisfy."""
        if self.numbers not in (3, 4):
            raise ConfigError(f"countdown: numbers is {self.numbers}; set it to 3 or 4")
        if self.largest_number < 5:
            raise ConfigError(
                f"countdown: largest_number is {self.largest_number}, which leaves too few"
                " problems; set it to 5 or more"
            )
        if self.largest_value < self.largest_number:
            raise ConfigError(
                f"countdown: largest_value is {self.largest_value}, below largest_number"
                f" ({self.largest_number}); raise largest_value or lower largest_number"
            )
        if self.num_test < 1:
            raise ConfigError(f"countdown: num_test is {self.num_test}; set it to 1 or more")

    @property
    def name(self) -> str:
        """The name of the task, and the source of its problems."""
        return "countdown"

    @property
    def right_score(self) -> float:
        """A full score: there is no part credit."""
        return RIGHT_SCORE

    def train(self, index: int) -> Problem:
        """The training problem at `index`: a pure function of the options and the index."""
        stream = random.Random(f"countdown train {self.seed} {index}")
        while True:
            problem = self._draw(stream)
            if not held_out(problem):
                return problem

    def test(self) -> list[Problem]:
        """The held-out problems, all different."""
        stream = random.Random("countdown test")
        found: dict[str, Problem] = {}
        for _ in range(DRAWS_PER_TEST_PROBLEM * self.num_test):
            problem = self._draw(stream)
            if held_out(problem):
                found.setdefault(_identity(problem), problem)
            if len(found) == self.num_test:
                return list(found.values())
        raise ConfigError(
            f"countdown: num_test is {self.num_test}, but only {len(found)} different held-out"
            " problems were found; lower num_test, or raise numbers or largest_number"
        )

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """One verdict per completion, in order."""
        return [judge(p.prompt, c) for p, c in zip(problems, completions, strict=True)]

    def _draw(self, stream: random.Random) -> Problem:
        """A problem of either part, with the random steps that made its target."""
        given = [stream.randint(1, self.largest_number) for _ in range(self.numbers)]
        pool = list(given)
        steps: list[str] = []
        while len(pool) > 1:
            pool, step = _random_step(pool, self.largest_value, stream)
            steps.append(step)
        prompt = f"{' '.join(map(str, given))}={pool[0]}:"
        return Problem(prompt=prompt, answer=",".join(steps), source=self.name)


def held_out(problem: Problem) -> bool:
    """Whether the problem belongs to the test part: a hash of its sorted numbers and target."""
    digest = blake2b(_identity(problem).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % HELD_OUT_SHARE == 0


def judge(prompt: str, completion: str) -> Verdict:
    """The verdict on one completion; white space around it is ignored, nothing else is."""
    question = _PROMPT.fullmatch(prompt)
    if question is None:
        detail = f"not a Countdown prompt: {prompt[:80]!r}"
        return Verdict(score=None, outcome=Outcome.UNJUDGEABLE, detail=detail)
    steps = [_STEP.fullmatch(text) for text in completion.strip().split(",")]
    if None in steps:
        detail = f"step {steps.index(None) + 1} does not read as a step such as 3*7=21"
        return Verdict(score=0.0, outcome=Outcome.UNPARSABLE, detail=detail)
    fault = _first_fault(*_numbers_and_target(question), [s.groups() for s in steps if s])
    if fault:
        return Verdict(score=0.0, outcome=Outcome.WRONG, detail=fault)
    return Verdict(score=1.0, outcome=Outcome.RIGHT)


# Nine digits at most: far above any value in use, far below the length at which int() refuses.
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_PROMPT = re.compile(rf"({_NUMBER}(?: {_NUMBER})+)={_NUMBER}:")
_STEP = re.compile(rf"{_NUMBER}([-+*/]){_NUMBER}=(-?{_NUMBER})")


def _numbers_and_target(question: re.Match[str]) -> tuple[list[int], int]:
    """The given numbers and the target of a prompt."""
    return [int(number) for number in question[1].split()], int(question[question.re.groups])


def _identity(problem: Problem) -> str:
    """The problem without the order of its numbers, which changes nothing about it."""
    question = _PROMPT.fullmatch(problem.prompt)
    assert question is not None, problem.prompt
    numbers, target = _numbers_and_target(question)
    return f"{sorted(numbers)}={target}"


def _first_fault(numbers: list[int], target: int, steps: list[tuple[str, ...]]) -> str:
    """What is wrong first with the steps; empty when they reach the target."""
    pool = Counter(numbers)
    last = 0
    for position, (left, operator, right, claimed, _) in enumerate(steps, start=1):
        place = f"step {position}: {left}{operator}{right}"
        operands = Counter((int(left), int(right)))
        if not operands <= pool:
            return f"{place} uses {min((operands - pool).elements())}, which is not available"
        value = _value(int(left), operator, int(right))
        if value is None:
            return f"{place} has no whole, non-negative result"
        if value != int(claimed):
            return f"{place} is {value}, not {claimed}"
        pool = pool - operands + Counter((value,))
        last = value
    if pool.total() > 1:
        return f"unused: {' '.join(map(str, sorted((pool - Counter((last,))).elements())))}"
    return "" if last == target else f"reaches {last}, not {target}"


def _value(left: int, operator: str, right: int) -> int | None:
    """left operator right, or None where that is not a whole, non-negative number."""
    if operator == "+":
        return left + right
    if operator == "*":
        return left * right
    if operator == "-":
        return left - right if left >= right else None
    return left // right if right and left % right == 0 else None


def _random_step(pool: list[int], largest: int, stream: random.Random) -> tuple[list[int], str]:
    """The pool after one of the allowed steps, all equally likely, and the step as text.

    Zero is never produced, so no problem falls apart into 0*7. A step always exists: the
    larger of two numbers minus the smaller or, where they are equal, their quotient.
    """
    while True:
        left, right, *rest = stream.sample(pool, len(pool))
        operator = stream.choice("+-*/")
        value = _value(left, operator, right)
        if value is not None and 1 <= value <= largest:
            return [*rest, value], f"{left}{operator}{right}={value}"
