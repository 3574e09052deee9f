"""The noise of a training curve: successive points are alike, so they count for fewer than they are.

The residuals of the least-squares line are taken as a first-order autoregression,
u_t = rho u_{t-1} + e_t. The correlation seen in the residuals of a short curve is too small,
because the line follows the noise; Kendall's correction for two fitted coefficients takes most of
that away. Standard errors of the line follow from rho in closed form (the sandwich of least squares).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt, tan

import numpy as np
from numpy.typing import NDArray

__all__ = ["Noise", "estimate_noise", "t_quantile"]

Array = NDArray[np.float64]

MOST_CORRELATED = 0.97  # closer to 1 the line itself would be in doubt, not its noise
LEAST_CORRELATED = -0.5
LEAST_FREEDOM = 1.5
FORGOTTEN = 1e-6  # powers of rho below this add nothing
WIDEST_ANGLE = 12.0  # in units of 1/sqrt(freedom): beyond 12 deviations no mass is left


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """First-order autoregressive noise around a line."""

    correlation: float
    """rho, between successive points."""
    deviation: float
    """Standard deviation of one point around the line."""
    effective_points: float
    """n (1 - rho) / (1 + rho), at most n: as many independent points say as much about a mean."""
    covariance: tuple[float, float, float]
    """Of the least-squares line y = intercept + slope x: var(intercept), their covariance, var(slope)."""

    def line_variance(self, x: float) -> float:
        """Variance of the fitted line at x."""
        intercept, both, slope = self.covariance
        return intercept + 2 * x * both + x * x * slope

    def quantile(self, level: float) -> float:
        """Half-width of a two-sided interval in standard errors: Student's t at the effective points."""
        return t_quantile(0.5 + level / 2, self.freedom)

    @property
    def freedom(self) -> float:
        """Degrees of freedom: the effective points less the two of the line."""
        return max(self.effective_points - 2, LEAST_FREEDOM)

    def deviates(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Random errors of (intercept, slope), from the same t distribution as the intervals."""
        first, both, second = self.covariance
        values, vectors = np.linalg.eigh(np.array([[first, both], [both, second]]))
        normal = rng.standard_normal((count, 2)) * np.sqrt(np.maximum(values, 0))
        scale = np.sqrt(self.freedom / rng.chisquare(self.freedom, count))
        intercept, slope = (normal @ vectors.T * scale[:, None]).T
        return intercept, slope


def estimate_noise(x: Array, residuals: Array) -> Noise:
    """The noise around a least-squares line over x, from its residuals, in time order, 5 at least."""
    n, squares = len(x), float(residuals @ residuals)
    rho = correlation(residuals)
    effective = min(n * (1 - rho) / (1 + rho), float(n))
    freedom = max(effective - 2, LEAST_FREEDOM)
    # Of independent points this is squares / (n - 2), which is unbiased; correlated ones count as
    # `effective` points, so that m / (m - 2) takes the place of n / (n - 2).
    variance = squares / n * (freedom + 2) / freedom
    center = float(x.mean())
    design = np.stack([np.ones(n), x - center])
    inverse = 1 / (design**2).sum(axis=1)  # the centred columns are orthogonal
    at_center = variance * correlated_sums(design, rho) * np.outer(inverse, inverse)
    shift = np.array([[1.0, -center], [0.0, 1.0]])  # back to the intercept at x = 0
    covariance = shift @ at_center @ shift.T
    return Noise(
        correlation=rho,
        deviation=sqrt(variance),
        effective_points=effective,
        covariance=(float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])),
    )


def correlation(residuals: Array) -> float:
    """Lag-1 correlation of regression residuals, corrected for the two coefficients of the line.

    Kendall (1954): the expectation of the raw value is about rho - (2 + 4 rho) / n.
    """
    n, squares = len(residuals), float(residuals @ residuals)
    if squares == 0:
        return 0.0
    raw = float(residuals[1:] @ residuals[:-1]) / squares
    return min(max((n * raw + 2) / (n - 4), LEAST_CORRELATED), MOST_CORRELATED)


def correlated_sums(design: Array, rho: float) -> Array:
    """Sum over all pairs of times of rho^|i - j| z_i z_j', z_i the columns of `design`; (2, 2)."""
    total = design @ design.T
    power, lag = rho, 1
    while abs(power) > FORGOTTEN and lag < design.shape[1]:
        product = design[:, lag:] @ design[:, :-lag].T
        total = total + power * (product + product.T)
        power, lag = power * rho, lag + 1
    return total


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t; `probability` in [0.5, 1), `freedom` >= 1, not only whole numbers.

    With t = sqrt(freedom) tan(angle) the density is cos(angle)^(freedom - 1), on a bounded interval.
    """
    edge = min(pi / 2, WIDEST_ANGLE / sqrt(freedom))
    angles = np.linspace(0.0, edge, 5_001)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp((2 * probability - 1) * mass[-1], mass, angles))
    return sqrt(freedom) * tan(angle)
