"""Public logs of real runs, as they were: read by their path alone, with fits known beforehand.

The figures are plain least squares on pairs of equal step, computed apart from this package.
"""

from pathlib import Path

import numpy as np
import pytest

from isentrope.errors import DataError
from isentrope.law.fit import Law, Verdict, fit_law
from isentrope.runs import pair, read_run

TRAIN, GSM8K = "critic/rewards/mean", "val/test_score/openai/gsm8k"
GPG_MATH = "val-core/DigitalLearningGmbH/MATH-lighteval/reward/mean@1"
FITS = [
    ("verl-ppo-qwen2.5-0.5b-gsm8k.log", TRAIN, (0.820, 1.521, 0.918), "holds"),
    ("verl-ppo-qwen2.5-0.5b-gsm8k.log", GSM8K, (0.634, 1.233, 0.889), "holds"),
    ("verl-grpo-deepseek-7b-gsm8k.log", TRAIN, (1.465, 2.470, 0.920), "holds"),
    ("verl-grpo-deepseek-7b-gsm8k.log", GSM8K, (0.309, 1.008, 0.355), "holds weakly"),
    ("verl-gpg-qwen2-7b-math.log", TRAIN, (0.900, 1.843, 0.895), "holds"),
    ("verl-gpg-qwen2-7b-math.log", GPG_MATH, (-0.234, 0.256, 0.126), "does not hold"),
    ("verl-tutorial-gsm8k.ipynb", TRAIN, (1.286, 2.121, 0.944), "holds"),
    ("verl-tutorial-gsm8k.ipynb", GSM8K, (1.066, 1.805, 0.917), "cannot be judged"),
    ("trl-dapo-qwen2.5-1.5b-gsm8k.csv", "reward_mean", (1.481, 2.374, 0.605), "holds"),
    ("trl-stdout-gsm8k.log", "reward", (0.898, 1.867, 0.158), "holds weakly"),
    ("flat-countdown-metrics.jsonl", "accuracy", (0.917, 1.903, 0.104), "holds weakly"),
]


@pytest.mark.parametrize(("name", "reward", "expected", "verdict"), FITS)
def test_fit_equals_the_known_one(
    shared: Path, name: str, reward: str, expected: tuple[float, float, float], verdict: str
) -> None:
    named = {"reward": reward} if name.startswith("flat") else {}
    record = read_run(shared / "logs" / name, **named)
    pairs = pair(record, entropy=record.having("entropy")[0].key, reward=reward, by="step")
    law = fit_law(pairs.h, pairs.r)
    assert (law.a, law.b, law.r2) == pytest.approx(expected, abs=0.005)
    assert law.verdict == verdict


def first_fit(path: Path) -> Law:
    """The fit of the train reward."""
    record = read_run(path)
    pairs = pair(record, reward=record.having("train")[0].key)
    return fit_law(pairs.h, pairs.r)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("trl-grpo-qwen2.5-1.5b-trainer_state.json", "saturated"),
        ("trl-explosion-step_logs.json", "entropy explodes"),
        ("trl-rising-step_logs.json", "entropy rises"),
    ],
)
def test_runs_without_a_law_are_told_apart(shared: Path, name: str, word: str) -> None:
    law = first_fit(shared / "logs" / name)
    assert law.verdict is Verdict.FAILS
    assert word in law.reason


def test_zero_entropy_is_refused(shared: Path) -> None:
    record = read_run(shared / "logs" / "flat-countdown-zero-entropy-metrics.jsonl")
    with pytest.raises(DataError, match=r"0\.0 in all 500 rows: it was not measured"):
        pair(record)


def test_tensorboard_and_trainer_state_of_one_run_give_the_same_numbers(shared: Path) -> None:
    state = read_run(shared / "logs" / "trl-wordle-trainer_state.json")
    events = read_run(shared / "logs" / "trl-wordle-tensorboard")
    assert len(state.series["entropy"]) == 160
    for key in ("entropy", "reward"):
        one, other = state.series[key], events.series[f"train/{key}"]
        assert np.array_equal(one.steps, other.steps)
        assert one.values == pytest.approx(other.values, rel=1e-6)
    for key in ("entropy", "reward"):
        one, other = state.series[f"eval_{key}"], events.series[f"eval/{key}"]
        assert np.array_equal(one.steps, other.steps)
        assert one.values == pytest.approx(other.values, rel=1e-6)
    folder, file = (
        shared / "logs" / f"trl-wordle-{f}" for f in ("tensorboard", "trainer_state.json")
    )
    assert first_fit(folder).a == pytest.approx(first_fit(file).a, rel=1e-5)
