"""Trackers get the numbers of the log, and never end a run."""

# pyright: reportMissingImports=false
# The trackers are not in the environment that is type-checked.

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from isentrope.cli import main
from isentrope.commands.display import Display
from isentrope.config import TrainConfig
from isentrope.runs import read_run
from isentrope.training import tracker
from isentrope.training.trainer import train

Run = Callable[..., None]


class Fake:
    """Keeps what it gets; fails at one of its calls."""

    rows: list[tuple[str, int, Mapping[str, float]]]
    fail_at = -1

    def __init__(self, config: TrainConfig, folder: Path, first: int) -> None:
        self.name = tracker.identity(folder)
        self.check()

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.check()
        self.rows.append((self.name, step, numbers))

    def close(self) -> None:
        self.check()

    @classmethod
    def check(cls) -> None:
        cls.fail_at -= 1
        if cls.fail_at == 0:
            raise ConnectionError("no route to host\nand more")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setitem(tracker.TRACKERS, "wandb", ("json", Fake))
    Fake.rows, Fake.fail_at = [], -1
    return Fake


def lines(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def printed(config: TrainConfig, out: Path) -> str:
    console = Console(record=True, width=200, file=StringIO())
    with Display(console) as display:
        train(config, out, resume=False, display=display)
    return console.export_text()


def test_a_tracker_gets_the_lines_of_both_logs(
    tiny: TrainConfig, run: Run, tmp_path: Path, fake: type[Fake]
) -> None:
    out = tmp_path / "run"
    run(replace(tiny, tracker="wandb"), out)
    metrics, evaluations = lines(out / "metrics.jsonl"), lines(out / "evaluations.jsonl")
    kinds = ["evaluation/reward/avg" in numbers for _, _, numbers in fake.rows]
    assert [step for _, step, _ in fake.rows] == [0, 0, 1, 2, 3, 3, 4, 5, 6]
    assert kinds == [True, False, False, False, True, False, False, False, True]
    step_1 = {name: v for name, v in metrics[1].items() if v is not None and name != "step"}
    assert fake.rows[2][2] == step_1
    assert fake.rows[-1][2]["evaluation/reward/avg"] == evaluations[-1]["reward/avg"]


def test_a_resumed_run_is_the_same_run_of_the_tracker(
    tiny: TrainConfig, run: Run, tmp_path: Path, fake: type[Fake]
) -> None:
    config = replace(tiny, tracker="wandb", steps=2)
    run(config, tmp_path / "one")
    run(config, tmp_path / "one", resume=True)
    run(config, tmp_path / "two")
    names = [name for name, _, _ in fake.rows]
    assert len(set(names[:5])) == 1  # two steps and two evaluations, and one after resuming
    assert len(set(names)) == 2


@pytest.mark.parametrize("call", [1, 2, 4, 7])
def test_a_tracker_that_fails_is_off_and_the_run_goes_on(
    tiny: TrainConfig, tmp_path: Path, fake: type[Fake], call: int
) -> None:
    fake.fail_at = call  # it is opened, gets four rows, is closed: seven is never reached
    text = printed(replace(tiny, tracker="wandb", steps=2, evaluation=tiny.evaluation), tmp_path)
    note = "note: wandb failed and is off: no route to host; the run goes on"
    assert text.count(note) == (call < 7)
    assert len(fake.rows) == min(4, max(0, call - 2))
    assert len(lines(tmp_path / "metrics.jsonl")) == 2


def test_a_tracker_that_is_not_installed_is_said_at_once(
    tiny: TrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(tracker.TRACKERS, "wandb", ("no_such_package", Fake))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("tracker = 'wandb'\n")
    assert main(["train", str(recipe), "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'isentrope[trackers]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.extra
def test_tensorboard_s_files_hold_the_log(tiny: TrainConfig, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "run"
    run(replace(tiny, tracker="tensorboard"), out)
    series = read_run(out / "tensorboard").series
    metrics, evaluations = lines(out / "metrics.jsonl"), lines(out / "evaluations.jsonl")
    entropy, average = series["entropy/token_mean"], series["evaluation/reward/avg"]
    assert list(entropy.steps) == list(range(6))
    assert list(entropy.values) == pytest.approx([row["entropy/token_mean"] for row in metrics])
    assert list(average.values) == pytest.approx([row["reward/avg"] for row in evaluations])
    assert read_run(out).series.keys() >= {"entropy/token_mean"}  # the folder is still a run


@pytest.mark.extra
def test_wandb_works_without_a_network(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "run"
    text = printed(replace(tiny, tracker="wandb", steps=2), out)
    assert "failed" not in text
    (file,) = (out / "wandb").glob("offline-run-*/run-*.wandb")
    assert file.stem == f"run-{(out / 'tracker_id').read_text()}"
    assert b"entropy/token_mean" in file.read_bytes()
    assert b"evaluation/reward/avg" in file.read_bytes()


@pytest.mark.extra
def test_trackio_works_without_a_network(
    tiny: TrainConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    out = tmp_path / "run"
    config = replace(tiny, tracker="trackio", steps=2)
    assert "failed" not in printed(config, out)
    run(config, out, resume=True)
    (name,) = SQLiteStorage.get_runs("isentrope")
    rows = SQLiteStorage.get_logs("isentrope", name)
    logged = [row["entropy/token_mean"] for row in rows if "entropy/token_mean" in row]
    assert logged == [row["entropy/token_mean"] for row in lines(out / "metrics.jsonl")]
