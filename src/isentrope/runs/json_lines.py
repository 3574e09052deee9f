"""JSON lines that isentrope wrote itself: one rule for a line that a killed process left unfinished.

A last line that does not end and is no JSON is torn. A reader leaves it out and never writes; what
goes on writing cuts it off first.
"""

import json
from pathlib import Path
from typing import Any

from isentrope.errors import DataError

__all__ = ["cut_torn_line", "read_objects"]


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, one a line, without a torn last one; of none where there is no file.

    DataError for another line that is no JSON object.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline after it: the write was cut off
                break
            raise DataError(
                f"{path}, line {number} is not JSON ({error.msg}): {line[:60]!r}"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, found {line[:60]!r}")
        rows.append(row)
    return rows


def cut_torn_line(path: Path) -> None:
    """Makes a file, if it is there, ready for further lines: ends its last one, or cuts it off."""
    data = path.read_bytes() if path.exists() else b""
    last = data[data.rfind(b"\n") + 1 :]
    if not last:
        return
    try:
        json.loads(last)
    except ValueError:
        with path.open("r+b") as file:
            file.truncate(len(data) - len(last))
    else:
        with path.open("ab") as file:
            file.write(b"\n")
