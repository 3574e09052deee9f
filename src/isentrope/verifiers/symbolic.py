"""What a worker process is asked: math-verify's opinion, checked numerically.

Imported in worker processes only: it loads sympy, and nothing in it is bounded in time.
"""

import logging

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

__all__ = ["judge"]

DIGITS = 50
TOLERANCE = sympy.Float("1e-30")
DECIMAL_TOLERANCE = sympy.Float("1e-6")  # where a decimal is involved, which math-verify rounds
POINTS = (sympy.Rational(17, 11), sympy.Rational(-23, 13))
CONFIGS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())

# The limits on time are the pool's; math-verify's own are off, which it would report each time.
logging.disable(logging.WARNING)


def judge(request: object) -> object:
    """["pair", gold, answer]: equal, different or unparsable. ["gold", gold, ...]: whether it reads.

    math-verify reads some texts in part. What else a request for a gold lists differs from it, by
    a digit say; where no difference is seen, the gold was not read.
    """
    assert isinstance(request, list)
    kind, gold_text, *others = request
    gold = read(gold_text)
    if kind == "gold":
        return bool(gold) and "equal" not in [opinion(gold, other) for other in others]
    return opinion(gold, others[0])


def opinion(gold: list, text: str) -> str:
    """What math-verify says of an answer, and the digits do not refute."""
    answer = read(text)
    if not answer:
        return "unparsable"
    if not gold or not verify(gold, answer, timeout_seconds=None):
        return "different"
    return "different" if refuted(gold[0], answer[0]) else "equal"


def read(text: str) -> list:
    """math-verify's readings of an answer; empty where all it found is the text itself."""
    boxed = rf"\boxed{{{text}}}"
    readings = parse(boxed, CONFIGS, parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    return readings if any(not isinstance(reading, str) for reading in readings) else []


def refuted(gold: object, answer: object) -> bool:
    """Whether two expressions that are called equal differ in their digits."""
    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return False
    tolerance = DECIMAL_TOLERANCE if gold.has(sympy.Float) or answer.has(sympy.Float) else TOLERANCE
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for point in POINTS if symbols else POINTS[:1]:
        values: dict[sympy.Basic, sympy.Basic | float] = {
            symbol: point + index for index, symbol in enumerate(symbols)
        }
        left, right = (side.evalf(DIGITS, subs=values) for side in (gold, answer))
        if not (left.is_number and right.is_number and left.is_finite and right.is_finite):
            continue
        if sympy.Abs(left - right) > tolerance * max(sympy.Abs(left), sympy.Abs(right)):
            return True
    return False
