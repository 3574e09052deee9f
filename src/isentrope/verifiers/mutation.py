"""Answers with something changed, which no longer are the answer."""

import re
from collections.abc import Iterator

from isentrope.verifiers.answers import Series, read_answer, split
from isentrope.verifiers.extraction import last_boxed

__all__ = ["MUTATIONS", "mutations"]

MUTATIONS = ("digit changed", "sign flipped", "element dropped")
DIGIT = re.compile(r"\d(?!.*\d)", re.DOTALL)
TERM_START = re.compile(r"(?:^|(?<=[,;]))(?:[\s$(\[{]|\\[{(\[]|\\left|\\text\{|\\begin\{[a-z]*\})*")
ZERO = re.compile(r"\s*0(?:\.0+)?(?![\d.])")


def mutations(gold: str) -> dict[str, str]:
    """The gold answer with its last digit, its sign, or its number of elements changed."""
    changed = dict(found(last_boxed(gold) or gold))
    return {kind: answer for kind, answer in changed.items() if answer.strip() != gold.strip()}


def found(gold: str) -> Iterator[tuple[str, str]]:
    """The mutations that make sense for a gold answer."""
    if match := DIGIT.search(gold):
        digit = (int(match[0]) + 1) % 10
        yield "digit changed", gold[: match.start()] + str(digit) + gold[match.end() :]
    readings = read_answer(gold)
    if (
        r"\pm" not in gold
        and re.search(r"\d", gold)
        and not re.fullmatch(r"[\s$]*[-+]?0+(?:\.0+)?[\s$]*", gold)
    ):
        yield "sign flipped", flip_sign(gold)
    if readings and isinstance(readings[0], Series) and len(readings[0].items) > 1:
        shorter = drop_element(gold)
        if shorter is not None:
            yield "element dropped", shorter


def flip_sign(gold: str) -> str:
    """The gold answer with the sign of the first term changed that is not 0."""
    starts = [match.end() for match in TERM_START.finditer(gold)]
    position = next((p for p in starts if not ZERO.match(gold, p)), None)
    if position is None:
        return gold
    left, equals, right = gold.rpartition("=")
    if equals and ZERO.match(right) and not re.search(r".[-+]", left.strip()):
        return gold
    if equals and not ZERO.match(gold, gold.rfind("=") + 1):
        position = gold.rfind("=") + 1
    while gold[position : position + 1] == " ":
        position += 1
    if gold[position : position + 1] == "-":
        return gold[:position] + gold[position + 1 :]
    return gold[:position] + "-" + gold[position:]


def drop_element(gold: str) -> str | None:
    """The gold answer without its last element, or None where there is no comma to find."""
    opening = re.search(r"[(\[{]", gold)
    for text, head, tail in ((gold, "", ""), *inside(gold, opening)):
        parts = split(text, ",;")
        if len(parts) > 1:
            return head + ",".join(parts[:-1]) + tail
    return None


def inside(gold: str, opening: re.Match[str] | None) -> Iterator[tuple[str, str, str]]:
    """What is between the first and the last bracket, and what is around it."""
    closing = max(gold.rfind(bracket) for bracket in ")]}")
    if opening is not None and closing > opening.start():
        end = closing - 1 if gold[closing - 1] == "\\" else closing
        while gold[:end].endswith(("\\right", " ")):
            end -= 6 if gold[:end].endswith("\\right") else 1
        yield gold[opening.end() : end], gold[: opening.end()], gold[end:]
