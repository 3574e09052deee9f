"""From the first steps of a run to its end: the law on the entropy's own trend.

The trend is 1/H = c + s t, the solution of dH/dt = -s H^2: the less entropy is left, the slower it
goes. Of the simple curves tried on public logs none was closer on average, and this one is a
straight line. The band joins the uncertainty of both lines and the noise of a single reward.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.errors import ConfigError, DataError
from isentrope.law.fit import Law, fit_law
from isentrope.law.noise import Noise, estimate_noise
from isentrope.law.verdict import MIN_POINTS

__all__ = ["Backtest", "Forecast", "Trend", "backtest", "fit_trend", "forecast", "gain_spent"]

Array = NDArray[np.float64]

DRAWS = 1_000
COLUMNS_AT_ONCE = 1_000
GONE = 1e-3  # nats; 1/H of less says nothing about the trend
START_POINTS = 3
END_SHARE = 0.05  # of the points: their mean is the performance at the end
BACKTEST_FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """The course of an entropy: 1/H = c + s t, t the step."""

    c: float
    s: float
    noise: Noise
    lowest: float
    """Of 1/H: twice the entropy at the end of what was seen is the most that a draw may come to."""

    def predict(self, steps: Array) -> Array:
        """The entropy at each step."""
        return 1 / np.maximum(self.c + self.s * steps, self.lowest)

    def draw(self, rng: np.random.Generator, count: int) -> Callable[[Array], Array]:
        """`count` possible courses: a function from steps to entropies of shape (count, steps)."""
        intercept, slope = self.noise.deviates(rng, count)
        c, s = self.c + intercept[:, None], np.maximum(self.s + slope, 0)[:, None]
        return lambda steps: 1 / np.maximum(c + s * steps, self.lowest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The rest of a run, as foreseen from its first steps."""

    law: Law
    steps: Array
    entropy: Array
    """The trend's, or the entropies that were given."""
    reward: Array
    low: Array
    high: Array
    """The band in which single rewards are expected."""
    spent: float
    """Share of the reachable gain that the first steps have used up."""
    gain: float
    """The law's reward at the last step ahead less its reward at the last step seen."""
    gain_interval: tuple[float, float]


def forecast(
    steps: Sequence[float] | Array,
    entropy: Sequence[float] | Array,
    reward: Sequence[float] | Array,
    ahead: Sequence[float] | Array,
    *,
    entropy_ahead: Array | None = None,
    level: float = 0.9,
) -> Forecast:
    """What the pairs seen so far say about the reward at the steps `ahead`.

    With `entropy_ahead` the entropy there is taken as known, as in the paper's figures 5 and 6.
    Look at `law.verdict` before believing it. Raises DataError below 8 pairs.
    """
    t, h, r = (np.asarray(values, np.float64) for values in (steps, entropy, reward))
    future = np.asarray(ahead, np.float64)
    complete = np.isfinite(h) & np.isfinite(r)
    t, h, r = t[complete], h[complete], r[complete]
    if not len(future):
        raise ConfigError("there are no steps ahead to forecast")
    law = fit_law(h, r, level=level)
    if law.noise is None:
        raise DataError(f"a forecast needs at least {MIN_POINTS} points; there are {len(h)}")
    trend = fit_trend(t, h)
    known = trend.predict(future) if entropy_ahead is None else np.asarray(entropy_ahead)
    now, end = trend.predict(np.array([t[-1], future[-1]]))
    rng = np.random.default_rng(0)
    intercept, slope = law.noise.deviates(rng, DRAWS)
    drawn = Draws(intercept=law.b + intercept, slope=slope - law.a, courses=trend.draw(rng, DRAWS))
    gains = drawn.rewards(future[-1:])[:, 0] - drawn.rewards(t[-1:])[:, 0]
    low, high = drawn.band(future, law.noise.deviation, rng, level, entropy_ahead)
    return Forecast(
        law=law,
        steps=future,
        entropy=known,
        reward=law.predict(known),
        low=low,
        high=high,
        spent=gain_spent(h),
        gain=float(law.a * (np.exp(now) - np.exp(end))),
        gain_interval=interval_of(gains, level),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """Possible laws, each with a possible course of the entropy."""

    intercept: Array
    slope: Array
    courses: Callable[[Array], Array]

    def rewards(self, steps: Array, entropy: Array | None = None) -> Array:
        """The reward without noise, shape (draws, steps)."""
        h = self.courses(steps) if entropy is None else entropy[None]
        return self.intercept[:, None] + self.slope[:, None] * np.exp(h)

    def band(
        self,
        steps: Array,
        deviation: float,
        rng: np.random.Generator,
        level: float,
        entropy: Array | None,
    ) -> tuple[Array, Array]:
        """(low, high) of single noisy rewards at each step."""
        edges = []
        for start in range(0, len(steps), COLUMNS_AT_ONCE):
            part = slice(start, start + COLUMNS_AT_ONCE)
            rewards = self.rewards(steps[part], None if entropy is None else entropy[part])
            rewards += deviation * rng.standard_normal(rewards.shape)
            edges.append(np.quantile(rewards, [(1 - level) / 2, (1 + level) / 2], axis=0))
        low, high = np.concatenate(edges, axis=1)
        return low, high


def interval_of(values: Array, level: float) -> tuple[float, float]:
    """The middle `level` of some draws."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def fit_trend(steps: Array, entropy: Array) -> Trend:
    """The least-squares line of 1/H on the step; level where the entropy rises."""
    there = entropy > GONE
    t, inverse = steps[there], 1 / entropy[there]
    if len(t) < MIN_POINTS:
        raise DataError(f"the entropy is below {GONE} nats nearly everywhere: it has no trend left")
    center = t - t.mean()
    s = max(float(center @ inverse) / float(center @ center), 0.0)
    c = float(inverse.mean() - s * t.mean())
    noise = estimate_noise(t, inverse - c - s * t)
    return Trend(c=c, s=s, noise=noise, lowest=max(0.5 * (c + s * float(t[-1])), 1e-9))


def gain_spent(entropy: Array) -> float:
    """Share of the gain from the start to zero entropy that is used up; a and b cancel out.

    (exp(H_start) - exp(H_now)) / (exp(H_start) - 1), the start being the median of three points
    and now the mean of the last tenth.
    """
    start = np.exp(np.median(entropy[:START_POINTS]))
    now = np.exp(entropy[-max(1, len(entropy) // 10) :]).mean()
    return float((start - now) / (start - 1)) if start > 1 else float("nan")


@dataclass(frozen=True, slots=True)
class Backtest:
    """A forecast from a prefix of a finished run, against what came. None where it was refused."""

    fraction: float
    points: int
    law: Law | None
    rmse_given: float | None
    """On the rest of the run, its entropies given, as in the paper."""
    end_given: float | None
    """Mean predicted less mean actual reward over the last 5 % of the points."""
    covered_given: float | None
    """Share of the rest inside the band."""
    rmse_trend: float | None
    """The same three where the entropy too is foreseen."""
    end_trend: float | None
    covered_trend: float | None


def backtest(
    steps: Array,
    entropy: Array,
    reward: Array,
    *,
    fractions: Sequence[float] = BACKTEST_FRACTIONS,
    level: float = 0.9,
) -> list[Backtest]:
    """A forecast from each prefix, compared with the rest."""
    results = []
    for fraction in fractions:
        n = round(fraction * len(steps))
        past = steps[:n], entropy[:n], reward[:n]
        try:
            given = forecast(*past, steps[n:], entropy_ahead=entropy[n:], level=level)
            trend = forecast(*past, steps[n:], level=level)
        except DataError:
            results.append(Backtest(fraction, n, *[None] * 7))
            continue
        results.append(
            Backtest(
                fraction, n, given.law, *compare(given, reward[n:]), *compare(trend, reward[n:])
            )
        )
    return results


def compare(foreseen: Forecast, reward: Array) -> tuple[float, float, float]:
    """(RMSE, error at the end, share inside the band)."""
    error = foreseen.reward - reward
    end = max(START_POINTS, round(END_SHARE * len(reward)))
    inside = (foreseen.low <= reward) & (reward <= foreseen.high)
    return (
        float(np.sqrt((error**2).mean())),
        float(error[-end:].mean()),
        float(inside.mean()),
    )
