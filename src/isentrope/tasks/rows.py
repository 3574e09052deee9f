"""Rows of data sets: JSON lines, JSON, CSV, Parquet, and data sets of the Hugging Face hub."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from isentrope.errors import DataError, require

__all__ = ["SUFFIXES", "Row", "field", "read_rows"]

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")

Row = Mapping[str, object]


def read_rows(source: str, split: str = "train") -> list[Row]:
    """The rows of a file, or of a split of a hub data set (`NAME` or `NAME:CONFIGURATION`)."""
    path = Path(source).expanduser()
    if path.is_file():
        rows = list(rows_of_file(path))
        if not rows:
            raise DataError(f"{path} holds no row")
        return rows
    if path.is_dir() or path.suffix in SUFFIXES or source.startswith((".", "/", "~")):
        raise DataError(
            f"there is no file {path}; give a file ({', '.join(SUFFIXES)}), or a hub id"
        )
    return list(rows_of_hub(source, split))


def rows_of_file(path: Path) -> Iterator[Row]:
    """The rows of one file, by its suffix."""
    if path.suffix == ".parquet":
        parquet = require("pyarrow.parquet", "data")
        yield from parquet.read_table(path).to_pylist()
    elif path.suffix in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines, delimiter="," if path.suffix == ".csv" else "\t")
            for number, row in enumerate(rows, 2):
                if None in row or None in row.values():
                    raise DataError(f"{path}, row {number}: not as many cells as the first row has")
                yield row
    elif path.suffix == ".json":
        rows = parse(path.read_text(encoding="utf-8"), path, 1)
        if not isinstance(rows, list):
            raise DataError(f"{path} holds no list of rows")
        yield from rows
    else:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = parse(line, path, number)
                    if not isinstance(row, dict):
                        raise DataError(f"{path}, line {number}: a row must be an object")
                    yield row


def parse(text: str, path: Path, line: int) -> object:
    """A JSON value, or a DataError that says where it is wrong."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}, line {line}: no JSON ({error})") from error


def rows_of_hub(source: str, split: str) -> Iterator[Row]:
    """The rows of one split of a hub data set; needs the `datasets` library and a connection."""
    name, _, configuration = source.partition(":")
    datasets = require("datasets", "data")
    try:
        yield from datasets.load_dataset(name, configuration or None, split=split)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the data set {source!r} (split {split!r}) could not be loaded: {error}; "
            "give the path of a file in its place"
        ) from error


def field(row: Row, path: str) -> object | None:
    """The value at a dotted path, such as reward_model.ground_truth; None where there is none."""
    value: object = row
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
