"""Whole runs: repeatable, resumable, and what they refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.config import TrainConfig, dump_toml
from isentrope.training.run_folder import RunFolder, append_line

Run = Callable[..., None]


def rows(file: Path) -> list[dict[str, object]]:
    """The lines of a log without what depends on the clock."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if not k.startswith("time/") and k != "tokens_per_s"}
        for line in lines
    ]


@pytest.fixture(scope="module")
def uninterrupted(tiny: TrainConfig, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    run(tiny, out)
    return out


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert rows(one / name) == rows(other / name)


def test_every_step_and_evaluation_is_logged(uninterrupted: Path) -> None:
    metrics = rows(uninterrupted / "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(6))
    assert [row["step"] for row in rows(uninterrupted / "evaluations.jsonl")] == [0, 3, 6]
    assert sorted(p.name for p in (uninterrupted / "checkpoints").iterdir()) == [
        "step-000004",
        "step-000006",
    ]
    sample = rows(uninterrupted / "samples" / "step-000000.jsonl")[0]
    tokens, covariance = sample["tokens"], sample["covariance"]
    assert isinstance(tokens, list)
    assert isinstance(covariance, list)
    assert len(tokens) == len(covariance) > 0
    assert "NaN" not in (uninterrupted / "metrics.jsonl").read_text()


def test_the_same_seed_gives_the_same_run(
    tiny: TrainConfig, run: Run, uninterrupted: Path, tmp_path: Path
) -> None:
    run(tiny, tmp_path / "again")
    assert_same_run(uninterrupted, tmp_path / "again")
    run(replace(tiny, seed=1), tmp_path / "other")
    assert rows(tmp_path / "other" / "metrics.jsonl") != rows(uninterrupted / "metrics.jsonl")


def test_a_killed_run_resumes_as_if_nothing_had_happened(
    tiny: TrainConfig, run: Run, uninterrupted: Path, tmp_path: Path
) -> None:
    recipe, out = tmp_path / "tiny.toml", tmp_path / "run"
    recipe.write_text(dump_toml(tiny))
    command = [sys.executable, "-m", "isentrope.cli", "train", str(recipe), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (out / "checkpoints" / "step-000002").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    with (out / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2, "entr')  # what a torn write would leave
    assert len(rows_or_torn(out / "metrics.jsonl")) < 7
    run(tiny, out, resume=True)
    assert_same_run(uninterrupted, out)


def rows_or_torn(file: Path) -> list[str]:
    return file.read_text().splitlines()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_sigterm_and_ctrl_c_end_a_run_in_a_checkpoint(
    tiny: TrainConfig, run: Run, uninterrupted: Path, tmp_path: Path, sent: int, code: int
) -> None:
    recipe, out = tmp_path / "tiny.toml", tmp_path / "run"
    recipe.write_text(dump_toml(tiny))
    command = [sys.executable, "-m", "isentrope.cli", "train", str(recipe), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(sent)
        printed = process.communicate()[0].decode()
    steps = [row["step"] for row in rows(out / "metrics.jsonl")]
    assert process.returncode == code
    assert "Traceback" not in printed
    assert f"after step {len(steps)}" in printed
    assert (out / "checkpoints" / f"step-{len(steps):06d}").is_dir()
    run(tiny, out, resume=True)
    assert_same_run(uninterrupted, out)


def test_a_finished_run_can_be_resumed_without_harm(
    tiny: TrainConfig, run: Run, uninterrupted: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(uninterrupted, copy)
    run(tiny, copy, resume=True)
    assert_same_run(uninterrupted, copy)


def write_recipe(tmp_path: Path, text: str) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        ("stepz = 3", [], "unknown key 'stepz'; did you mean 'steps'?"),
        ("[rollout]\nsample = 3", [], "did you mean 'samples'?"),
        ("steps = 'many'", [], "steps is 'many'; it must be of type int"),
        ("[rollout]\nsamples = 1", [], "samples is 1; it must be at least 2"),
        ("[objective]\nclip_fraction = 2.0", [], "a fraction between 0 and 1"),
        ("[objective]\nreducer = 'mean'", [], "choose one of token_mean"),
        ("[task]\nname = 'chess'", [], "chess"),
        ("[task.options]\nnumbres = 3", [], "did you mean 'numbers'?"),
        ("rollout = 3", [], "it is a section: write [rollout]"),
        ("steps = ", [], "not valid TOML"),
        ("extends = 'nowhere.toml'", [], "there is no recipe"),
        ("extends = 'recipe.toml'", [], "leads back to the file itself"),
        ("", ["--steps", "0"], "steps is 0"),
        ("[model]\npath = 'builtin:chess'", [], "builtin:countdown"),
        ("[evaluation]\nproblems = 100000", [], "test problems; lower it"),
        ("[model]\ndevice = 'tpu9'", [], "tpu9"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    recipe: str,
    flags: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    path = write_recipe(tmp_path, recipe)
    assert main(["train", path, "--out", str(out), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_missing_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "no.toml"]) == 2
    assert "there is no recipe no.toml" in capsys.readouterr().err
    assert main(["train", "--steps", "3"]) == 2
    assert "give a recipe first" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--stepz", "3"], ["--steps", "many"]])
def test_a_wrong_flag_exits_with_2(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", write_recipe(tmp_path, ""), *flags])
    assert stop.value.code == 2


def test_a_folder_that_holds_a_run_is_refused(
    uninterrupted: Path, tiny: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    recipe = write_recipe(tmp_path, dump_toml(tiny))
    assert main(["train", recipe, "--out", str(uninterrupted)]) == 2
    assert "--resume" in capsys.readouterr().err
    changed = replace(tiny, seed=3, optimizer=replace(tiny.optimizer, learning_rate=1.0))
    recipe = write_recipe(tmp_path, dump_toml(changed))
    assert main(["train", recipe, "--out", str(uninterrupted), "--resume"]) == 2
    message = capsys.readouterr().err
    assert "seed: 0 -> 3" in message
    assert "optimizer.learning_rate: 0.0003 -> 1.0" in message
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before
    assert main(["train", recipe, "--out", str(tmp_path / "none"), "--resume"]) == 2
    assert "no run to resume" in capsys.readouterr().err


def test_a_full_disk_keeps_the_lines_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "metrics.jsonl"
    append_line(file, {"step": 0})
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(OSError, match="large"):
            append_line(file, {"step": 1, "long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == '{"step": 0}\n'


def test_missing_values_are_null(tmp_path: Path) -> None:
    append_line(tmp_path / "m.jsonl", {"step": 0, "a": float("nan"), "b": float("inf")})
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {"step": 0, "a": None, "b": None}


def test_a_new_folder_is_not_made_by_looking(tmp_path: Path, tiny: TrainConfig) -> None:
    RunFolder.open(tmp_path / "new", tiny, resume=False)
    assert not (tmp_path / "new").exists()
