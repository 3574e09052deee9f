"""The lines that isentrope wrote itself: a reader never writes, a writer cuts what is torn."""

from pathlib import Path

import pytest

from isentrope.errors import DataError
from isentrope.runs.json_lines import cut_torn_line, read_objects


@pytest.mark.parametrize(
    ("text", "rows", "ready"),
    [
        ('{"a": 1}\n{"a": 2}\n', [1, 2], '{"a": 1}\n{"a": 2}\n'),
        ('{"a": 1}\n{"a": 2}', [1, 2], '{"a": 1}\n{"a": 2}\n'),  # whole, but for its end
        ('{"a": 1}\n{"a": 2, "b', [1], '{"a": 1}\n'),
        ('{"a"', [], ""),
        ("", [], ""),
    ],
)
def test_what_is_torn_is_left_out_and_cut_by_a_writer_alone(
    tmp_path: Path, text: str, rows: list[int], ready: str
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text)
    assert [row["a"] for row in read_objects(file)] == rows
    assert file.read_text() == text
    cut_torn_line(file)
    assert file.read_text() == ready


def test_a_file_that_is_not_there_has_no_rows_and_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    assert read_objects(file) == []
    cut_torn_line(file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": 2, "b\n{"a": 3}\n', "line 2 is not JSON"),
        ('{"a": 2, "b\n', "line 1 is not JSON"),  # its newline is there: not torn
        ("[1]\n", "line 1: expected a JSON object"),
    ],
)
def test_another_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_objects(tmp_path / "x.jsonl")
