"""Scores of repeated samples, with intervals over problems.

Every estimator works on one value a problem first; the reported number is the mean of these
values, and its interval comes from resampling problems, because problems, and not samples, are
what a benchmark is a sample of.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Comparison",
    "Interval",
    "avg_at_k",
    "bootstrap_interval",
    "compare_paired",
    "maj_at_k",
    "pass_at_k",
]

LEVEL = 0.95
RESAMPLES = 10_000
CHUNK = 2**22  # numbers drawn at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over problems and the interval that covers the true mean with `level`."""

    mean: float
    low: float
    high: float
    level: float
    problems: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Second minus first, over the problems both have, and in how many each was better."""

    difference: Interval
    p_value: float
    first_better: int
    second_better: int
    equal: int


def avg_at_k(scores: Sequence[float]) -> float:
    """The mean score of one problem's samples; NaN without a sample."""
    return float(np.mean(scores)) if len(scores) else math.nan


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The chance that k of the samples, drawn without replacement, hold a right one.

    Chen et al. 2021 (arXiv 2107.03374), equation 1: 1 - C(n - c, k) / C(n, k), unbiased for the
    chance that k fresh samples hold a right one. The quotient is taken factor by factor, so that
    no binomial overflows. NaN where there are fewer than k samples.
    """
    if not 0 <= right <= samples:
        raise ValueError(f"right must be in 0..{samples}, not {right}")
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if samples < k:
        return math.nan
    if samples - right < k:
        return 1.0
    factors = 1.0 - k / np.arange(samples - right + 1, samples + 1)
    return float(1.0 - np.prod(factors))


def maj_at_k(answers: Sequence[str | None], scores: Sequence[float]) -> float:
    """The score of one problem's most frequent answer; NaN without a sample.

    A sample without an answer has no vote; if none has one, the score is 0. Answers that share
    the first place share the score: the result is the mean of theirs, which is what a random
    choice among them gives on average. An answer's score is the mean score of its samples.
    """
    if len(answers) != len(scores):
        raise ValueError(f"{len(answers)} answers but {len(scores)} scores")
    if not answers:
        return math.nan
    votes: dict[str, list[float]] = {}
    for answer, score in zip(answers, scores, strict=True):
        if answer is not None:
            votes.setdefault(answer, []).append(score)
    if not votes:
        return 0.0
    most = max(len(group) for group in votes.values())
    return float(np.mean([np.mean(group) for group in votes.values() if len(group) == most]))


def bootstrap_interval(
    values: Sequence[float],
    *,
    seed: int,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """The mean of one value a problem, with a percentile bootstrap interval over problems.

    Deviations are widened by sqrt(n / (n - 1)), since resampling n problems underestimates the
    variance by (n - 1) / n, and the interval is cut to `bounds`, the range of a value. NaN values
    (problems that could not be judged) are left out. If all values are equal, resampling shows no
    spread at all; the interval then leaves room for the share q of unlike problems that n equal
    draws do not rule out, (1 - q)^n = (1 - level) / 2. Without a value everything is NaN.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if known.size == 0:
        return Interval(math.nan, math.nan, math.nan, level, 0)
    mean = float(known.mean())
    tail = (1.0 - level) / 2.0
    if np.all(known == known[0]):
        unlike = 1.0 - tail ** (1.0 / known.size)
        low = mean - (mean - bounds[0]) * unlike
        high = mean + (bounds[1] - mean) * unlike
    else:
        means = resampled_means(known, resamples, np.random.default_rng(seed))
        widened = mean + (means - mean) * math.sqrt(known.size / (known.size - 1))
        low, high = (float(q) for q in np.quantile(widened, [tail, 1.0 - tail]))
    return Interval(mean, max(low, bounds[0]), min(high, bounds[1]), level, known.size)


def compare_paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Second minus first, problem by problem: interval, and two-sided sign-flip p-value.

    Both hold one value in [0, 1] a problem, in the same order; a problem that one of them could
    not judge (NaN) is left out of both. The p-value is the share of random sign flips of the
    differences, the observed one included, whose mean is at least as far from 0.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values cannot be paired")
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    interval = bootstrap_interval(
        differences.tolist(), seed=seed, level=level, resamples=resamples, bounds=(-1.0, 1.0)
    )
    return Comparison(
        difference=interval,
        p_value=sign_flip_p_value(differences, resamples, np.random.default_rng([seed, 1])),
        first_better=int((differences < 0).sum()),
        second_better=int((differences > 0).sum()),
        equal=int((differences == 0).sum()),
    )


def resampled_means(
    values: NDArray[np.float64], resamples: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """The means of `resamples` draws of n values with replacement."""
    rows = max(1, CHUNK // values.size)
    means = []
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), values.size)
        means.append(values[generator.integers(0, values.size, shape)].mean(axis=1))
    return np.concatenate(means)


def sign_flip_p_value(
    differences: NDArray[np.float64], flips: int, generator: np.random.Generator
) -> float:
    """How often a random choice of signs moves the mean at least as far from 0; 1 without data."""
    nonzero = differences[differences != 0]
    if nonzero.size == 0:
        return 1.0
    observed = abs(nonzero.sum()) * (1.0 - 1e-12)  # equal sums in another order count as equal
    rows = max(1, CHUNK // nonzero.size)
    extreme = 1
    for start in range(0, flips, rows):
        shape = (min(rows, flips - start), nonzero.size)
        signs = generator.integers(0, 2, shape) * 2 - 1
        extreme += int((abs(signs @ nonzero) >= observed).sum())
    return extreme / (flips + 1)
