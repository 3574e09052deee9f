"""isentrope's own run folder."""

import json
from pathlib import Path

import pytest

from isentrope.runs import pair, read_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of 4 steps, evaluated at steps 0, 2 and 4 on two data sets."""
    metrics = [
        {
            "step": s,
            "entropy/token_mean": 1.0 - 0.1 * s,
            "entropy/sequence_mean": 1.1 - 0.1 * s,
            "reward/mean": 0.1 * s,
            "covariance/mean": None,
        }
        for s in range(5)
    ]
    evaluations = [
        {
            "step": s,
            "source": source,
            "k": 8,
            "reward/avg": 0.2 + 0.1 * s,
            "reward/pass": 0.6,
            "entropy/sequence_mean": 0.9 - 0.1 * s,
        }
        for s in (0, 2, 4)
        for source in ("countdown", "gsm8k")
    ]
    for name, rows in (("metrics.jsonl", metrics), ("evaluations.jsonl", evaluations)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_metrics_and_evaluations_are_one_run(folder: Path) -> None:
    record = read_run(folder)
    assert record.format == "isentrope, run folder"
    assert record.having("entropy")[0].key == "entropy/sequence_mean"
    assert [s.key for s in record.having("train")] == ["reward/mean"]
    assert [s.key for s in record.having("validation")] == [
        "eval/countdown/reward/avg",
        "eval/gsm8k/reward/avg",
    ]
    assert [s.meaning.metric for s in record.having("pass@k") if s.meaning] == ["pass@8"] * 2
    assert "covariance/mean" not in record.series


def test_reward_and_entropy_of_one_evaluation_are_paired(folder: Path) -> None:
    pairs = pair(read_run(folder), reward="eval/countdown/reward/avg")
    assert pairs.entropy.key == "eval/countdown/entropy/sequence_mean"
    assert pairs.steps.tolist() == [0, 2, 4]
    assert pairs.h == pytest.approx([0.9, 0.7, 0.5])
    assert pairs.r == pytest.approx([0.2, 0.4, 0.6])


def test_the_entropy_of_training_of_the_same_step_is_of_the_same_policy(folder: Path) -> None:
    pairs = pair(read_run(folder), entropy="entropy/sequence_mean", reward="eval/gsm8k/reward/avg")
    assert pairs.h == pytest.approx([1.1, 0.9, 0.7])


def test_a_torn_evaluation_is_skipped_and_said(folder: Path) -> None:
    path = folder / "evaluations.jsonl"
    path.write_text(path.read_text() + '{"step": 6, "sour')
    record = read_run(folder)
    assert len(record.series["eval/gsm8k/reward/avg"]) == 3
    assert record.notes == ("evaluations.jsonl: the last line (7) is torn: skipped",)


def test_a_run_without_evaluations_is_read(folder: Path) -> None:
    (folder / "evaluations.jsonl").unlink()
    (folder / "config.toml").write_text("")
    assert pair(read_run(folder)).reward.key == "reward/mean"
