"""Entropy and reward of the same policy."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from isentrope.errors import DataError
from isentrope.runs import pair, read_run
from isentrope.runs.pairing import pair_series
from isentrope.runs.record import Meaning, Series


def series(key: str, steps: Sequence[int], meaning: Meaning) -> Series:
    """A series whose value at step s is s / 100."""
    at = np.array(steps, np.int64)
    return Series(key=key, steps=at, values=at / 100, meaning=meaning)


BEFORE = Meaning(role="entropy", lag=-1)
AFTER = Meaning(role="validation", population="validation", lag=0)
UNTOLD = Meaning(role="validation", population="validation", lag=None)


def test_validation_after_the_update_goes_with_the_entropy_of_the_next_step() -> None:
    entropy, reward = series("H", range(1, 11), BEFORE), series("R", [0, 5, 10], AFTER)
    pairs = pair_series(entropy, reward)
    assert pairs.steps.tolist() == [0, 5]
    assert pairs.h.tolist() == [0.01, 0.06]
    assert pairs.r.tolist() == [0.0, 0.05]
    assert "step s+1" in pairs.how
    assert "1 reward(s) have no such entropy" in pairs.how


def test_equal_steps_on_request() -> None:
    entropy, reward = series("H", range(1, 11), BEFORE), series("R", [0, 5, 10], AFTER)
    pairs = pair_series(entropy, reward, by="step")
    assert pairs.h.tolist() == [0.05, 0.10]


def test_a_row_that_averages_ten_steps_holds_the_policies_since_the_row_before() -> None:
    entropy = series("H", range(10, 60, 10), BEFORE)
    pairs = pair_series(entropy, series("R", [0, 20, 45, 50], AFTER))
    assert pairs.steps.tolist() == [0, 20, 45]
    assert pairs.h.tolist() == [0.1, 0.3, 0.5]


def test_a_row_a_whole_interval_later_is_of_other_policies() -> None:
    entropy = series("H", [0, 10, 20, 40, 50], AFTER)  # the row of step 30 is missing
    pairs = pair_series(entropy, series("R", [10, 30, 31, 50], AFTER))
    assert pairs.steps.tolist() == [10, 31, 50]
    assert pairs.h.tolist() == [0.1, 0.4, 0.5]


def test_an_unknown_policy_is_paired_by_step_and_said() -> None:
    pairs = pair_series(series("H", [1, 2], BEFORE), series("R", [1, 2], UNTOLD))
    assert pairs.by == "step"
    assert "does not tell the policy" in pairs.how


def test_a_log_without_entropy_says_how_to_switch_it_on(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("step:1 - actor/pg_loss:0.1 - critic/rewards/mean:0.5\n")
    with pytest.raises(DataError, match="calculate_entropy=True"):
        pair(read_run(path))


def test_an_unknown_entropy_key_is_offered(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("step:1 - actor/entropy_new:0.1 - critic/rewards/mean:0.5\n")
    with pytest.raises(DataError, match=r"actor/entropy_new.*--entropy KEY"):
        pair(read_run(path))


def test_a_log_without_a_known_reward_offers_likely_keys(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("step:1 - actor/entropy:0.1 - my_score:0.5 - x:1\n")
    with pytest.raises(DataError, match=r"--reward KEY.*likely: my_score"):
        pair(read_run(path))
