"""Readers of logs that are tables or JSON: one row a step, in whatever container.

JSON lines (verl's file logger, prime-rl, ms-swift, isentrope, anything flat), JSON lists of rows
(TRL step logs), the Hugging Face trainer_state.json, CSV, and the CSV export of a wandb chart.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from isentrope.errors import DataError
from isentrope.runs.record import Columns, number
from isentrope.runs.rules import FRAMEWORKS, meaning_of

__all__ = ["STEP_KEYS", "read_csv", "read_json_lines", "read_rows", "step_of"]

Runs = dict[str, Columns]
"""Columns by the name of the run; "" where the file holds one run and does not name it."""

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "rollout/step",
    "global_step/max_steps",  # ms-swift, as "5/100"
    "_step",
    "Step",
    "steps",
    "iteration",
)
WRAPPERS = ("data", "metrics")  # verl writes {"step": 1, "data": {...}}
AGGREGATES = ("__MIN", "__MAX")  # of a wandb chart's smoothing window


def read_json_lines(path: Path) -> Runs:
    """One JSON object a line; lines that do not parse, torn ones above all, are counted and skipped."""
    columns = Columns()

    def rows() -> Iterator[Mapping[str, object]]:
        bad: list[int] = []
        index = 0
        with path.open("rb") as file:
            for index, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                except ValueError:
                    row = json_after_cleaning(line)
                if isinstance(row, dict):
                    yield row
                elif line.strip(b" \t\r\n\0"):
                    bad.append(index)
        columns.notes.extend(torn_lines(bad, index))

    add_rows(columns, rows())
    return {"": columns}


def json_after_cleaning(line: bytes) -> object:
    """The object of a line that holds NUL bytes, as a crash leaves them; None if it is none."""
    try:
        return json.loads(line.replace(b"\0", b""))
    except ValueError:
        return None


def torn_lines(bad: Sequence[int], last: int) -> list[str]:
    """Notes about lines that were no JSON objects."""
    notes = []
    if bad and bad[-1] == last:
        notes.append(f"the last line ({last}) is torn: skipped")
        bad = bad[:-1]
    if bad:
        notes.append(f"{len(bad)} line(s) are no JSON objects, the first is line {bad[0]}: skipped")
    return notes


def read_rows(rows: Iterable[object]) -> Runs:
    """Rows of a JSON list, or the log_history of a trainer_state.json."""
    columns = Columns()
    add_rows(columns, (row for row in rows if isinstance(row, dict)))
    return {"": columns}


def add_rows(columns: Columns, rows: Iterable[Mapping[str, object]]) -> None:
    """Adds rows that carry their step; those without are numbered."""
    unnumbered = 0
    for count, row in enumerate(rows, 1):
        step = step_of(row)
        if step is None:
            step, unnumbered = count, unnumbered + 1
        for wrapper in WRAPPERS:
            inner = row.get(wrapper)
            if isinstance(inner, dict):
                row = inner
        columns.add(step, row)
    if unnumbered:
        columns.notes.append(f"{unnumbered} row(s) carry no step: numbered by their place")


def step_of(row: Mapping[str, object]) -> int | None:
    """The step of a row, from the first key that is one of the usual names."""
    for key in STEP_KEYS:
        value = row.get(key)
        if value is not None:
            found = whole(value)
            if found is not None:
                return found
    return None


def whole(value: object) -> int | None:
    """A step written as 5, 5.0, "5" or "5/100"."""
    found = number(value.partition("/")[0] if isinstance(value, str) else value)
    return int(found) if found is not None and abs(found) < 2**62 else None


def read_csv(path: Path) -> Runs:
    """A table with a header; where its columns read "{run} - {metric}" one run a name."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        dialect = "excel-tab" if "\t" in file.readline() else "excel"
        file.seek(0)
        table = csv.reader(without_nul(file), dialect)
        header = [name.strip() for name in next(table, [])]
        place = next((header.index(key) for key in STEP_KEYS if key in header), None)
        if is_wandb_export(header):
            return wandb_columns(header, table)
        return {"": plain_columns(header, table, place)}


def without_nul(file: TextIO) -> Iterator[str]:
    """The lines of a file without NUL characters, which the csv module refuses."""
    return (line.replace("\0", "") for line in file)


def plain_columns(header: Sequence[str], table: Iterator[list[str]], place: int | None) -> Columns:
    """The columns of an ordinary CSV file."""
    columns = Columns()
    short = 0
    for count, cells in enumerate(table, 1):
        if len(cells) < len(header):
            short += bool(cells)
            continue
        step = count if place is None else whole(cells[place])
        if step is not None:
            columns.add(step, numbers_of(header, cells))
    if place is None:
        columns.notes.append("no column is a step: rows are numbered")
    if short:
        columns.notes.append(f"{short} row(s) have too few cells, torn perhaps: skipped")
    return columns


def numbers_of(header: Sequence[str], cells: Sequence[str]) -> dict[str, object]:
    """The cells of a row by column: all of them as floats where they are, else as they stand."""
    try:
        return dict(zip(header, map(float, cells), strict=False))
    except ValueError:
        return dict(zip(header, cells, strict=False))


def is_wandb_export(header: Sequence[str]) -> bool:
    """Whether a header is that of a chart's export: a step, then "{run} - {metric}" throughout."""
    return len(header) > 1 and all(" - " in name for name in header[1:])


def wandb_columns(header: Sequence[str], table: Iterator[list[str]]) -> Runs:
    """The runs of a chart's export; its minima and maxima are left out."""
    places = [
        (i, *split_name(name, header[1:]))
        for i, name in enumerate(header)
        if i and not name.endswith(AGGREGATES)
    ]
    runs: Runs = {run: Columns() for _, run, _ in places}
    for cells in table:
        step = whole(cells[0]) if cells else None
        if step is None:
            continue
        for i, run, metric in places:
            if i < len(cells) and cells[i]:
                runs[run].add(step, {metric: cells[i]})
    return runs


def split_name(name: str, others: Sequence[str]) -> tuple[str, str]:
    """(run, metric) of a column "{run} - {metric}", though both may hold " - " themselves.

    The metric is one that some framework writes; failing that the longest ending that every
    column shares; failing that what follows the last " - ".
    """
    parts = name.split(" - ")
    splits = [(" - ".join(parts[:i]), " - ".join(parts[i:])) for i in range(1, len(parts))]
    for run, metric in splits:
        if any(meaning_of(metric, framework) for framework in FRAMEWORKS):
            return run, metric
    for run, metric in splits:
        plain = [other for other in others if not other.endswith(AGGREGATES)]
        if len(plain) > 1 and all(other.endswith(" - " + metric) for other in plain):
            return run, metric
    return splits[-1]


def load_json(path: Path) -> object:
    """The value of a JSON file, bare NaN allowed; DataError where it does not parse."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace").replace("\0", ""))
    except ValueError as error:
        raise DataError(f"{path} is no complete JSON: {error}") from error
