"""Whether two answers mean the same, by rules and exact or many-digit arithmetic.

Three values: True and False are decided; None leaves it to a computer algebra system.
"""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from isentrope.verifiers.answers import (
    Answer,
    Matrix,
    Opaque,
    Relation,
    Scalar,
    Series,
    Words,
    read_answer,
)
from isentrope.verifiers.expressions import Node
from isentrope.verifiers.latex import unit_name
from isentrope.verifiers.numeric import (
    DEFAULT_ROUNDING_DIGITS,
    POINTS,
    expressions_equal,
    rational,
    values_at,
)

__all__ = ["answers_equal", "same", "vote_key"]


def answers_equal(gold: str, answer: str, digits: int = DEFAULT_ROUNDING_DIGITS) -> bool | None:
    """Whether two answers as they are written mean the same; None where the rules do not say."""
    if gold.strip() and gold.strip() == answer.strip():
        return True
    try:
        return either(
            same(left, right, digits) for left in read_answer(gold) for right in read_answer(answer)
        )
    except RecursionError:  # an endless sum, say: for a process that can be killed
        return None


def vote_key(answer: str) -> str:
    """A text that is the same for answers that are plainly the same: for majority votes."""
    try:
        readings = read_answer(answer)
    except RecursionError:
        readings = []
    if readings and isinstance(readings[0], Scalar):
        value = rational(readings[0].node)
        if value is not None:
            return str(value)
    return re.sub(r"\s+", "", answer)


def same(gold: Answer, answer: Answer, digits: int) -> bool | None:
    """Whether two read answers mean the same."""
    if gold == answer:
        return True
    if isinstance(gold, Series) and gold.brackets == "=":
        return both(same(part, answer, digits) for part in gold.items)
    if isinstance(answer, Series) and answer.brackets == "=":
        return both(same(gold, part, digits) for part in answer.items)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return relations_equal(gold, answer, digits)
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        return scalars_equal(gold, answer, digits)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return matrices_equal(gold, answer, digits)
    if isinstance(gold, Series) or isinstance(answer, Series):
        return series_equal(as_series(gold), as_series(answer), digits)
    if isinstance(gold, Scalar) and gold.base and isinstance(answer, Opaque):
        return False
    if isinstance(gold, Opaque) or (isinstance(answer, Opaque) and not isinstance(gold, Words)):
        return None
    return words_equal(gold, answer)


def words_equal(gold: Answer, answer: Answer) -> bool:
    """Whether two answers in words are alike; words are no number."""
    if isinstance(gold, Words) and isinstance(answer, Words):
        return strip_article(gold.text) == strip_article(answer.text)
    return False


def strip_article(text: str) -> str:
    """The words without a leading article."""
    return re.sub(r"^(?:the|an?) ", "", text)


def scalars_equal(gold: Scalar, answer: Scalar, digits: int) -> bool | None:
    """Whether two expressions are equal, and their units where both are known."""
    if gold.base != answer.base and (gold.base or answer.base):
        return bases_equal(gold, answer)
    if gold.unit and answer.unit:
        names = unit_name(gold.unit), unit_name(answer.unit)
        powers = [re.findall(r"\^\s*\{?(\d)", unit) for unit in (gold.unit, answer.unit)]
        if (None not in names and names[0] != names[1]) or (all(powers) and powers[0] != powers[1]):
            return False
    equal = expressions_equal(gold.node, answer.node, digits)
    if equal or gold.percent == answer.percent:
        return equal
    hundredth = Node("/", (gold.node if gold.percent else answer.node, HUNDRED))
    return expressions_equal(hundredth, answer.node if gold.percent else gold.node, digits)


def bases_equal(gold: Scalar, answer: Scalar) -> bool:
    """Whether values agree, or the digits do where one side leaves its base out."""
    if gold.base and answer.base:
        return rational(gold.node) == rational(answer.node)
    based, bare = (gold, answer) if gold.base else (answer, gold)
    digits = based.node.name.lstrip("0")
    return rational(bare.node) == Fraction(digits) if digits.isdigit() else False


HUNDRED = Node("number", value=Fraction(100))


def relations_equal(gold: Answer, answer: Answer, digits: int) -> bool | None:
    """Whether two equations say the same, or one equation names the other side's value."""
    if not isinstance(gold, Relation):
        assert isinstance(answer, Relation)
        return named_value_equal(answer, gold, digits)
    if not isinstance(answer, Relation):
        return named_value_equal(gold, answer, digits)
    if gold.sign != answer.sign:
        return False if {gold.sign, answer.sign} <= {"=", r"\ne", "<", ">"} else None
    if gold.sign == r"\approx":
        return both([same(gold.left, answer.left, digits), same(gold.right, answer.right, digits)])
    if gold.sign != "=":
        return (
            both([same(gold.left, answer.left, digits), same(gold.right, answer.right, digits)])
            or None
        )
    if gold.name and answer.name and (gold.name == answer.name or "(" in gold.name + answer.name):
        return same(gold.right, answer.right, digits)
    if all(isinstance(side, Scalar) for side in (gold.left, gold.right, answer.left, answer.right)):
        return residuals_proportional(residual(gold), residual(answer), digits)
    if gold.name and answer.name:
        return False
    return None


def named_value_equal(relation: Relation, value: Answer, digits: int) -> bool | None:
    """Whether `name = right` gives the value; `left = right` of numbers must hold itself."""
    if relation.sign == "=" and relation.name:
        return same(value, relation.right, digits)
    if (
        relation.sign == "="
        and isinstance(relation.left, Scalar)
        and not relation.left.node.symbols()
    ):
        return both(
            [same(relation.left, relation.right, digits), same(value, relation.right, digits)]
        )
    return False if isinstance(value, Words) else None


def residual(relation: Relation) -> Node:
    """Left minus right."""
    assert isinstance(relation.left, Scalar)
    assert isinstance(relation.right, Scalar)
    return Node("+", (relation.left.node, Node("neg", (relation.right.node,))))


def residuals_proportional(first: Node, second: Node, digits: int) -> bool | None:
    """Whether first = c second with a constant c other than 0: the same solutions.

    c is the ratio at one point, so that the claim can be checked at the others.
    """
    symbols = sorted(first.symbols() | second.symbols())
    if not symbols or first.symbols() != second.symbols():
        return False
    values = values_at(symbols, POINTS[0])
    left, right = fixed(first, values), fixed(second, values)
    zero = Node("number")
    if expressions_equal(left, zero) is not False or expressions_equal(right, zero) is not False:
        return None
    return expressions_equal(Node("*", (first, right)), Node("*", (second, left)), digits)


def fixed(node: Node, values: dict[str, Fraction]) -> Node:
    """The expression with numbers for its symbols."""
    if node.kind == "symbol":
        return Node("number", value=values[node.name])
    arguments = tuple(fixed(argument, values) for argument in node.arguments)
    return Node(node.kind, arguments, node.value, node.name)


def matrices_equal(gold: Answer, answer: Answer, digits: int) -> bool | None:
    """Whether two matrices are equal; a row or column may be written as a tuple."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        shapes = [[len(row) for row in matrix.rows] for matrix in (gold, answer)]
        if shapes[0] != shapes[1] or gold.determinant != answer.determinant:
            return False
        return both(
            same(left, right, digits)
            for rows in zip(gold.rows, answer.rows, strict=True)
            for left, right in zip(*rows, strict=True)
        )
    matrix, other = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
    assert isinstance(matrix, Matrix)
    if not isinstance(other, Series) or other.brackets not in ("()", "[]"):
        return None if isinstance(other, Opaque) or matrix.determinant else False
    if len(matrix.rows) != 1 and any(len(row) != 1 for row in matrix.rows):
        return False
    entries = [cell for row in matrix.rows for cell in row]
    return in_order(entries, other.items, digits)


def as_series(answer: Answer) -> Answer:
    """A single value as a list of one."""
    return Series("", (answer,)) if isinstance(answer, Scalar | Words) else answer


def series_equal(gold: Answer, answer: Answer, digits: int) -> bool | None:
    """Whether two lists, sets, tuples or intervals are equal."""
    if not isinstance(gold, Series) or not isinstance(answer, Series):
        return None
    ordered = {"()", "[]", "(]", "[)"}
    kinds = gold.brackets, answer.brackets
    if "U" in kinds:
        if kinds != ("U", "U"):
            return None
        return in_any_order(gold.items, answer.items, digits) or None
    if kinds[0] in ordered and kinds[1] in ordered:
        if kinds[0] != kinds[1]:
            return False
        return in_order(gold.items, answer.items, digits)
    if kinds[0] in ordered or kinds[1] in ordered:
        # (1,2) and 1,2 are the same two values; (1,2) and {1,2} are not
        listed, tupled = (answer, gold) if kinds[0] in ordered else (gold, answer)
        if listed.brackets == "" and tupled.brackets == "()" and len(listed.items) > 1:
            return in_order(gold.items, answer.items, digits)
        return (
            in_any_order(gold.items, answer.items, digits)
            if len(listed.items) == 1 and listed.items == (tupled,)
            else False
        )
    return in_any_order(gold.items, answer.items, digits)


def in_order(first: Sequence[Answer], second: Sequence[Answer], digits: int) -> bool | None:
    """Whether the items are equal one by one."""
    if len(first) != len(second):
        return False
    return both(same(left, right, digits) for left, right in zip(first, second, strict=True))


def in_any_order(first: Sequence[Answer], second: Sequence[Answer], digits: int) -> bool | None:
    """Whether each item has its equal on the other side, none of them used twice."""
    if len(first) != len(second):
        return False
    left = list(second)
    undecided = False
    for item in first:
        verdicts = [same(item, other, digits) for other in left]
        if True in verdicts:
            del left[verdicts.index(True)]
        elif None in verdicts:
            undecided = True
        else:
            return False
    return None if undecided else True


def both(verdicts: Iterable[bool | None]) -> bool | None:
    """All of them: False beats None beats True."""
    known = list(verdicts)
    return False if False in known else None if None in known else True


def either(verdicts: Iterable[bool | None]) -> bool | None:
    """One of them: True beats None beats False; None without any."""
    known = list(verdicts)
    return True if True in known else False if known and None not in known else None
