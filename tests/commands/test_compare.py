from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.config import load_arms
from isentrope.errors import ConfigError

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


def test_a_sweep_is_an_arm_for_each_combination(recipes: list[str], tmp_path: Path) -> None:
    swept = tmp_path / "swept.toml"
    swept.write_text(
        'extends = "arm.toml"\n[sweep]\n"objective.kl_fraction" = [0.2, 1]\n'
        "rollout.samples = [2]\nevaluation.samples = [4, 8]\n"
    )
    arms = load_arms(swept)
    assert [arm.name for arm in arms] == [
        f"kl_cov,kl_fraction={share},rollout.samples=2,evaluation.samples={k}"
        for share in (0.2, 1)
        for k in (4, 8)
    ]
    assert [arm.objective.kl_fraction for arm in arms] == [0.2, 0.2, 1.0, 1.0]
    assert [arm.evaluation.samples for arm in arms] == [4, 8, 4, 8]
    assert {(arm.rollout.samples, arm.rollout.prompts, arm.steps) for arm in arms} == {(2, 8, 4)}
    assert [arm.name for arm in load_arms(Path(recipes[0]))] == ["plain"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("sweep = 3", r"sweep is 3; it is a section"),
        ("[sweep]\nsteps = 4", r"sweep steps is 4; give a list of values"),
        ("[sweep]\nsteps = []", r"sweep steps is \[\]; give a list"),
        ("[sweep]\nsteps = [4, 4]", r"give each value once"),
        ("[sweep]\nseed = [0, 1]", r"give seeds with --seeds"),
        ('[sweep]\n"control.target_ent" = [0.1]', r"did you mean 'target_end'"),
        ('[sweep]\n"objective.kl_fraction" = [0.1, 7.0]', r"kl_fraction is 7.0"),
    ],
)
def test_a_wrong_sweep_is_named(tmp_path: Path, sweep: str, message: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(sweep)
    with pytest.raises(ConfigError, match=message):
        load_arms(recipe)


def test_one_run_of_a_sweep_is_refused(
    recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = tmp_path / "swept.toml"
    swept.write_text('extends = "arm.toml"\n[sweep]\n"objective.kl_fraction" = [0.1, 0.2]\n')
    assert main(["train", str(swept)]) == 2
    assert "has a [sweep] of 2 arms; run them all with `isentrope compare" in (
        capsys.readouterr().err
    )
