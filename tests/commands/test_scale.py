"""The command over model sizes: its words and its JSON."""

import json
from math import log
from pathlib import Path

import pytest

from isentrope.commands.scale import Options, run
from isentrope.errors import ConfigError


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    """Three models on a = 0.1 + 0.02 ln N, b = 0.5 + 0.04 ln N, and one to predict."""
    rows = [
        f'[[run]]\nfamily = "F"\nparameters = {n}\na = {0.1 + 0.02 * log(n)}\nb = {0.5 + 0.04 * log(n)}\n'
        for n in (5e8, 1.5e9, 7e9)
    ]
    path = tmp_path / "runs.toml"
    path.write_text("\n".join(rows) + '[[predict]]\nfamily = "F"\nparameters = 1e11\n')
    return path


def test_the_words(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(runs=ladder)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "F: a = 0.100 +0.020 ln N, b = 0.500 +0.040 ln N, N parameters, 3 runs" in text
    assert f"ceiling {0.4 + 0.02 * log(1e11):.3f}" in text
    assert "14 times the largest model: far" in text


def test_the_json(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(runs=ladder, json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in found["runs"]] == ["given"] * 3
    assert found["predictions"][0]["a"] == pytest.approx(0.1 + 0.02 * log(1e11))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        run(Options(runs=tmp_path / "absent.toml"))
