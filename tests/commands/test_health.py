"""What `isentrope train` says of a run that goes wrong, while it goes and in its last line."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.commands.health import Health
from isentrope.config import RolloutConfig, TrainConfig, dump_toml

CONFIG = TrainConfig(rollout=RolloutConfig(max_new_tokens=48))

GOOD = {
    "entropy/token_mean": 0.5,
    "reward/mean": 0.4,
    "groups/used": 9,
    "groups/all_right": 0.2,
    "groups/all_wrong": 0.1,
    "truncated": 0.1,
}


def said(*rows: Mapping[str, float]) -> list[list[str]]:
    """What is new with each step."""
    health = Health(CONFIG)
    return [health.step({**GOOD, **row}) for row in rows]


def test_a_run_that_is_well_is_not_commented_on() -> None:
    assert said(*[{}] * 12) == [[]] * 12


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"groups/used": 0, "groups/all_right": 0.0, "groups/all_wrong": 1.0},
            "0% of the groups all right, 100% all wrong): look at samples and reward",
        ),
        (
            {"groups/used": 0, "groups/all_right": 0.75, "groups/all_wrong": 0.25},
            "all responses are right: take harder problems",
        ),
        ({"truncated": 0.92}, "92% of the responses were cut at rollout.max_new_tokens = 48"),
        ({"entropy/token_mean": 1.6}, "entropy rose from 0.500 to 1.600 nats"),
        ({"reward/mean": 0.03}, "the mean reward fell from 0.400 to 0.030"),
    ],
)
def test_a_finding_needs_five_steps_and_is_said_once(row: dict[str, float], message: str) -> None:
    found = said(*[{}] * 5, *[row] * 8)
    assert [len(new) for new in found] == [0] * 9 + [1] + [0] * 3
    assert message in found[9][0]


def test_less_than_a_finding_is_none() -> None:
    near = {"truncated": 0.89, "entropy/token_mean": 1.49, "reward/mean": 0.05}
    assert said(*[{}] * 5, *[near] * 6) == [[]] * 11
    assert said(*[{}] * 5, *[{"groups/used": 0}] * 4, {}, *[{"groups/used": 0}] * 4) == [[]] * 14


def evaluated(*averages: float, found: bool = False) -> str:
    health = Health(CONFIG, found={"cut": "x"} if found else {})
    for average in averages:
        health.evaluation({"k": 8, "reward/avg": average, "reward/avg_low": average - 0.05})
    return health.verdict()


def test_the_last_line_says_how_it_went() -> None:
    assert evaluated(0.2, 0.1, 0.45) == "done, avg@8 0.200 > 0.450"
    assert evaluated(0.2, 0.16) == "done, avg@8 0.200 > 0.160"  # within the interval
    assert evaluated(0.43, 0.3, 0.0) == "done, but avg@8 fell from 0.430 to 0.000"
    assert evaluated(0.2, 0.45, found=True) == "done, but cut: see the notes above"
    assert evaluated(0.2) == "done"


def test_a_run_without_signal_does_not_end_as_a_success(
    tiny: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All answers are cut after three tokens, and wrong."""
    config = replace(tiny, rollout=replace(tiny.rollout, max_new_tokens=3))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(dump_toml(config))
    assert main(["train", str(recipe), "--out", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "100% all wrong" in printed
    assert "100% of the responses were cut at rollout.max_new_tokens = 3" in printed
    assert "done, but no signal; cut: see the notes above; next: isentrope report" in printed
