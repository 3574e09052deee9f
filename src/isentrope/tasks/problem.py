"""A problem, and what a task is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from isentrope.verifiers.verdict import Verdict

__all__ = ["Problem", "Task", "conversation"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One row: the text given to the model, the gold answer, and the data set it comes from."""

    prompt: str
    answer: str
    source: str
    columns: Mapping[str, object] = field(default_factory=dict, compare=False)
    """All that its row has, for reward functions of one's own."""


def conversation(prompt: str, system: str | None = None) -> list[dict[str, str]]:
    """The messages of a chat that asks this, as chat templates take them."""
    asked = [{"role": "user", "content": prompt}]
    return asked if system is None else [{"role": "system", "content": system}, *asked]


class Task(Protocol):
    """A source of problems with the verifier that belongs to it."""

    @property
    def name(self) -> str:
        """The name of the task."""
        ...

    @property
    def right_score(self) -> float:
        """The score from which on a completion is right: in pass@k, in PRIME, in every report."""
        ...

    def train(self, index: int) -> Problem:
        """The training problem at `index` of an endless, seeded stream."""
        ...

    def test(self) -> Sequence[Problem]:
        """The held-out problems, always the same ones."""
        ...

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """One verdict per completion, in order."""
        ...
