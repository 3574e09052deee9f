"""The command on small logs: its words, its JSON, its exit codes, its figure."""

import json
from pathlib import Path

import numpy as np
import pytest

from isentrope.commands.fit import Options, run
from isentrope.errors import ConfigError, DataError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A verl log of 100 steps on R = 0.9 - 0.3 exp(H), validated every 5 steps after the update."""
    rng = np.random.default_rng(0)
    h = 1 / (1 + 0.1 * np.arange(101))
    r = 0.9 - 0.3 * np.exp(h) + 0.003 * rng.normal(size=101)
    rows = []
    for s in range(1, 101):
        row = f"step:{s} - actor/entropy:{h[s - 1]:.6f} - critic/rewards/mean:{r[s - 1]:.6f}"
        rows.append(row + (f" - val-core/m/acc/mean@1:{r[s]:.6f}\n" if s % 5 == 0 else "\n"))
    path = tmp_path / "run.log"
    path.write_text("".join(rows))
    return path


def test_the_words_of_a_run_on_which_the_law_holds(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(Options(logs=(str(log),))) == 0
    text = capsys.readouterr().out
    assert "verl, console log" in text
    assert "The law holds on val-core/m/acc/mean@1: R2" in text
    assert "ceiling at zero entropy 0.6" in text
    assert "by equal" in text
    assert "next: isentrope fit" in text
    assert max(map(len, text.splitlines())) <= 80


def test_json_carries_the_numbers(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(logs=(str(log),), json=True, backtest=True)) == 0
    (study,) = json.loads(capsys.readouterr().out)
    train, validation = study["fits"]
    assert train["reward"] == "critic/rewards/mean"
    assert train["law"]["a"] == pytest.approx(0.3, abs=0.01)
    assert validation["law"]["ceiling"] == pytest.approx(0.6, abs=0.01)
    assert validation["paired_by"] == "policy"
    assert validation["law"]["points"] == 19  # the last validation has no entropy after it
    assert validation["law_by_equal_step"]["points"] == 20
    assert [b["fraction"] for b in train["backtest"]] == [0.05, 0.1, 0.15, 0.2, 0.3, 0.5]
    assert train["backtest"][2]["rmse_own_trend"] < 0.02


def test_until_forecasts_the_rest_of_the_run(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(logs=(str(log),), until=0.5, json=True)) == 0
    (study,) = json.loads(capsys.readouterr().out)
    train = study["fits"][0]
    assert train["law"]["points"] == 50
    assert train["forecast"]["steps"][0] == 51
    assert train["forecast"]["reward"][-1] == pytest.approx(0.9 - 0.3 * np.exp(1 / 10.9), abs=0.01)


def test_more_steps_go_beyond_the_end(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(logs=(str(log),), more=50, json=True)) == 0
    (study,) = json.loads(capsys.readouterr().out)
    assert study["fits"][0]["forecast"]["steps"][-1] == pytest.approx(150)


def test_a_figure_is_written_in_each_format(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        path = tmp_path / f"law.{suffix}"
        options = Options(logs=(str(log),), reward="critic/rewards/mean", figure=path)
        assert run(options) == 0
        assert path.read_bytes().startswith(start)
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        run(Options(logs=(str(log),), figure=tmp_path / "law.txt"))


def test_one_bad_log_among_several_is_named_and_changes_the_exit_code(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Options(logs=(str(log), str(log.parent / "absent.log")))) == 2
    assert "no file or folder" in capsys.readouterr().out
    with pytest.raises(DataError, match="no file or folder"):
        run(Options(logs=(str(log.parent / "absent.log"),)))


def test_a_run_on_which_the_law_fails_gets_no_ceiling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        f"step:{s} - actor/entropy:{0.2 + s / 50} - critic/rewards/mean:{1 - s / 200}\n"
        for s in range(100)
    )
    path = tmp_path / "bad.log"
    path.write_text("".join(rows))
    assert run(Options(logs=(str(path),))) == 0
    text = capsys.readouterr().out
    assert "The law does not hold on critic/rewards/mean: entropy explodes" in text
    assert "ceiling at zero entropy" not in text
    assert "watch explosion from step" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logs": ()}, "no log given"),
        ({"logs": ("x",), "until": 1.5}, "between 0 and 1, not 1.5"),
        ({"logs": ("x",), "more": 0}, "at least 1"),
        ({"logs": ("x",), "level": 90.0}, "0.9 is 90 %"),
    ],
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**options)
