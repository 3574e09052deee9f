from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from isentrope.commands import watch
from isentrope.errors import ConfigError, DataError
from isentrope.report.live import clock, frame, sparkline
from isentrope.report.run_files import load_run

MakeRun = Callable[..., Path]


def printed(folder: Path, *, width: int = 110, quiet_s: float = 0.0) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(frame(load_run(folder), width=width, quiet_s=quiet_s))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def cut(folder: Path, steps: int) -> None:
    """Keeps the first steps of a run, as if it were still going."""
    for name, count in (("metrics.jsonl", steps), ("evaluations.jsonl", steps // 5 + 1)):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:count]))


def test_progress_and_time_to_go(make_run: MakeRun) -> None:
    folder = make_run()
    cut(folder, 90)
    text = printed(folder)
    # 90 steps of 1.4 s are 126 s, the other 30 will take 42 s.
    assert "step 90/120" in text
    assert "75 %" in text
    assert "2 min 06 s" in text
    assert "42 s to go" in text


def test_finished_run(make_run: MakeRun) -> None:
    text = printed(make_run(noise=0.0))
    assert "100 %" in text
    assert "finished" in text
    assert "countdown, avg@8: 52.0 -> 70.2 % at step 120" in text
    assert "no new step" not in text


def test_forecast_of_a_run_on_its_way(make_run: MakeRun) -> None:
    folder = make_run(noise=0.0)
    cut(folder, 60)
    assert "At step 120 accuracy is foreseen to be" in printed(folder)


def test_alarms_carry_their_step(make_run: MakeRun) -> None:
    assert "explosion from step" in printed(make_run(floor=1.2, noise=0.0))


def test_silence_is_pointed_out(make_run: MakeRun) -> None:
    folder = make_run()
    cut(folder, 90)
    assert "no new step for 3 min 20 s" in printed(folder, quiet_s=200.0)
    assert "no new step" not in printed(folder, quiet_s=20.0)


def test_narrow_terminal_stacks_the_curves(make_run: MakeRun) -> None:
    assert max(map(len, printed(make_run(), width=60).splitlines())) <= 60


def test_once_prints_one_frame(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch.run(watch.Options(run=make_run(), once=True)) == 0
    assert capsys.readouterr().out.count("step 120/120") == 1


def test_a_run_that_has_not_begun_is_waited_for(make_run: MakeRun, tmp_path: Path) -> None:
    assert watch.begun(tmp_path / "later") is None
    (tmp_path / "later").mkdir()
    assert watch.begun(tmp_path / "later") is None
    found = watch.begun(make_run())
    assert found is not None
    assert found.steps == 120


def test_the_log_of_another_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "verl.log"
    log.write_text(
        "".join(
            f"step:{s} - actor/entropy:{0.5 * 0.97**s:.4f} - critic/rewards/mean:{s / 100}\n"
            for s in range(1, 40)
        )
    )
    assert watch.run(watch.Options(run=log, once=True)) == 0
    printed = capsys.readouterr().out
    assert "entropy H, nats" in printed
    assert "0.01 -> 0.39" in printed


def test_wrong_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        watch.run(watch.Options(run=tmp_path / "nowhere", once=True))
    with pytest.raises(DataError, match="no log that can be read"):
        watch.run(watch.Options(run=tmp_path, once=True))
    with pytest.raises(ConfigError, match="interval-s must be above 0"):
        watch.run(watch.Options(run=tmp_path, interval_s=0.0))


def test_sparkline_fills_from_the_bottom() -> None:
    rows = sparkline(np.array([0.0, 1.0]), 10, 2)
    assert rows == [" \u2588", "\u2581\u2588"]
    assert sparkline(np.full(3, 0.2), 3, 1) == ["\u2585\u2585\u2585"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.4, "9 s"), (61, "1 min 01 s"), (7_260, "2 h 01 min")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
