"""The closed form against values known beforehand, and the intervals against their own promise."""

from math import exp

import numpy as np
import pytest

from isentrope.errors import DataError
from isentrope.law.fit import Law, Verdict, fit_law
from isentrope.law.noise import correlation, estimate_noise, t_quantile


def falling(points: int, start: float = 1.2, end: float = 0.1) -> np.ndarray:
    """An entropy that decays from start towards end."""
    return end + (start - end) * np.exp(-5 * np.arange(points) / points)


def autoregressive(rng: np.random.Generator, points: int, rho: float) -> np.ndarray:
    """Noise of unit variance."""
    noise = rng.normal(size=points)
    for i in range(1, points):
        noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho**2) * noise[i]
    return noise


def test_exact_law_is_found() -> None:
    law = fit_law([1, 0.5, 0.1], [0.2563436, 0.4702557, 0.5789658])
    assert law.a == pytest.approx(0.2, abs=1e-5)
    assert law.b == pytest.approx(0.8, abs=1e-5)
    assert law.ceiling == pytest.approx(0.6, abs=1e-5)
    assert law.r2 == pytest.approx(1, abs=1e-9)


def test_two_points_have_a_ceiling_of_unknown_uncertainty() -> None:
    law = fit_law([1, 0], [0.3, 0.5])
    assert law.a == pytest.approx(0.116395, abs=1e-6)
    assert law.b == pytest.approx(0.616395, abs=1e-6)
    assert law.ceiling == pytest.approx(0.5, abs=1e-12)
    assert law.a_error is law.b_error is law.ceiling_textbook is law.ceiling_interval is None
    assert law.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("entropy", "reward", "message"),
    [
        ([0.5, 0.5, 0.5], [0.1, 0.2, 0.3], "every entropy is 0.5"),
        ([0.0] * 20, [0.1] * 20, "was not measured"),
        ([0.5], [0.1], "there is 1"),
        ([], [], "there are none"),
        ([0.5, float("nan")], [0.1, 0.2], "there is 1"),
        ([0.5, 0.4], [0.1], "one length"),
        ([900.0, 400.0], [0.1, 0.2], "none of a token in nats"),
    ],
)
def test_what_carries_no_line_is_refused(
    entropy: list[float], reward: list[float], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        fit_law(entropy, reward)


def test_a_reward_that_falls_with_the_entropy_is_reported_and_not_supported() -> None:
    law = fit_law([1.0, 0.5, 0.1], [0.5, 0.4, 0.3])
    assert law.a < 0
    assert law.verdict is Verdict.FAILS
    assert not law.usable
    assert "not positive" in law.reason


def test_three_points_off_the_line() -> None:
    law = fit_law([0.6, 0.4, 0.2], [0.30, 0.36, 0.41])
    assert law.a == pytest.approx(0.183062, abs=1e-6)
    assert law.b == pytest.approx(0.633416, abs=1e-6)
    assert law.ceiling == pytest.approx(0.450354, abs=1e-6)


def test_textbook_errors_are_those_of_least_squares() -> None:
    h = np.array([1.0, 0.8, 0.5, 0.3, 0.2])
    r = np.array([0.1, 0.25, 0.3, 0.42, 0.4])
    design = np.stack([-np.exp(h), np.ones(5)], axis=1)
    (a, b), squares = np.linalg.lstsq(design, r)[:2]
    covariance = squares[0] / 3 * np.linalg.inv(design.T @ design)
    law = fit_law(h, r)
    assert (law.a, law.b) == pytest.approx((a, b))
    assert law.a_error == pytest.approx(np.sqrt(covariance[0, 0]))
    assert law.b_error == pytest.approx(np.sqrt(covariance[1, 1]))
    one = np.array([-1.0, 1.0])  # b - a
    half = 2.353363 * np.sqrt(one @ covariance @ one)  # t of 3 degrees of freedom, 95 %
    assert law.ceiling_textbook == pytest.approx((b - a - half, b - a + half), abs=1e-5)
    assert law.rmse == pytest.approx(np.sqrt(squares[0] / 5))


@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [(0.95, 1, 6.313752), (0.95, 3, 2.353363), (0.975, 10, 2.228139), (0.95, 1000, 1.646379)],
)
def test_quantiles_of_student_are_those_of_the_tables(
    probability: float, freedom: float, value: float
) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, abs=2e-6)


def test_the_sandwich_equals_the_full_matrix_product() -> None:
    rng = np.random.default_rng(3)
    x, residuals = np.exp(falling(30)), autoregressive(rng, 30, 0.6)
    noise = estimate_noise(x, residuals)
    lag = np.abs(np.arange(30)[:, None] - np.arange(30))
    design = np.stack([np.ones(30), x], axis=1)
    bread = np.linalg.inv(design.T @ design)
    spread = noise.deviation**2 * noise.correlation**lag
    expected = bread @ design.T @ spread @ design @ bread
    assert noise.covariance == pytest.approx(expected[np.triu_indices(2)], rel=1e-4)


def test_the_robust_line_ignores_a_minority_of_broken_points() -> None:
    h = falling(50)
    r = 0.8 - 0.2 * np.exp(h)
    r[::6] = -3.0
    law = fit_law(h, r)
    assert law.robust.a == pytest.approx(0.2, abs=1e-9)
    assert law.robust.ceiling == pytest.approx(0.6, abs=1e-9)
    assert abs(law.ceiling - 0.6) > 0.3


def coverage(points: int, rho: float, runs: int = 500) -> tuple[float, float]:
    """Share of the 90 % intervals of the ceiling that hold the truth: (ours, textbook)."""
    rng = np.random.default_rng(11)
    h, hits = falling(points), np.zeros(2)
    for _ in range(runs):
        law = fit_law(h, 0.9 - 0.3 * np.exp(h) + 0.02 * autoregressive(rng, points, rho))
        assert law.ceiling_interval is not None
        assert law.ceiling_textbook is not None
        for i, (low, high) in enumerate((law.ceiling_interval, law.ceiling_textbook)):
            hits[i] += low < 0.6 < high
    return hits[0] / runs, hits[1] / runs


@pytest.mark.parametrize(("points", "rho"), [(40, 0.5), (100, 0.7), (400, 0.8)])
def test_the_interval_covers_under_correlated_noise_where_the_textbook_one_does_not(
    points: int, rho: float
) -> None:
    ours, textbook = coverage(points, rho)
    assert 0.85 <= ours <= 0.95
    assert textbook < 0.75


def test_the_interval_costs_nothing_under_independent_noise() -> None:
    ours, textbook = coverage(100, 0.0)
    assert 0.85 <= ours <= 0.95
    assert 0.85 <= textbook <= 0.95


def noisy(h: np.ndarray, a: float = 0.3, noise: float = 0.01) -> Law:
    """A fit to the law with independent noise."""
    return fit_law(h, 0.9 - a * np.exp(h) + noise * np.random.default_rng(0).normal(size=len(h)))


def test_verdicts_on_runs_of_known_shape() -> None:
    assert noisy(falling(60)).verdict is Verdict.HOLDS
    assert noisy(falling(60), noise=0.5).verdict is Verdict.WEAKLY
    assert noisy(falling(60)[:7]).verdict is Verdict.UNKNOWN
    assert "7 points" in noisy(falling(60)[:7]).reason
    assert noisy(falling(60), a=0.0).verdict is Verdict.FAILS
    still = 0.5 + 0.001 * np.random.default_rng(1).normal(size=60)
    assert noisy(still, noise=0.0001).verdict is Verdict.UNKNOWN
    assert "stayed at 0.5" in noisy(still, noise=0.0001).reason


@pytest.mark.parametrize(
    ("entropy", "word"),
    [
        (np.linspace(0.2, 2.5, 60), "explodes"),
        (np.linspace(0.5, 0.7, 60), "rises"),
        (np.concatenate([np.linspace(1, 0.3, 30), np.linspace(0.3, 0.8, 30)]), "comes back"),
    ],
)
def test_an_entropy_that_does_not_fall_fails_however_good_the_fit(
    entropy: np.ndarray, word: str
) -> None:
    law = noisy(entropy)
    assert law.r2 > 0.9
    assert law.verdict is Verdict.FAILS
    assert word in law.reason


def test_one_point_that_carries_the_fit_is_named() -> None:
    h = np.concatenate([[1.5], np.linspace(0.5, 0.1, 40)])
    r = np.concatenate([[0.1], np.full(40, 0.8) + 0.01 * np.random.default_rng(5).normal(size=40)])
    law = fit_law(h, r)
    assert law.r2 > 0.5
    assert law.verdict is Verdict.WEAKLY
    assert "a few points carry the fit" in law.reason


def test_prediction_is_the_formula() -> None:
    law = fit_law([1.0, 0.5, 0.1], [0.2563436, 0.4702557, 0.5789658])
    assert law.predict(np.array([0.3]))[0] == pytest.approx(0.8 - 0.2 * exp(0.3), abs=1e-5)


def test_the_correlation_of_residuals_is_corrected_for_two_coefficients() -> None:
    """Raw value 1 / 8 of eight points: (8 / 8 + 2) / (8 - 4), Kendall's expectation turned about."""
    residuals = np.array([1.0, 1, 1, -1, -1, -1, 1, -1])
    assert correlation(residuals) == pytest.approx(0.75)
    assert correlation(-2 * residuals) == pytest.approx(0.75)
    assert correlation(np.zeros(8)) == 0.0


def test_independent_noise_has_the_unbiased_variance() -> None:
    """A raw value of -2 / 9 is a correlation of 0: the variance is squares / (n - 2)."""
    residuals = 2 * np.array([1.0, 1, 1, 1, -1, 1, -1, 1, -1])
    noise = estimate_noise(np.arange(9.0), residuals)
    assert noise.correlation == 0.0
    assert noise.effective_points == 9.0
    assert noise.deviation == pytest.approx((4 * 9 / 7) ** 0.5)
