"""Finding the final answer in a completion, without guessing.

A completion that does not mark its answer has none: taking the last number, or parsing the whole
text, rewards answers that were never given.
"""

import re
from collections.abc import Callable, Sequence

from isentrope.errors import ConfigError

__all__ = ["FORMATS", "extract_answer", "last_boxed"]

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
HASH = re.compile(r"^\s*####[ \t]*(\S.*?)\s*$", re.MULTILINE)
ANSWER = re.compile(r"^[ \t*]*answer[ \t*]*:[ \t*]*(\S.*?)[ \t*]*$", re.MULTILINE | re.IGNORECASE)
BOLD = re.compile(r"\*\*([^*\n]+)\*\*")


def extract_answer(text: str, formats: Sequence[str] = ("boxed",)) -> str | None:
    """The answer in the first of `formats` that the text uses; None without one, or an empty one.

    boxed   the last \\boxed{...} that is closed, the innermost of nested ones
    answer  the last line that starts with "Answer:"
    hash    the last line that starts with ####
    bold    the last **...** that is no heading
    line    the first line, for completions of a prompt that ends in "Answer:"
    """
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(
                f"there is no answer format {name!r}; the formats are: {', '.join(FORMATS)}"
            )
        answer = FORMATS[name](text)
        if answer is not None and answer.strip():
            return answer.strip()
    return None


def last_boxed(text: str) -> str | None:
    """What is inside the last \\boxed{...} or \\fbox{...} that is closed, or None."""
    for start in reversed([match.end() for match in BOX.finditer(text)]):
        content = up_to_closing_brace(text, start)
        if content is not None:
            return content
    return None


def up_to_closing_brace(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes the one before it; escaped ones are text."""
    depth = 1
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[start:position]
        position += 1
    return None


def last_hash(text: str) -> str | None:
    """The last line that starts with ####, without it."""
    lines = HASH.findall(text)
    return lines[-1] if lines else None


def last_answer_line(text: str) -> str | None:
    """The last line that starts with "Answer:", without it."""
    lines = ANSWER.findall(text)
    return lines[-1] if lines else None


def last_bold(text: str) -> str | None:
    """The last **...** that does not end in a colon."""
    bold = [part for part in BOLD.findall(text) if not part.strip().endswith(":")]
    return bold[-1] if bold else None


def first_line(text: str) -> str | None:
    """The first line that is not blank."""
    return next((line for line in text.splitlines() if line.strip()), None)


FORMATS: dict[str, Callable[[str], str | None]] = {
    "boxed": last_boxed,
    "answer": last_answer_line,
    "hash": last_hash,
    "bold": last_bold,
    "line": first_line,
}
