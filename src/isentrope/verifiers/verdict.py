"""What a verifier says of one completion."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RIGHT_SCORE", "Outcome", "Verdict"]

RIGHT_SCORE = 1.0
"""A completion is right from this score on, unless its task says otherwise; less is part credit."""


class Outcome(StrEnum):
    """Why a completion got its score; counted apart in every report."""

    RIGHT = "right"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    TIMEOUT = "timeout"
    ERROR = "error"
    UNJUDGEABLE = "unjudgeable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Score in [0, 1] and its reason.

    The score is None when the completion cannot be judged at all (a gold answer that does not
    parse, say): it then stays out of means, advantages and the loss.
    """

    score: float | None
    outcome: Outcome
    detail: str = ""
