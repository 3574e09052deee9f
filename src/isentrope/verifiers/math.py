"""The verifier of mathematical answers."""

import importlib.util
import os
from collections.abc import Iterable, Sequence

from isentrope.errors import require
from isentrope.verifiers.answers import Answer, Matrix, Opaque, Relation, Series, read_answer
from isentrope.verifiers.comparison import answers_equal
from isentrope.verifiers.extraction import extract_answer
from isentrope.verifiers.mutation import mutations
from isentrope.verifiers.numeric import DEFAULT_ROUNDING_DIGITS
from isentrope.verifiers.pool import Reply, Status, WorkerPool
from isentrope.verifiers.verdict import Outcome, Verdict

__all__ = ["MathVerifier"]

TIMEOUT_S = 10.0
MAX_WORKERS = 8

RIGHT = Verdict(1.0, Outcome.RIGHT)
WRONG = Verdict(0.0, Outcome.WRONG)
NO_ANSWER = Verdict(0.0, Outcome.UNPARSABLE, "no final answer in the form asked for")
NO_GOLD = Verdict(None, Outcome.UNJUDGEABLE, "the gold answer cannot be read")


class MathVerifier:
    """Judges completions against gold answers; may be shared between threads.

    The answer is taken from the first of `formats` that a completion uses (see extraction.py). Most
    pairs are decided by rules and exact arithmetic; the rest go to math-verify in worker processes
    that are killed after `timeout_s`. A decimal equals an irrational or fractional value that
    rounds to it if it has at least `rounding_digits` significant digits.
    """

    def __init__(
        self,
        *,
        formats: Sequence[str] = ("boxed",),
        timeout_s: float = TIMEOUT_S,
        workers: int | None = None,
        rounding_digits: int = DEFAULT_ROUNDING_DIGITS,
    ) -> None:
        if importlib.util.find_spec("math_verify") is None:
            require("math_verify", "math")
        extract_answer("", formats)  # an unknown format is refused here
        self.formats = tuple(formats)
        self.rounding_digits = rounding_digits
        self.pool = WorkerPool(
            "isentrope.verifiers.symbolic:judge",
            workers=workers or min(MAX_WORKERS, os.cpu_count() or 1),
            timeout_s=timeout_s,
        )
        self._readable: dict[str, bool] = {}

    def verify(self, golds: Sequence[str], completions: Sequence[str]) -> list[Verdict]:
        """One verdict a completion, in order."""
        answers = [extract_answer(completion, self.formats) for completion in completions]
        return self.judge(golds, answers)

    def judge(self, golds: Sequence[str], answers: Sequence[str | None]) -> list[Verdict]:
        """One verdict an answer that has been extracted already; None is no answer."""
        readable = self.readable_golds(golds)
        verdicts: dict[int, Verdict] = {}
        for index, (gold, answer) in enumerate(zip(golds, answers, strict=True)):
            verdict = self.decide(gold, answer) if readable[gold] else NO_GOLD
            if verdict is not None:
                verdicts[index] = verdict
        undecided = [index for index in range(len(golds)) if index not in verdicts]
        replies = self.pool.map([["pair", golds[index], answers[index]] for index in undecided])
        for index, reply in zip(undecided, replies, strict=True):
            verdicts[index] = verdict_of(reply)
        return [verdicts[index] for index in range(len(golds))]

    def decide(self, gold: str, answer: str | None) -> Verdict | None:
        """The verdict that rules and arithmetic give, or None."""
        if answer is None:
            return NO_ANSWER
        equal = answers_equal(gold, answer, self.rounding_digits)
        if equal is None:
            return None
        return RIGHT if equal else WRONG

    def readable_golds(self, golds: Iterable[str]) -> dict[str, bool]:
        """Which golds can be judged against: one that no reader knows makes every score None."""
        known = self._readable
        new = [gold for gold in dict.fromkeys(golds) if gold not in known]
        hard = [gold for gold in new if needs_algebra(gold)]
        requests = [["gold", gold, *mutations(gold).values()] for gold in hard]
        for gold, reply in zip(hard, self.pool.map(requests), strict=True):
            known[gold] = reply.status == Status.DONE and reply.value is True
        known.update({gold: bool(gold.strip()) for gold in new if gold not in known})
        return known

    def close(self) -> None:
        """Ends the worker processes."""
        self.pool.close()


def verdict_of(reply: Reply) -> Verdict:
    """The verdict that a worker's reply means."""
    if reply.status == Status.TIMEOUT:
        return Verdict(0.0, Outcome.TIMEOUT, reply.detail)
    if reply.status == Status.ERROR:
        return Verdict(0.0, Outcome.ERROR, reply.detail)
    if reply.value == "unparsable":
        return Verdict(0.0, Outcome.UNPARSABLE, "the answer cannot be read")
    return RIGHT if reply.value == "equal" else WRONG


def needs_algebra(gold: str) -> bool:
    """Whether only math-verify may be able to read a gold answer."""
    try:
        readings = read_answer(gold)
    except RecursionError:
        return True
    return bool(gold.strip()) and all(is_opaque(reading) for reading in readings)


def is_opaque(answer: Answer) -> bool:
    """Whether any part of an answer is unknown to the rules."""
    if isinstance(answer, Series):
        return any(is_opaque(item) for item in answer.items)
    if isinstance(answer, Relation):
        return is_opaque(answer.left) or is_opaque(answer.right)
    if isinstance(answer, Matrix):
        return any(is_opaque(cell) for row in answer.rows for cell in row)
    return isinstance(answer, Opaque)
