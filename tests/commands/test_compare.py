from pathlib import Path

import pytest

from isentrope.cli import main

TINY = """
name = "plain"
steps = 4
threads = 1
probe_tokens = 0
[rollout]
prompts = 8
samples = 4
max_new_tokens = 16
[optimizer]
mini_batches = 2
[evaluation]
every = 1
problems = 8
samples = 4
"""

ARM = """
extends = "plain.toml"
name = "kl_cov"
[objective]
loss = "kl_cov"
kl_fraction = 0.1
"""


@pytest.fixture
def recipes(tmp_path: Path) -> list[str]:
    (tmp_path / "plain.toml").write_text(TINY)
    (tmp_path / "arm.toml").write_text(ARM)
    return [str(tmp_path / "plain.toml"), str(tmp_path / "arm.toml")]


def test_two_arms_in_two_processes(
    recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["compare", *recipes, "--out", str(out), "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines() if line.startswith(("arm ", "kl_")))
    arms = [line.split()[:2] for line in printed.splitlines() if " > " in line]
    assert arms == [["plain", "1"], ["kl_cov", "1"]]
    assert "<svg" in (out / "report.html").read_text()
    assert (out / "plain-seed0" / "metrics.jsonl").exists()
    assert main(["compare", *recipes, "--out", str(out)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_failing_arm_is_reported(
    recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text('extends = "plain.toml"\nname = "broken"\nmodel.path = "builtin:chess"\n')
    assert main(["compare", str(broken), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "broken seed 0 failed with code 2" in message
    assert "builtin:countdown" in message


def test_two_arms_of_one_name(
    recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", recipes[0], recipes[0], "--out", str(tmp_path / "out")]) == 2
    assert "two arms are named 'plain'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["compare", recipes[0], "--seeds", "0", "0", "--out", str(tmp_path / "x")])
    assert "seeds are (0, 0); give each of them once" in "".join(capsys.readouterr())
