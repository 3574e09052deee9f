"""Values of expressions: exact where rational, else to many digits; and whether two are equal."""

import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import comb, factorial, floor, log2
from typing import Any

from mpmath import MPContext
from mpmath.libmp import NoConvergence

from isentrope.verifiers.expressions import Node

Value = Any  # a number of mpmath's, real or complex: these have no types

__all__ = ["expressions_equal", "rational", "same_rounding"]

DIGITS = (60, 1500)  # the second confirms what the first calls equal
POINT_DIGITS = (60, 150)  # at a point of several
GUARD_DIGITS = 15
MAX_BITS = 200_000  # of an exact power or factorial
MAX_FACTORIAL = 10_000
MAX_EXPONENT = 10**9
POINTS = ((7, 5), (31, 6), (-13, 17), (1009, 2))  # seeds of the values that stand in for symbols
DEFAULT_ROUNDING_DIGITS = 6


class NotRationalError(ArithmeticError):
    """The value is not rational, or not known to be."""


class TooLargeError(ArithmeticError):
    """The value cannot be computed in bounded time."""


def rational(node: Node) -> Fraction | None:
    """The exact value of an expression that is rational by its form, or None."""
    try:
        return exact(node)
    except (ArithmeticError, ValueError):
        return None


def expressions_equal(
    first: Node, second: Node, digits: int = DEFAULT_ROUNDING_DIGITS
) -> bool | None:
    """Whether two expressions have the same value; None where that cannot be computed.

    Rational values are compared exactly. Others must agree to 45 and then to 1485 digits, relative
    to the largest number on the way; symbols stand for several points, one of them negative, where
    135 digits must agree.
    A decimal of at least `digits` significant digits equals what rounds (or is cut) to it.
    """
    if first == second:
        return True
    left, right = rational(first), rational(second)
    if left is not None and right is not None:
        return left == right or same_rounding(first, left, second, right, digits)
    symbols = sorted(first.symbols() | second.symbols())
    if not symbols:
        return constants_equal(first, second, digits)
    known = [
        verdict
        for point in POINTS
        if (verdict := equal_at(first, second, values_at(symbols, point), POINT_DIGITS)) is not None
    ]
    if len(known) < 2 and all(known):
        return None
    return all(known)


def same_rounding(first: Node, left: Fraction, second: Node, right: Fraction, digits: int) -> bool:
    """Whether exactly one side is a decimal literal, long enough, and the other rounds to it."""
    places = literal_places(first, digits), literal_places(second, digits)
    if (places[0] is None) == (places[1] is None):
        return False
    decimal, value = (left, right) if places[0] is not None else (right, left)
    unit = Fraction(1, 10 ** (places[0] if places[0] is not None else places[1] or 0))
    cut = abs(value) - abs(decimal)
    return decimal * value >= 0 and (abs(cut) * 2 <= unit or 0 <= cut < unit)


def literal_places(node: Node, digits: int) -> int | None:
    """The decimal places of a decimal literal of at least `digits` digits, else None."""
    if node.kind == "neg":
        return literal_places(node.arguments[0], digits)
    if node.kind != "number" or node.digits < digits:
        return None
    places = 0
    while (node.value * 10**places).denominator != 1:
        places += 1
    return places


def constants_equal(first: Node, second: Node, digits: int) -> bool | None:
    """Whether two expressions without symbols are equal, at least one of them irrational."""
    equal = equal_at(first, second, {})
    if equal is not False:
        return equal
    for literal, other in ((first, second), (second, first)):
        if literal_places(literal, digits) is not None and literal.symbols() == set():
            decimal = rational(literal)
            value = real_value(other)
            if decimal is not None and value is not None:
                return same_rounding(literal, decimal, other, value, digits)
    return False


def real_value(node: Node) -> Fraction | None:
    """A real constant as a fraction correct to many digits, or None."""
    try:
        context = context_of(DIGITS[0])
        value = Evaluator(context, {}).value(node)
        if context.im(value) != 0 or not context.isfinite(value):
            return None
        return Fraction(str(context.nstr(context.re(value), DIGITS[0] - GUARD_DIGITS)))
    except (ArithmeticError, ValueError, TypeError, NoConvergence):
        return None


def values_at(symbols: list[str], point: tuple[int, int]) -> dict[str, Fraction]:
    """A value for each symbol, none of them special."""
    upper, lower = point
    return {
        symbol: Fraction(upper * (2 * index + 3) + 1, abs(lower) * (index + 2) + 1)
        for index, symbol in enumerate(symbols)
    }


def equal_at(
    first: Node,
    second: Node,
    values: Mapping[str, Fraction],
    precisions: tuple[int, ...] = DIGITS,
) -> bool | None:
    """Whether two expressions agree where the symbols have these values; None if undefined."""
    for digits in precisions:
        try:
            context = context_of(digits)
            evaluator = Evaluator(context, values)
            left, right = evaluator.value(first), evaluator.value(second)
            if context.isinf(left) or context.isinf(right):
                return bool(left == right)
            if context.isnan(left) or context.isnan(right):
                return None
            scale = max(abs(left), abs(right), evaluator.scale)
            if abs(left - right) > scale * context.mpf(10) ** (GUARD_DIGITS - digits):
                return False
            if digits == precisions[-1] and scale * context.mpf(10) ** (-digits // 2) > max(
                abs(left), abs(right), 1
            ):
                return None  # too much was cancelled on the way
        except (ArithmeticError, ValueError, TypeError, NoConvergence):
            return None
    return True


def exact(node: Node) -> Fraction:
    """The rational value, or an ArithmeticError."""
    if node.kind == "number":
        return node.value
    if node.kind not in EXACT:
        raise NotRationalError(node.kind)
    return EXACT[node.kind](*(exact(argument) for argument in node.arguments))


def exact_power(base: Fraction, exponent: Fraction) -> Fraction:
    """base^exponent for a whole exponent of bounded size, and for roots that come out."""
    if exponent.denominator != 1:
        return exact_root(
            exact_power(base, Fraction(exponent.numerator)), Fraction(exponent.denominator)
        )
    size = max(abs(base.numerator), base.denominator)
    if size > 1 and abs(exponent) * log2(size) > MAX_BITS:
        raise NotRationalError("too large")
    return base ** int(exponent)


def exact_root(radicand: Fraction, degree: Fraction) -> Fraction:
    """The root of a perfect power, or NotRationalError."""
    if degree.denominator != 1 or degree < 1 or radicand < 0:
        raise NotRationalError("root")
    n = int(degree)
    return Fraction(whole_root(radicand.numerator, n), whole_root(radicand.denominator, n))


def whole_root(number: int, degree: int) -> int:
    """The whole number whose power is `number`, or NotRationalError."""
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= number:
            low = middle
        else:
            high = middle - 1
    if low**degree != number:
        raise NotRationalError("root")
    return low


def exact_factorial(argument: Fraction) -> Fraction:
    """n! of a whole number of bounded size."""
    if argument.denominator != 1 or not 0 <= argument <= MAX_FACTORIAL:
        raise NotRationalError("factorial")
    return Fraction(factorial(int(argument)))


def exact_binomial(upper: Fraction, lower: Fraction) -> Fraction:
    """The binomial coefficient of whole numbers of bounded size."""
    if upper.denominator != 1 or lower.denominator != 1 or not 0 <= lower <= upper <= MAX_FACTORIAL:
        raise NotRationalError("binomial")
    return Fraction(comb(int(upper), int(lower)))


EXACT: dict[str, Callable[..., Fraction]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "neg": lambda a: -a,
    "^": exact_power,
    "root": exact_root,
    "factorial": exact_factorial,
    "binomial": exact_binomial,
    "floor": lambda a: Fraction(floor(a)),
    "ceil": lambda a: Fraction(-floor(-a)),
    "abs": lambda a: abs(a),
}

LOCAL = threading.local()  # mpmath's contexts hold their precision: one set a thread


def context_of(digits: int) -> MPContext:
    """This thread's mpmath context of so many digits."""
    contexts: dict[int, MPContext] = LOCAL.__dict__.setdefault("contexts", {})
    if digits not in contexts:
        contexts[digits] = MPContext()
        contexts[digits].dps = digits
    return contexts[digits]


class Evaluator:
    """Values at one precision and one point; `scale` is the largest term that was added."""

    def __init__(self, context: MPContext, values: Mapping[str, Fraction]) -> None:
        self.context = context
        self.values = values
        self.scale = context.mpf(0)

    def value(self, node: Node) -> Value:
        """The value, real or complex, or an ArithmeticError."""
        context = self.context
        if node.kind == "number":
            return context.mpf(node.value.numerator) / node.value.denominator
        if node.kind == "symbol":
            value = self.values[node.name]
            return context.mpf(value.numerator) / value.denominator
        if node.kind == "constant":
            return {"pi": +context.pi, "e": +context.e, "i": context.j, "inf": context.inf}[
                node.name
            ]
        arguments = [self.value(argument) for argument in node.arguments]
        if node.kind == "+":
            self.scale = (
                max(self.scale, abs(arguments[0]), abs(arguments[1]))
                if all(map(context.isfinite, arguments))
                else self.scale
            )
            return arguments[0] + arguments[1]
        return self.apply(node.kind, arguments)

    def apply(self, kind: str, arguments: list[Value]) -> Value:
        """A function of values."""
        context = self.context
        if kind in ("factorial", "binomial", "^", "exp") and any(
            abs(argument) > MAX_EXPONENT for argument in arguments[-1:]
        ):
            raise TooLargeError(kind)
        operations: dict[str, Callable[..., Value]] = {
            "*": lambda a, b: a * b,
            "/": lambda a, b: a / b,
            "neg": lambda a: -a,
            "^": lambda a, b: context.power(a, b),
            "root": lambda a, b: (
                context.root(a, int(b)) if b == int(b) else context.power(a, 1 / b)
            ),
            "abs": abs,
            "floor": self.floor,
            "ceil": lambda a: -self.floor(-a),
            "factorial": lambda a: context.gamma(a + 1),
            "binomial": context.binomial,
            "arcsin": context.asin,
            "arccos": context.acos,
            "arctan": context.atan,
        }
        if kind not in operations and not hasattr(context, kind):
            raise TooLargeError(f"{kind} has no value")
        return (
            operations[kind](*arguments)
            if kind in operations
            else getattr(context, kind)(*arguments)
        )

    def floor(self, value: Value) -> Value:
        """The floor, where it does not hang on the last digits."""
        nearest = self.context.nint(value)
        if 0 < abs(value - nearest) < self.context.mpf(10) ** (GUARD_DIGITS - self.context.dps):
            raise TooLargeError("floor")
        return self.context.floor(value)
