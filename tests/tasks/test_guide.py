"""docs/your-task.md: its files and commands, as a reader would take them."""

import json
import re
import shlex
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.tasks.countdown import Countdown
from isentrope.tasks.registry import make_task

GUIDE = Path(__file__).parents[2] / "docs" / "your-task.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_four_steps_lead_to_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problems = [Countdown().train(index) for index in range(40)]
    rows = [{"question": p.prompt, "goal": int(re.split(r"[=:]", p.prompt)[1])} for p in problems]
    shown = [json.loads(line) for line in blocks("json")[0].splitlines()]
    assert {row.keys() == rows[0].keys() for row in shown} == {True}
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*shown, *rows]))
    reward, task = blocks("python")
    Path("my_reward.py").write_text(reward)
    Path("mine.toml").write_text(blocks("toml")[0])
    train, report = (shlex.split(line)[1:] for line in blocks("bash")[0].splitlines())
    assert main([*train, "--steps", "2", "--threads", "1"]) == 0
    assert main(report) == 0
    first = json.loads(Path("runs/mine/metrics.jsonl").read_text().splitlines()[0])
    assert 0.1 < first["reward/mean"] < 1
    assert Path("runs/mine/report.html").stat().st_size > 10_000

    Path("my_task.py").write_text(task)
    sums = make_task("my_task.py:Sums", seed=1, options={"largest": 3})
    problem = sums.train(0)
    assert len(sums.test()) == 32
    assert sums.verify([problem], [f"x={problem.answer}"])[0].score == 1.0
