"""Estimators against values counted by hand, and intervals against a simulation."""

import math
from itertools import combinations

import numpy as np
import pytest

from isentrope.evaluation.estimators import (
    avg_at_k,
    bootstrap_interval,
    compare_paired,
    maj_at_k,
    pass_at_k,
)


def test_avg_is_the_mean_over_samples() -> None:
    assert avg_at_k([1, 0, 0, 1]) == 0.5
    assert math.isnan(avg_at_k([]))


@pytest.mark.parametrize(
    ("samples", "right", "k", "expected"),
    [
        (4, 1, 4, 1.0),  # resampling with replacement would say 0.684
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),
        (4, 2, 2, 1 - 1 / 6),
        (5, 2, 3, 1 - 1 / 10),
        (8, 0, 3, 0.0),
        (8, 8, 3, 1.0),
        (10, 3, 4, 1 - 35 / 210),
    ],
)
def test_pass_at_k_by_hand(samples: int, right: int, k: int, expected: float) -> None:
    assert pass_at_k(samples, right, k) == pytest.approx(expected, abs=1e-15)


def test_pass_at_k_counts_subsets() -> None:
    for samples in range(1, 8):
        for right in range(samples + 1):
            for k in range(1, samples + 1):
                subsets = list(combinations([True] * right + [False] * (samples - right), k))
                share = sum(any(subset) for subset in subsets) / len(subsets)
                assert pass_at_k(samples, right, k) == pytest.approx(share, abs=1e-14)


def test_pass_at_k_is_stable_for_many_samples() -> None:
    # 1 - C(99000, 500) / C(100000, 500), by exact integers
    expected = 1 - math.comb(99_000, 500) / math.comb(100_000, 500)
    assert pass_at_k(100_000, 1_000, 500) == pytest.approx(expected, rel=1e-12)


def test_pass_at_k_needs_k_samples() -> None:
    assert math.isnan(pass_at_k(3, 2, 4))
    with pytest.raises(ValueError, match=r"right must be in 0\.\.3"):
        pass_at_k(3, 4, 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        pass_at_k(3, 1, 0)


def test_majority_takes_the_most_frequent_answer() -> None:
    assert maj_at_k(["7", "7", "8"], [1, 1, 0]) == 1.0
    assert maj_at_k(["8", "7", "8"], [0, 1, 0]) == 0.0


def test_majority_tie_shares_the_score() -> None:
    assert maj_at_k(["7", "8", "7", "8", "9"], [1, 0, 1, 0, 0]) == 0.5
    assert maj_at_k(["7", "8", "9"], [1, 0, 0]) == pytest.approx(1 / 3)


def test_majority_without_an_answer() -> None:
    assert maj_at_k([None, None, "7"], [0, 0, 1]) == 1.0  # no answer has no vote
    assert maj_at_k([None, None], [0, 0]) == 0.0
    assert math.isnan(maj_at_k([], []))


def test_interval_of_a_known_case() -> None:
    # two problems, 0 and 1: resampled means are 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    interval = bootstrap_interval([0.0, 1.0], seed=0)
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.0, 1.0)


def test_interval_of_equal_values_is_not_empty() -> None:
    # (1 - q)^50 = 0.025 gives q = 0.0711
    zero = bootstrap_interval([0.0] * 50, seed=0)
    assert (zero.mean, zero.low) == (0.0, 0.0)
    assert zero.high == pytest.approx(0.07112, abs=1e-5)
    one = bootstrap_interval([1.0] * 50, seed=0)
    assert (one.mean, one.high) == (1.0, 1.0)
    assert one.low == pytest.approx(1 - 0.07112, abs=1e-5)


def test_interval_leaves_out_unjudged_problems() -> None:
    interval = bootstrap_interval([0.0, 1.0, math.nan], seed=0)
    assert (interval.mean, interval.problems) == (0.5, 2)
    assert math.isnan(bootstrap_interval([math.nan], seed=0).mean)


def test_interval_repeats_with_its_seed() -> None:
    values = np.random.default_rng(1).random(40).tolist()
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)


@pytest.mark.parametrize(("problems", "accuracy"), [(30, 0.2), (50, 0.5), (200, 0.8)])
def test_intervals_cover_the_truth(problems: int, accuracy: float) -> None:
    """600 benchmarks of k = 4 samples a problem, problems of unlike difficulty (beta)."""
    generator = np.random.default_rng(5)
    trials = 600
    covered = 0
    for trial in range(trials):
        chance = generator.beta(2 * accuracy, 2 * (1 - accuracy), problems)
        values = generator.binomial(4, chance) / 4
        interval = bootstrap_interval(values.tolist(), seed=trial, resamples=1_000)
        covered += interval.low <= accuracy <= interval.high
    # 0.95 less the small-sample deficit of a percentile interval; sd of the share is 0.009
    assert 0.92 <= covered / trials <= 0.98


def test_paired_comparison_by_hand() -> None:
    comparison = compare_paired([0, 0, 1, 1, 0.5], [1, 1, 1, 0.5, 0.5], seed=0)
    assert comparison.difference.mean == pytest.approx(0.3)
    assert (comparison.first_better, comparison.second_better, comparison.equal) == (1, 2, 2)
    # signs of (1, 1, -1/2): |sum| >= 3/2 for ++-, --+, +++, --- : 4 of 8
    assert comparison.p_value == pytest.approx(0.5, abs=0.02)


def test_paired_comparison_of_equal_models() -> None:
    comparison = compare_paired([0, 1, 1], [0, 1, 1], seed=0)
    assert comparison.p_value == 1.0
    assert comparison.difference.mean == 0.0
    assert comparison.difference.low < 0 < comparison.difference.high


def test_paired_comparison_drops_what_one_could_not_judge() -> None:
    comparison = compare_paired([0, math.nan, 1], [1, 1, math.nan], seed=0)
    assert comparison.difference.problems == 1
    with pytest.raises(ValueError, match="cannot be paired"):
        compare_paired([0.0], [0.0, 1.0], seed=0)


def test_paired_p_value_is_uniform_under_no_difference() -> None:
    generator = np.random.default_rng(7)
    small = 0
    for trial in range(300):
        first, second = generator.binomial(8, 0.4, (2, 40)) / 8
        comparison = compare_paired(first.tolist(), second.tolist(), seed=trial, resamples=500)
        small += comparison.p_value <= 0.1
    assert 0.05 <= small / 300 <= 0.15
