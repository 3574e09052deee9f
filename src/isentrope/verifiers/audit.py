"""Auditing gold answers: each must equal itself, and differ from itself with something changed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.verifiers.math import MathVerifier
from isentrope.verifiers.mutation import mutations
from isentrope.verifiers.verdict import Outcome

__all__ = ["ITSELF", "Audit", "Finding", "audit_golds"]

ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class Finding:
    """A gold answer that was not judged as it should be."""

    row: int
    kind: str
    gold: str
    answer: str
    outcome: Outcome
    detail: str


@dataclass(slots=True)
class Audit:
    """Counts by kind of answer, and what was found."""

    rows: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def audit_golds(golds: Sequence[str], verifier: MathVerifier) -> Audit:
    """The verdicts on every gold answer itself (to be right) and on its mutations (to be wrong)."""
    audit = Audit(rows=len(golds))
    pairs = [(row, ITSELF, gold, gold) for row, gold in enumerate(golds)]
    pairs += [
        (row, kind, gold, answer)
        for row, gold in enumerate(golds)
        for kind, answer in mutations(gold).items()
    ]
    verdicts = verifier.judge([pair[2] for pair in pairs], [pair[3] for pair in pairs])
    for (row, kind, gold, answer), verdict in zip(pairs, verdicts, strict=True):
        audit.outcomes.setdefault(kind, Counter())[verdict.outcome] += 1
        right = verdict.outcome == Outcome.RIGHT
        if right != (kind == ITSELF) and not (
            kind != ITSELF and verdict.outcome == Outcome.UNJUDGEABLE
        ):
            audit.findings.append(Finding(row, kind, gold, answer, verdict.outcome, verdict.detail))
    return audit
