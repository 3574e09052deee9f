"""Readers of console output: what a run printed, with everything else that was printed around it.

Two kinds of lines are looked for: verl's `step:N - key:value - key:value`, and Python or JSON
dicts of numbers (TRL, slime's `eval 5: {...}`, ROLL). Ray prefixes, ANSI colours, progress bars
ended by carriage returns and NUL bytes are removed.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from isentrope.runs.record import Columns, number
from isentrope.runs.rows import Runs, step_of

__all__ = ["read_console", "read_notebook"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STEP_LINE = re.compile(r"(?:^|[\s)\]>])step:(\d+)(?: - |\s*$)")
NUMBERED_DICT = re.compile(r"(\d+)\s*:?\s*$")
NOT_JSON = re.compile(r"\b(?:nan|inf|None|True|False)\b|\(")
WRAPPED_NUMBER = re.compile(r"(?:np|numpy)\.\w+\(([^()]*)\)|tensor\(([^(),]*)[^()]*\)")
CONSTANTS = {"nan": "NaN", "inf": "Infinity", "None": "null", "True": "true", "False": "false"}
CONSTANT = re.compile(r"\b(?:nan|inf|None|True|False)\b")
SUMMARY_PREFIXES = ("eval_", "eval/", "train_runtime")


def read_console(path: Path) -> Runs:
    """The rows of a console log."""
    with path.open("rb") as file:
        return {"": scan(file)}


def read_notebook(notebook: Mapping[str, object]) -> Runs:
    """The rows of the console logs in a Jupyter notebook's outputs."""
    return {"": scan(line.encode() for line in output_lines(notebook))}


def output_lines(notebook: Mapping[str, object]) -> Iterator[str]:
    """The lines that the cells of a notebook printed."""
    cells = notebook.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain") or ""
            yield from ("".join(text)).splitlines(keepends=True)


def scan(lines: Iterable[bytes]) -> Columns:
    """The columns of all rows found in lines of bytes."""
    log = ConsoleLog()
    line = b"\n"
    for line in lines:
        if b"step:" in line or b"{" in line:
            for segment in clean(line).split("\r"):
                log.take(segment)
    return log.finish(whole_line=line.endswith(b"\n"))


def clean(line: bytes) -> str:
    """The text of a line without NUL bytes, colours, and line end."""
    text = line.decode("utf-8", errors="replace").replace("\0", "").rstrip("\r\n")
    return ANSI.sub("", text) if "\x1b" in text else text


class ConsoleLog:
    """Collects rows; a step line is held back until it is known not to be torn.

    Where there are step lines, the dicts between them are settings, not rows.
    """

    def __init__(self) -> None:
        self.lines = Columns()
        self.dicts = Columns()
        self.held: tuple[int, dict[str, float]] | None = None
        self.before: list[dict[str, float]] = []
        self.count = 0
        self.open_dict = False

    def take(self, text: str) -> None:
        """Looks for a row in one cleaned line."""
        match = STEP_LINE.search(text) if "step:" in text else None
        self.open_dict = False
        if match:
            self.hold(int(match[1]), verl_items(text[match.end() :]))
        elif "{" in text:
            self.take_dict(text)

    def hold(self, step: int, row: dict[str, float]) -> None:
        """Adds the row before, now that another follows."""
        if self.held:
            self.lines.add(*self.held)
            self.before = [*self.before[-1:], self.held[1]]
        self.held = step, row

    def take_dict(self, text: str) -> None:
        """Takes a dict of numbers: its step is its own, or stands before it, or is its place."""
        start, end = text.index("{"), text.rfind("}") + 1
        self.open_dict = end <= start
        row = None if self.open_dict else parse_dict(text[start:end])
        if row is None or sum(number(value) is not None for value in row.values()) < 2:
            return
        step = step_of(row)
        if step is None:
            before = NUMBERED_DICT.search(text[:start])
            step = int(before[1]) if before else self.place(row)
        self.dicts.add(step, row)

    def place(self, row: Mapping[str, object]) -> int:
        """The number of a row without a step; evaluations and summaries share the last one's."""
        if not any(key.startswith(SUMMARY_PREFIXES) for key in row):
            if self.count == 0:
                self.dicts.notes.append("rows carry no step: numbered 1, 2, 3, ...")
            self.count += 1
        return self.count

    def finish(self, *, whole_line: bool) -> Columns:
        """All rows, the held one too unless the file ends inside it: without a usual key."""
        if self.held is None:
            if self.open_dict and not whole_line:
                self.dicts.notes.append("the last line is torn: skipped")
            return self.dicts
        step, row = self.held
        usual = set[str]().union(*self.before[-1:]).intersection(*self.before)
        if whole_line or usual <= row.keys():
            self.lines.add(step, row)
        else:
            self.lines.notes.append(f"the last line (step {step}) is torn: skipped")
        return self.lines


def verl_items(text: str) -> dict[str, float]:
    """The numbers of `key:value - key:value`; a key may hold colons and " - " itself."""
    row: dict[str, float] = {}
    begun = ""
    for part in text.split(" - "):
        key, colon, value = part.rpartition(":")
        if not colon:
            begun += part + " - "  # the first piece of a key that holds " - "
            continue
        try:
            found = float(value)
        except ValueError:
            found = number(value.partition(" ")[0])  # after it: "[repeated 2x across cluster]"
        if found is not None:
            row[begun + key] = found
        begun = ""
    return row


def parse_dict(text: str) -> dict[str, object] | None:
    """The dict that a Python or JSON program printed on one line, or None."""
    plain = text.replace("'", '"')
    if NOT_JSON.search(plain):
        plain = WRAPPED_NUMBER.sub(lambda match: match[1] or match[2], plain)
        plain = CONSTANT.sub(lambda match: CONSTANTS[match[0]], plain)
    try:
        row = json.loads(plain)
    except ValueError:
        row = literal(text)
    return row if isinstance(row, dict) and all(isinstance(key, str) for key in row) else None


def literal(text: str) -> object:
    """The Python literal of a line, or None: for strings that hold quotation marks."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
