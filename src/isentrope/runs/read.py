"""From a path to runs: finds out which format it is, reads it, and gives the keys their meaning."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from isentrope.errors import ConfigError, DataError
from isentrope.runs.console import read_console, read_notebook
from isentrope.runs.folder import is_run_folder, read_folder
from isentrope.runs.record import Columns, Meaning, Record, Series
from isentrope.runs.rows import STEP_KEYS, Runs, load_json, read_csv, read_json_lines, read_rows
from isentrope.runs.rules import Framework, framework_of, meaning_of
from isentrope.runs.tensorboard import event_files, read_events
from isentrope.runs.wandb_api import WANDB_PREFIX, read_wandb

__all__ = ["READABLE", "read_run", "read_runs"]

READABLE = """\
  a run folder of isentrope, or of another trainer (metrics.jsonl, logging.jsonl, trainer_state.json)
  console output: verl, TRL, slime, ROLL; also inside a Jupyter notebook
  JSON lines, a JSON list of rows, a Hugging Face trainer_state.json
  CSV, and the CSV export of a wandb chart
  TensorBoard event files, one or a folder of them
  wandb:ENTITY/PROJECT/RUN, over the network
Keys that no rule knows are named with --entropy KEY --reward KEY."""

HEAD = 65_536
COARSE = 0.001  # older verl prints three decimals
OTHER_STATISTICS = ("entropy/prompt_median", "entropy/prompt_std")
"""Of the policy's entropy, and no means that the law is about."""

SMALL = 0.05  # an entropy below this is badly resolved by three decimals


def read_run(
    path: str | Path,
    *,
    run: str | None = None,
    entropy: str | None = None,
    reward: str | None = None,
) -> Record:
    """The run at `path`; `run` chooses among several of one file. See `read_runs`."""
    records = read_runs(path, entropy=entropy, reward=reward)
    names = [record.name for record in records]
    if run is not None:
        records = [record for record in records if record.name == run]
    if len(records) == 1:
        return records[0]
    problem = "holds several runs" if run is None else f"holds no run {run!r}"
    raise DataError(f"{path} {problem}; choose one of: {', '.join(names)}")


def read_runs(
    path: str | Path, *, entropy: str | None = None, reward: str | None = None
) -> list[Record]:
    """All runs at `path`: a file, a folder, or "wandb:ENTITY/PROJECT/RUN".

    The format is detected, and named in each record. `entropy` and `reward` name keys that are to
    be used whatever the rules say. Raises DataError where nothing can be read.
    """
    text = str(path)
    if text.startswith(WANDB_PREFIX):
        container, runs = "wandb API", read_wandb(text.removeprefix(WANDB_PREFIX))
    else:
        container, runs = open_path(Path(path))
    named = {key: role for key, role in ((entropy, "entropy"), (reward, "reward")) if key}
    records = [
        interpret(text, name or Path(path).name, container, columns, named)
        for name, columns in runs.items()
    ]
    if not any(record.series for record in records):
        raise DataError(
            f"no rows of numbers in {path}, read as {container}; readable are:\n{READABLE}"
        )
    return records


def open_path(path: Path) -> tuple[str, Runs]:
    """(container, columns by run) of a file or a folder."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if path.is_dir():
        return open_folder(path)
    if "tfevents" in path.name:
        return "TensorBoard events", read_events([path])
    if path.suffix == ".wandb":
        raise DataError(
            f"{path} is wandb's binary log; upload it with `wandb sync` and give "
            "wandb:ENTITY/PROJECT/RUN, or export the chart as CSV"
        )
    if path.suffix in (".csv", ".tsv"):
        return "CSV", read_csv(path)
    return open_text(path)


def open_folder(path: Path) -> tuple[str, Runs]:
    """(container, columns) of a folder that a trainer wrote."""
    if is_run_folder(path):
        return "run folder", read_folder(path)
    for name in ("metrics.jsonl", "logging.jsonl"):
        if (path / name).is_file():
            return "JSON lines", read_json_lines(path / name)
    state = latest_state(path)
    if state:
        return open_text(state)
    events = event_files(path)
    if events:
        return "TensorBoard events", read_events(events)
    raise DataError(f"no log that can be read in the folder {path}; readable are:\n{READABLE}")


def latest_state(path: Path) -> Path | None:
    """The trainer_state.json of a checkpoint folder, or of the last checkpoint in a folder."""
    states = [*path.glob("trainer_state.json"), *path.glob("checkpoint-*/trainer_state.json")]
    return max(states, key=lambda state: checkpoint_number(state.parent.name), default=None)


def checkpoint_number(name: str) -> int:
    """The step in "checkpoint-1200"; beyond all of them for a folder of another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", name)
    return int(match[1]) if match else 2**62


def open_text(path: Path) -> tuple[str, Runs]:
    """(container, columns) of a text file, from how it begins."""
    with path.open("rb") as file:
        head = file.read(HEAD).lstrip(b"\xef\xbb\xbf\0 \t\r\n")
    if not head:
        raise DataError(f"{path} is empty")
    first = head.split(b"\n", 1)[0]
    if head[:1] == b"{" and is_object(first) and b'"log_history"' not in first:
        return "JSON lines", read_json_lines(path)
    if head[:1] in b"{[":
        opened = open_json(path)
        if opened:
            return opened
    if first.count(b",") and any(
        key in first.decode(errors="replace").split(",") for key in STEP_KEYS
    ):
        return "CSV", read_csv(path)
    return "console log", read_console(path)


def is_object(line: bytes) -> bool:
    """Whether a line is one complete JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def open_json(path: Path) -> tuple[str, Runs] | None:
    """(container, columns) of a file that is one JSON value; None for what only looks like one."""
    try:
        value = load_json(path)
    except DataError:
        if path.suffix in (".json", ".ipynb"):
            raise
        return None
    if isinstance(value, list):
        return "JSON list", read_rows(value)
    if isinstance(value, dict) and isinstance(value.get("log_history"), list):
        return "trainer_state.json", read_rows(value["log_history"])
    if isinstance(value, dict) and "cells" in value:
        return "notebook", read_notebook(value)
    if isinstance(value, dict):
        return "JSON lines", read_rows([value])
    return None


def interpret(
    path: str, name: str, container: str, columns: Columns, named: Mapping[str, str]
) -> Record:
    """A record with the meaning of its keys, by the framework's rules and the names given."""
    series = columns.build()
    missing = [key for key in named if key not in series]
    if missing and series:
        raise ConfigError(f"there is no key {missing[0]!r} in {path}; {alike(missing[0], series)}")
    framework = framework_of(series)
    meanings = by_rules(series, framework)
    for key, role in named.items():
        meanings[key] = (-1, given(meanings.get(key), role))
    notes = list(columns.notes)
    for key in [key for key, (_, m) in meanings.items() if m.role == "entropy"]:
        values = series[key].values
        if not values.any():
            notes.append(f"{key} is 0.0 in all {len(values)} rows: it was not measured")
            del meanings[key]
        else:
            notes.extend(remarks(key, values, meanings[key][1]))
    known = sorted(meanings, key=lambda key: (meanings[key][0], key))
    ordered = [replace(series[key], meaning=meanings[key][1]) for key in known]
    ordered += [line for key, line in series.items() if key not in meanings]
    rules_know = {key for key in series if framework and meaning_of(key, framework)}
    return Record(
        path=path,
        name=name,
        format=f"{framework.name if framework else 'flat keys'}, {container}",
        series={line.key: line for line in ordered},
        notes=tuple(notes),
        entropy_hint=framework.without_entropy if framework else "",
        unknown_entropy_keys=tuple(
            key
            for key in sorted(series)
            if "entropy" in key.lower()
            and key not in meanings
            and key not in rules_know
            and not key.endswith(OTHER_STATISTICS)
        ),
    )


def by_rules(
    series: Mapping[str, Series], framework: Framework | None
) -> dict[str, tuple[int, Meaning]]:
    """(preference, meaning) of the keys that the framework's rules know."""
    if framework is None:
        return {}
    found = ((key, meaning_of(key, framework)) for key in series)
    return {key: meaning for key, meaning in found if meaning}


def given(known: tuple[int, Meaning] | None, role: str) -> Meaning:
    """The meaning of a key that the user named: what the rules say, if it fits the role."""
    if known and (known[1].role == "entropy") == (role == "entropy"):
        return known[1]
    if role == "entropy":
        return Meaning(role="entropy", kind="unknown", aggregation="unknown", temperature="unknown")
    return Meaning(role="train", metric="as named")


def remarks(key: str, values: np.ndarray, meaning: Meaning) -> list[str]:
    """What the reader of an entropy should know: its rule's note, and a coarse resolution."""
    notes = [f"{key}: {meaning.note}"] if meaning.note else []
    rounded = np.abs(values - np.round(values, 3)) < 1e-9
    if rounded.all() and values.min() < SMALL:
        notes.append(f"{key} was printed with three decimals, coarse below {SMALL}")
    return notes


def alike(key: str, series: Mapping[str, Series]) -> str:
    """The keys that the user may have meant."""
    words = [word for word in re.split(r"[^a-z0-9]+", key.lower()) if len(word) > 2]
    close = [name for name in series if any(word in name.lower() for word in words)]
    listed = close or list(series)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return f"there are: {', '.join(listed[:20])}{more}"
