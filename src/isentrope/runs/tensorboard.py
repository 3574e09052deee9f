"""Reader of TensorBoard event files: the scalars, every one of them, with nothing but the stdlib.

A file is a sequence of records (length, checksum, message, checksum); a message is an Event of
protocol buffers: step = field 2, summary = 5, its values = 1 with tag = 1, simple_value = 2 and
tensor = 8. TensorBoard's own loader keeps 10,000 points a tag by default; this keeps all.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from isentrope.errors import DataError
from isentrope.runs.record import Columns
from isentrope.runs.rows import Runs

__all__ = ["event_files", "read_events"]

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
FLOAT_TYPE, DOUBLE_TYPE = 1, 2


def event_files(folder: Path) -> list[Path]:
    """The event files anywhere below a folder, oldest first: their names hold the time."""
    return sorted(folder.rglob("*tfevents*"), key=lambda path: (path.parent, path.name))


def read_events(files: list[Path]) -> Runs:
    """The scalars of event files; files of one folder are one run, a later file after an earlier."""
    runs: Runs = {}
    top = Path(files[0].parent) if len({path.parent for path in files}) == 1 else None
    for path in files:
        name = "" if top else str(path.parent)
        read_file(path, runs.setdefault(name, Columns()))
    return runs


def read_file(path: Path, columns: Columns) -> None:
    """Adds the scalars of one file."""
    data = path.read_bytes()
    position, torn = 0, False
    try:
        for position, message in records(data):  # noqa: B007
            step, scalars = parse_event(message)
            if scalars:
                columns.add(step, dict(scalars))
    except (struct.error, IndexError, ValueError):
        torn = True
    if torn and not columns.count:
        raise DataError(f"{path} is no TensorBoard event file: no record can be read from it")
    if torn:
        columns.notes.append(f"{path.name} is torn after byte {position}: read up to there")


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(end, message) of each record."""
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        start, end = position + 12, position + 12 + length
        if end + 4 > len(data):
            raise ValueError("the last record is not complete")
        position = end + 4
        yield position, data[start:end]


def parse_event(message: bytes) -> tuple[int, list[tuple[str, float]]]:
    """(step, scalars) of an Event."""
    step, scalars = 0, []
    for field, value in fields(message):
        if field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            scalars = [s for f, v in fields(value) if f == 1 for s in scalar(v)]
    return step, scalars


def scalar(message: int | bytes) -> list[tuple[str, float]]:
    """[(tag, value)] of a Summary.Value, or [] where it is no scalar."""
    if isinstance(message, int):
        return []
    tag, number = "", None
    for field, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            tag = value.decode("utf-8", errors="replace")
        elif field == 2:
            (number,) = struct.unpack("<f", value)
        elif field == 8:
            number = tensor_scalar(value)
    return [] if number is None else [(tag, number)]


def tensor_scalar(message: bytes) -> float | None:
    """The number in a TensorProto of one float or double, as its content or as a list."""
    kind, content = 0, b""
    for field, value in fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if kind == FLOAT_TYPE and len(content) == 4:
        return struct.unpack("<f", content)[0]
    if kind == DOUBLE_TYPE and len(content) == 8:
        return struct.unpack("<d", content)[0]
    return None


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: an int for a varint, bytes for all else."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, position = varint(message, position)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"field of unknown kind {kind}")
        yield key >> 3, message[position : position + length]
        position += length


def varint(message: bytes, position: int) -> tuple[int, int]:
    """(value, next position) of a number in base 128, the lowest digit first."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
