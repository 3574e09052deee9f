"""Reader of isentrope's own run folder: metrics.jsonl and evaluations.jsonl.

`step` s means in both: measured on the policy after s steps, before the update of that step.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from isentrope.runs.rows import Runs, read_json_lines, step_of, torn_lines

__all__ = ["is_run_folder", "read_folder"]


def is_run_folder(path: Path) -> bool:
    """Whether isentrope wrote this folder."""
    return (path / "metrics.jsonl").is_file() and (
        (path / "evaluations.jsonl").is_file() or (path / "config.toml").is_file()
    )


def read_folder(path: Path) -> Runs:
    """The columns of a run: the keys of the metrics, and eval/{source}/{key} of the evaluations."""
    runs = read_json_lines(path / "metrics.jsonl")
    evaluations = path / "evaluations.jsonl"
    if not evaluations.is_file():
        return runs
    columns, bad, index = runs[""], [], 0
    for index, line in enumerate(evaluations.read_bytes().splitlines(), 1):
        row = json_object(line)
        step = step_of(row) if row else None
        if row is None or step is None:
            bad.append(index)
            continue
        columns.add(step, evaluation_items(row))
    columns.notes.extend(f"evaluations.jsonl: {note}" for note in torn_lines(bad, index))
    return runs


def evaluation_items(row: Mapping[str, object]) -> dict[str, object]:
    """The numbers of one evaluation under names that tell data sets and k apart."""
    start = f"eval/{row.get('source', 'unnamed')}"
    names = {"reward/pass": f"reward/pass@{row.get('k', 1)}"}
    return {
        f"{start}/{names.get(key, key)}": value
        for key, value in row.items()
        if key not in ("step", "source", "k")
    }


def json_object(line: bytes) -> dict[str, object] | None:
    """The object of a line, or None."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
