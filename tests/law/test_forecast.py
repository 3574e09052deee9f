"""Forecasts of runs whose end is known: exact ones exactly, noisy ones within their band."""

import numpy as np
import pytest

from isentrope.errors import ConfigError, DataError
from isentrope.law.bootstrap import bootstrap_ceiling, bootstrap_fits
from isentrope.law.fit import fit_law
from isentrope.law.forecast import backtest, fit_trend, forecast, gain_spent

STEPS = np.arange(200.0)
ENTROPY = 1 / (1.0 + 0.05 * STEPS)
REWARD = 0.9 - 0.3 * np.exp(ENTROPY)


def test_an_exact_run_is_foreseen_exactly() -> None:
    foreseen = forecast(STEPS[:30], ENTROPY[:30], REWARD[:30], STEPS[30:])
    assert foreseen.entropy == pytest.approx(ENTROPY[30:])
    assert foreseen.reward == pytest.approx(REWARD[30:])
    assert foreseen.low == pytest.approx(REWARD[30:], abs=1e-6)
    assert foreseen.high == pytest.approx(REWARD[30:], abs=1e-6)
    assert foreseen.gain == pytest.approx(REWARD[-1] - REWARD[29])
    assert foreseen.gain_interval == pytest.approx([foreseen.gain] * 2, abs=1e-6)


def test_the_trend_is_its_line() -> None:
    trend = fit_trend(STEPS, ENTROPY)
    assert (trend.c, trend.s) == pytest.approx((1.0, 0.05))


def test_an_entropy_that_rises_has_a_level_trend() -> None:
    trend = fit_trend(STEPS, np.linspace(0.2, 0.4, 200))
    assert trend.s == 0
    assert trend.predict(np.array([500.0]))[0] == pytest.approx(trend.predict(np.zeros(1))[0])


def test_given_entropies_replace_the_trend() -> None:
    given = np.full(170, 0.5)
    foreseen = forecast(STEPS[:30], ENTROPY[:30], REWARD[:30], STEPS[30:], entropy_ahead=given)
    assert foreseen.reward == pytest.approx(np.full(170, 0.9 - 0.3 * np.exp(0.5)))


def test_the_band_covers_what_comes() -> None:
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(40):
        reward = REWARD + 0.02 * rng.normal(size=200)
        entropy = ENTROPY * (1 + 0.03 * rng.normal(size=200))
        seen = slice(0, 40)
        foreseen = forecast(STEPS[seen], entropy[seen], reward[seen], STEPS[40:])
        inside.append(((foreseen.low <= reward[40:]) & (reward[40:] <= foreseen.high)).mean())
    assert 0.85 <= np.mean(inside) <= 0.97


def test_the_share_of_the_gain_needs_no_coefficients() -> None:
    entropy = np.array([np.log(3)] * 3 + [np.log(2)] * 7)
    assert gain_spent(entropy) == pytest.approx((3 - 2) / (3 - 1))


def test_too_few_points_and_no_steps_ahead_are_refused() -> None:
    with pytest.raises(DataError, match="at least 8 points"):
        forecast(STEPS[:7], ENTROPY[:7], REWARD[:7], STEPS[7:])
    with pytest.raises(ConfigError, match="no steps ahead"):
        forecast(STEPS, ENTROPY, REWARD, [])


def test_a_backtest_compares_each_prefix_with_the_rest() -> None:
    tests = backtest(STEPS, ENTROPY, REWARD + 0.01 * np.cos(STEPS), fractions=(0.02, 0.15, 0.5))
    assert [test.points for test in tests] == [4, 30, 100]
    assert tests[0].law is None
    assert tests[0].rmse_given is None
    for test in tests[1:]:
        assert test.law is not None
        assert test.rmse_given == pytest.approx(0.01 / np.sqrt(2), rel=0.5)
        assert test.rmse_trend is not None
        assert test.rmse_trend < 0.03
        assert test.covered_given is not None
        assert test.covered_given > 0.8


def test_bootstrap_fits_equal_fits_of_the_same_resamples() -> None:
    rng = np.random.default_rng(0)
    reward = REWARD + 0.01 * rng.normal(size=200)
    fits = bootstrap_fits(ENTROPY, reward, fits=5, block=8, seed=7)
    starts = np.random.default_rng(7).integers(0, 193, (5, 25))
    for (a, b), begins in zip(fits, starts, strict=True):
        chosen = (begins[:, None] + np.arange(8)).ravel()
        law = fit_law(ENTROPY[chosen], reward[chosen])
        assert (a, b) == pytest.approx((law.a, law.b))


def test_the_bootstrap_interval_covers_independent_noise() -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_ceiling(ENTROPY, REWARD + 0.02 * rng.normal(size=200), fits=300)
        hits += low < 0.6 < high
    assert 0.8 <= hits / 200 <= 0.95
