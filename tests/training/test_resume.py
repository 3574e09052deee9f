"""Going on with a run: damaged checkpoints, missing lines, two processes, more steps."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.config import ControlConfig, TrainConfig, dump_toml
from isentrope.errors import ConfigError, DataError
from isentrope.training.checkpoint import choose_checkpoint
from isentrope.training.run_folder import RunFolder, spans

Run = Callable[..., None]

FILES = ("metrics.jsonl", "evaluations.jsonl", "config.toml")


def rows(file: Path) -> list[dict[str, object]]:
    """The lines of a log without what depends on the clock."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if not k.startswith("time/") and k != "tokens_per_s"}
        for line in lines
    ]


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert rows(one / name) == rows(other / name)


@pytest.fixture(scope="module")
def whole(tiny: TrainConfig, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps with checkpoints of 4 and 6."""
    out = tmp_path_factory.mktemp("resume") / "whole"
    run(tiny, out)
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def resume(folder: Path, *flags: str) -> int:
    return main(["train", str(folder / "config.toml"), "--out", str(folder), "--resume", *flags])


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "checksums.json"])
def test_a_truncated_file_of_a_checkpoint_is_named_and_the_one_before_offered(
    whole: Path, copy: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = copy / "checkpoints" / "step-000006"
    before, data = contents(copy), (last / name).read_bytes()
    (last / name).write_bytes(data[: len(data) // 2])
    assert resume(copy) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"{last} is damaged: {name}" in message
    assert "--resume --from-step 4" in message
    assert contents(copy) == before
    assert resume(copy, "--from-step", "4") == 0
    assert_same_run(whole, copy)
    assert (last / name).read_bytes() == data
    assert choose_checkpoint(copy / "checkpoints") == (6, last)


def test_a_file_of_equal_size_that_changed_is_damage_too(copy: Path) -> None:
    file = copy / "checkpoints" / "step-000006" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    (copy / "checkpoints" / "step-000004" / "config.json").unlink()
    with pytest.raises(DataError, match=r"there is no whole one .* --from-step 0"):
        choose_checkpoint(copy / "checkpoints")
    with pytest.raises(DataError, match=r"step-000004 is damaged: config\.json is missing"):
        choose_checkpoint(copy / "checkpoints", 4)


def test_a_step_without_a_checkpoint_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resume(copy, "--from-step", "3") == 2
    assert "no checkpoint of step 3; there are 0, 4, 6" in " ".join(capsys.readouterr().err.split())
    assert main(["train", str(copy / "config.toml"), "--from-step", "4"]) == 2
    assert "--from-step is 4: it belongs to --resume" in capsys.readouterr().err


def test_missing_lines_are_named_and_the_start_is_a_way_out(
    whole: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = copy / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:1] + lines[3:5]))  # without steps 1, 2 and 5
    before = contents(copy)
    assert resume(copy) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "has no line of step 1-2, 5" in message
    assert "--from-step, at most 1" in message
    assert contents(copy) == before
    assert resume(copy, "--from-step", "0") == 0
    assert_same_run(whole, copy)


def test_spans_of_steps() -> None:
    assert spans([3, 4, 5, 9, 11, 12]) == "3-5, 9, 11-12"
    assert spans([0]) == "0"


def test_two_processes_cannot_write_one_run(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from isentrope.training.run_folder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1])); folder.lock()\n"
        "print('locked', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = contents(copy)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(copy)], env=environment, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        assert resume(copy) == 2
        message = " ".join(capsys.readouterr().err.split())
        assert f"{copy} is in use by process {other.pid} on" in message
        other.kill()
    assert contents(copy) == before
    assert (copy / "lock").read_text().startswith(f"process {other.pid} ")  # it stayed behind
    assert resume(copy) == 0  # and locks nobody out


def test_a_folder_is_let_go_of_at_the_end(copy: Path) -> None:
    folder = RunFolder(copy)
    folder.lock()
    folder.lock()  # it is this one's already
    with pytest.raises(DataError, match="in use"):
        RunFolder(copy).lock()
    folder.close()
    again = RunFolder(copy)
    again.lock()
    again.close()


def test_a_finished_run_is_lengthened_into_the_longer_run(
    tiny: TrainConfig, run: Run, whole: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short"
    run(replace(tiny, steps=4), short)
    assert [row["step"] for row in rows(short / "evaluations.jsonl")] == [0, 3, 4]
    assert resume(short, "--steps", "6") == 0
    assert_same_run(whole, short)
    assert (short / "config.toml").read_text() == (whole / "config.toml").read_text()


def test_what_more_steps_would_have_changed_is_not_lengthened(
    tiny: TrainConfig, copy: Path
) -> None:
    cosine = replace(tiny, optimizer=replace(tiny.optimizer, schedule="cosine"))
    falling = replace(tiny, control=ControlConfig(name="band", target_end=0.1))
    for config, reason in (
        (cosine, "optimizer.schedule is 'cosine', which was to end at step 6"),
        (falling, "control.target_end was to be reached at step 6"),
    ):
        (copy / "config.toml").write_text(dump_toml(config))
        with pytest.raises(ConfigError, match=reason):
            RunFolder.open(copy, replace(config, steps=8), resume=True)
    (copy / "config.toml").write_text(dump_toml(tiny))
    with pytest.raises(ConfigError, match="seed: 0 -> 5"):
        RunFolder.open(copy, replace(tiny, steps=8, seed=5), resume=True)
    with pytest.raises(ConfigError, match="steps: 6 -> 4"):
        RunFolder.open(copy, replace(tiny, steps=4), resume=True)


def test_a_target_with_steps_of_its_own_may_be_lengthened(tiny: TrainConfig, copy: Path) -> None:
    control = ControlConfig(name="band", target_end=0.1, target_steps=3)
    config = replace(tiny, control=control)
    (copy / "config.toml").write_text(dump_toml(config))
    RunFolder.open(copy, replace(config, steps=8), resume=True).close()
