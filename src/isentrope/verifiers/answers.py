"""Answers with structure: lists, sets, tuples, intervals, matrices, relations, words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from isentrope.verifiers.expressions import Node, ParseError, parse_expression
from isentrope.verifiers.extraction import last_boxed
from isentrope.verifiers.latex import clean, split_unit

__all__ = ["Answer", "Matrix", "Opaque", "Relation", "Scalar", "Series", "Words", "read_answer"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression, with the unit or the % written behind it and the base written below it."""

    node: Node
    unit: str = ""
    percent: bool = False
    base: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Several answers. brackets: "()", "[]", "(]", "[)" in order; "{}", "" (a list), "U" without."""

    brackets: str
    items: tuple["Answer", ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of answers; a determinant's bars are kept apart from brackets."""

    rows: tuple[tuple["Answer", ...], ...]
    determinant: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation or inequality; the texts are kept for names such as f(x)."""

    sign: str
    left: "Answer"
    right: "Answer"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words: letters and digits only, in lower case."""

    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Mathematics that this reader does not know; only equal to its own spelling."""

    text: str


Answer = Scalar | Series | Matrix | Relation | Words | Opaque

MATRIX = re.compile(
    r"\\begin\{([pbBvV]?(?:small)?matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.DOTALL
)
SIGNS = re.compile(
    r"\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\in(?![a-zA-Z])|[=<>]|\\(?:ne|approx|equiv|sim)(?![a-zA-Z])"
)
THOUSANDS = re.compile(r"([-+]?\d{1,3}(?:, ?\d{3})+(?:\.\d+)?)(?!\d)(.*)", re.DOTALL)
TIGHT_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])")
NAME = re.compile(r"(?>\\text\{[^{}]*\}|[A-Za-z\\_{}'\s\d]|\([A-Za-z](?:, ?[A-Za-z])*\))++")
SYMBOL = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?")
BASE = re.compile(
    r"([-0-9A-Za-z.]+)_\{?(?:\\text\{)?\s*(\d+|two|three|four|five|six|seven|eight|nine|ten)\s*\}*"
)
BASES = {
    w: n
    for n, w in enumerate(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 2
    )
}
PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?")
OPENING, CLOSING = "([{", ")]}"
REALS = Series("()", (
    Scalar(Node("neg", (Node("constant", name="inf"),))),
    Scalar(Node("constant", name="inf")),
))  # fmt: skip
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "="}
SHORT_WORDS = {"yes", "no", "odd", "one", "two", "six", "ten", "all", "any", "red"}  # not products
MAX_LENGTH = 4_000
MAX_DEPTH = 40  # of brackets


def read_answer(text: str) -> list[Answer]:
    """The readings of an answer, the likeliest first; none for an empty or endless text.

    There is more than one where the text is ambiguous: 100,200,300 is a number and a list.
    """
    if PLAIN.fullmatch(text):
        return [Scalar(parse_expression(text))]
    if len(text) > MAX_LENGTH or too_deep(text):
        return []
    if r"\boxed" in text:
        text = last_boxed(text) or text
    cleaned = clean(text)
    if not re.search(r"\w|\\", cleaned):
        return []
    readings: list[Answer] = []
    if match := THOUSANDS.fullmatch(cleaned):
        whole = read(match[1].replace(",", "").replace(" ", "") + match[2])
        if isinstance(whole, Scalar):
            readings.append(whole)
    with_numbers = TIGHT_THOUSANDS.sub(lambda match: match[0].replace(",", ""), cleaned)
    readings.append(read(with_numbers))
    if with_numbers != cleaned:
        readings.append(read(cleaned))
    return list(dict.fromkeys(readings))


def read(text: str) -> Answer:
    """One cleaned answer."""
    text = text.strip()
    if text.lower() in SHORT_WORDS:
        return Words(text.lower())
    for reader in (read_matrix, read_list, read_relation, read_union, read_bracketed, read_scalar):
        answer = reader(text)
        if answer is not None:
            return answer
    return read_words(text)


def read_matrix(text: str) -> Answer | None:
    """A matrix, if that is all of the text."""
    match = MATRIX.fullmatch(text)
    if match is None or r"\begin" in match[2]:
        return None
    rows = [
        row
        for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2].replace(r"\hline", ""))
        if row.strip()
    ]
    cells = tuple(tuple(read(cell) for cell in row.split("&")) for row in rows)
    return Matrix(cells, determinant=match[1].startswith(("v", "V")))


def read_list(text: str) -> Answer | None:
    """Answers with commas or semicolons between them, outside of all brackets."""
    parts = [part for part in split(text, ",;") if part.strip()]
    if len(parts) < 2:
        if r"\pm" in text or r"\mp" in text:
            return read_signs(text)
        return None
    if not any(SIGNS.search(part) for part in parts[1:]) and (match := first_sign(parts[0])):
        name = parts[0][: match.start()]
        if match[0] == "=" and NAME.fullmatch(name.strip()):
            parts[0] = parts[0][match.end() :]
    items = [read(part) for part in parts]
    if all(isinstance(item, Series) and is_interval(item) for item in items) and all(
        SIGNS.search(part) for part in parts
    ):
        return Series("U", tuple(items))
    return Series("", tuple(flat(items)))


def flat(items: list[Answer]) -> Iterator[Answer]:
    """Items, with the two values of a +- among them instead of a list."""
    for item in items:
        if isinstance(item, Series) and item.brackets == "":
            yield from item.items
        else:
            yield item


def read_signs(text: str) -> Answer | None:
    """The two values that \\pm stands for."""
    if SIGNS.search(text):
        name, _, text = text.partition("=")
        if not NAME.fullmatch(name.strip()):
            return None
    if any(character in text for character in "[,") or r"\{" in text:
        return None
    upper = read(text.replace(r"\pm", "+").replace(r"\mp", "-"))
    lower = read(text.replace(r"\pm", "-").replace(r"\mp", "+"))
    return Series("", (upper, lower))


def read_relation(text: str) -> Answer | None:
    """An equation; an inequality with one symbol as the interval that it means."""
    match = first_sign(text)
    if match is None:
        return None
    left, sign, right = text[: match.start()].strip(), match[0], text[match.end() :].strip()
    if not left or not right:
        return read(left or right) if sign in ("=", r"\approx") else Opaque(squeezed(text))
    second = first_sign(right)
    if second is not None:
        return read_chain(text, left, sign, right, second)
    if sign == r"\in" and NAME.fullmatch(left):
        return read(right)
    if sign == "=" and SYMBOL.fullmatch(right) and not NAME.fullmatch(left):
        left, right = right, left
    if sign in FLIPPED and sign != "=":
        interval = read_interval(left, sign, right)
        if interval is not None:
            return interval
    name = squeezed(left) if NAME.fullmatch(left) else ""
    return Relation(sign, read(left), read(right), name)


def read_chain(text: str, left: str, sign: str, right: str, second: re.Match[str]) -> Answer:
    """a < x <= b as an interval; x = y = value as the equation that its ends make."""
    middle, last = right[: second.start()].strip(), right[second.end() :].strip()
    signs = {sign, second[0]}
    if signs <= {"<", r"\le"} or signs <= {">", r"\ge"}:
        if SYMBOL.fullmatch(middle):
            if ">" in signs or r"\ge" in signs:
                left, last, sign, second_sign = last, left, FLIPPED[second[0]], FLIPPED[sign]
            else:
                second_sign = second[0]
            return interval(read(left), read(last), sign == "<", second_sign == "<")
    elif signs == {"="} and NAME.fullmatch(left) and not first_sign(last):
        return Series("=", (read(middle), read(last)))
    return Opaque(squeezed(text))


def read_interval(left: str, sign: str, right: str) -> Answer | None:
    """x < a as an interval, if one side is a symbol and the other has none."""
    if not SYMBOL.fullmatch(left):
        left, right, sign = right, left, FLIPPED[sign]
    bound = read(right)
    if not SYMBOL.fullmatch(left) or not isinstance(bound, Scalar) or bound.node.symbols():
        return None
    below, above = REALS.items
    if sign in ("<", r"\le"):
        return interval(below, bound, True, sign == "<")
    return interval(bound, above, sign == ">", True)


def interval(low: Answer, high: Answer, open_low: bool, open_high: bool) -> Series:
    """An interval with these ends."""
    return Series(("(" if open_low else "[") + (")" if open_high else "]"), (low, high))


def read_union(text: str) -> Answer | None:
    """Intervals or sets with a union sign between them; sets are joined."""
    parts = [
        part.strip() for part in re.split(r"\\cup(?![a-zA-Z])|(?<=[)\]}])\s*U\s*(?=[(\[\\])", text)
    ]
    if len(parts) < 2 or any(depth_of(part) for part in parts):
        return None
    items = [read(part) for part in parts]
    if all(isinstance(item, Series) and item.brackets == "{}" for item in items):
        joined = [item for part in items if isinstance(part, Series) for item in part.items]
        return Series("{}", tuple(dict.fromkeys(joined)))
    return Series("U", tuple(items))


def read_bracketed(text: str) -> Answer | None:
    """A set, a tuple or an interval, if one pair of brackets holds all of the text."""
    if text in (r"\mathbb{R}", r"\text{all real numbers}"):
        return REALS
    if text == r"\emptyset" or re.fullmatch(r"\\\{\s*\\\}", text):
        return Series("{}", ())
    if text.startswith(r"\{") and text.endswith(r"\}"):
        inside = text[2:-2]
        if depth_of(inside):
            return None
        return Series("{}", tuple(flat([read(part) for part in split(inside, ",;")])))
    if (
        len(text) < 2
        or text[0] not in "(["
        or text[-1] not in ")]"
        or closes(text) != len(text) - 1
    ):
        return None
    parts = split(text[1:-1], ",;")
    if len(parts) < 2:
        return None
    return Series(text[0] + text[-1], tuple(read(part) for part in parts))


def read_scalar(text: str) -> Answer | None:
    """An expression with what may stand around it."""
    if match := BASE.fullmatch(text):
        based = read_based(match[1], match[2])
        if based is not None:
            return based
    if is_enclosed(text):
        return read(text[1:-1])
    body, unit = split_unit(text)
    percent = body.endswith("%") or unit.lower() in ("percent", "percentage")
    body = body.removesuffix("%").strip()
    for candidate in dict.fromkeys((body, text)):
        try:
            return Scalar(parse_expression(candidate), unit if candidate == body else "", percent)
        except ParseError:
            continue
    return None


def is_enclosed(text: str) -> bool:
    """Whether one pair of grouping braces holds all of the text."""
    return len(text) > 2 and text[0] == "{" and closes(text) == len(text) - 1


def read_based(digits: str, base: str) -> Answer | None:
    """Digits with a base below them, as the number they mean."""
    number = BASES.get(base) or int(base)
    if not 2 <= number <= 36:
        return None
    sign = -1 if digits.startswith("-") else 1
    try:
        value = sign * int(digits.removeprefix("-"), number)
    except ValueError:
        return None
    return Scalar(Node("number", value=Fraction(value), name=digits), base=number)


def read_words(text: str) -> Answer:
    """Words, if letters outweigh signs; else something opaque."""
    plain = re.sub(r"\\text|\\mathbb", "", text)
    words = " ".join(re.findall(r"-?[a-z0-9]+", plain.lower()))
    has_words = re.search(r"[a-zA-Z]{2,}", plain) or re.fullmatch(r"\\mathbb\{[A-Z]\}", text)
    if has_words and not re.search(r"\\|[=<>^+|]|\d\s*[-/*]", plain):
        return Words(words)
    return Opaque(squeezed(text))


def split(text: str, separators: str) -> list[str]:
    """The parts between separators that no bracket encloses."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            bracket = text[position + 1 : position + 2]
            depth += (bracket == "{") - (bracket == "}")
            position += 2
            continue
        depth += (character in OPENING) - (character in CLOSING)
        if character in separators and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [*parts, text[start:]]


def first_sign(text: str) -> re.Match[str] | None:
    """The first relation sign that no bracket encloses."""
    return next(
        (match for match in SIGNS.finditer(text) if not depth_of(text[: match.start()])), None
    )


def depth_of(text: str) -> int:
    """How many brackets are open at the end."""
    bare = re.sub(r"\\(?![{}])", "", text)
    return sum((character in OPENING) - (character in CLOSING) for character in bare)


def closes(text: str) -> int:
    """Where the bracket that opens the text is closed; -1 if nowhere."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0:
            return position
    return -1


def too_deep(text: str) -> bool:
    """Whether brackets are nested deeper than in any answer."""
    depth = 0
    for character in text:
        depth += (character in OPENING) - (character in CLOSING)
        if depth > MAX_DEPTH:
            return True
    return False


def is_interval(series: Series) -> bool:
    """Whether a series has the shape of an interval."""
    return len(series.brackets) == 2 and series.brackets != "{}" and len(series.items) == 2


def squeezed(text: str) -> str:
    """The text without spaces and grouping that carries no meaning."""
    return re.sub(r"\s+", "", text)
