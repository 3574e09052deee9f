"""`isentrope verify` on small files."""

import json
from pathlib import Path

import pytest

from isentrope.commands.verify import Options, run
from isentrope.errors import ConfigError, DataError

pytest.importorskip("math_verify")


def write(path: Path, golds: list[str]) -> str:
    path.write_text("".join(json.dumps({"problem": "p", "answer": gold}) + "\n" for gold in golds))
    return str(path)


def test_sound_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "good.jsonl", ["5", "\\frac{1}{2}", "(1, 2)", "1, 2"])
    assert run(Options(files=(path,))) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "good.jsonl" in line)
    cells = [cell.strip() for cell in line.strip("\u2502| ").split("\u2502")]
    assert cells == ["good.jsonl", "4", "4", "0", "4 of 4", "4 of 4", "2 of 2"]


def test_gold_that_cannot_be_judged_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "bad.jsonl", ["5", ""])
    assert run(Options(files=(path,))) == 1
    assert "row 2: itself: '' and '' are judged unjudgeable" in capsys.readouterr().out


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one data file"):
        run(Options(files=()))
    with pytest.raises(DataError, match="there is no file"):
        run(Options(files=(str(tmp_path / "x.jsonl"),)))
    path = write(tmp_path / "x.jsonl", ["5"])
    with pytest.raises(ConfigError, match="no preset 'mth'"):
        run(Options(files=(path,), preset="mth"))
