"""The law over model size, and over algorithms: what small models say about a large one.

In the paper the coefficients go with the logarithm of the number of parameters without embeddings
inside a family, and do not depend on the algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from isentrope.errors import DataError
from isentrope.law.fit import Law
from isentrope.law.noise import t_quantile

__all__ = [
    "Agreement",
    "Prediction",
    "Size",
    "SizeLine",
    "compare_laws",
    "fit_size",
    "predict_size",
]

Array = NDArray[np.float64]
Interval = tuple[float, float]

SHARED_ABOVE = 0.05  # the usual level of a test


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The law of one model."""

    parameters: float
    """Without embeddings."""
    a: float
    b: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeLine:
    """value = start + slope ln(parameters), by least squares."""

    start: float
    slope: float
    models: int
    deviation: float | None
    """Of a model from the line; None for two models, which any line fits."""
    center: float
    spread: float

    def predict(self, parameters: float) -> float:
        """The value for a model."""
        return self.start + self.slope * log(parameters)

    def interval(self, parameters: float, level: float) -> Interval | None:
        """In which the value of one more model is expected; None where nothing is known of it."""
        if self.deviation is None:
            return None
        distance = (log(parameters) - self.center) ** 2 / self.spread
        half = self.deviation * sqrt(1 + 1 / self.models + distance)
        half *= t_quantile(0.5 + level / 2, self.models - 2)
        return self.predict(parameters) - half, self.predict(parameters) + half


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The law expected of a model of a given size."""

    parameters: float
    a: float
    a_interval: Interval | None
    b: float
    b_interval: Interval | None
    ceiling: float
    ceiling_interval: Interval | None
    extrapolation: float
    """The size over that of the largest model fitted."""


def fit_size(sizes: Sequence[Size], what: str) -> SizeLine:
    """The line of "a", "b" or "ceiling" over the models of one family."""
    values = np.array([{"a": s.a, "b": s.b, "ceiling": s.b - s.a}[what] for s in sizes])
    x = np.log([s.parameters for s in sizes])
    if len(set(x)) < 2:
        raise DataError(f"a family needs models of at least 2 sizes; there are {len(set(x))}")
    center, spread = float(x.mean()), float(((x - x.mean()) ** 2).sum())
    slope = float((x - center) @ values) / spread
    start = float(values.mean()) - slope * center
    residuals = values - start - slope * x
    free = len(x) - 2
    deviation = sqrt(float(residuals @ residuals) / free) if free else None
    return SizeLine(
        start=start,
        slope=slope,
        models=len(x),
        deviation=deviation,
        center=center,
        spread=spread,
    )


def predict_size(sizes: Sequence[Size], parameters: float, *, level: float = 0.9) -> Prediction:
    """What the models of a family say about one of `parameters` parameters.

    The ceiling has a line of its own: a and b err together, so their intervals do not subtract.
    """
    a, b, ceiling = (fit_size(sizes, what) for what in ("a", "b", "ceiling"))
    return Prediction(
        parameters=parameters,
        a=a.predict(parameters),
        a_interval=a.interval(parameters, level),
        b=b.predict(parameters),
        b_interval=b.interval(parameters, level),
        ceiling=ceiling.predict(parameters),
        ceiling_interval=ceiling.interval(parameters, level),
        extrapolation=parameters / max(size.parameters for size in sizes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Whether several runs may share one (a, b)."""

    runs: int
    p_value: float
    """The chance of differences as large as these if they share it."""
    a: float
    """The common coefficients, each run weighted by its precision."""
    b: float

    @property
    def shared(self) -> bool:
        """Nothing speaks against it; which is no proof of it."""
        return self.p_value > SHARED_ABOVE


def compare_laws(laws: Sequence[Law]) -> Agreement:
    """The test that laws have the same (a, b): Wald's, on their autocorrelation-aware errors.

    sum_i (theta_i - theta)' V_i^-1 (theta_i - theta) / 2(m - 1), against an F distribution of
    2(m - 1) and the smallest run's effective degrees of freedom.
    """
    noises = [law.noise for law in laws if law.noise is not None]
    if len(noises) < len(laws) or len(laws) < 2:
        raise DataError("the comparison needs at least 2 runs of at least 8 points each")
    estimates = np.array([[law.b, -law.a] for law in laws])
    covariances = [np.array([[v, c], [c, w]]) for v, c, w in (n.covariance for n in noises)]
    weights = np.array([np.linalg.pinv(matrix, hermitian=True) for matrix in covariances])
    common = np.linalg.solve(weights.sum(axis=0), np.einsum("kij,kj->i", weights, estimates))
    apart = estimates - common
    statistic = float(np.einsum("ki,kij,kj->", apart, weights, apart))
    half = len(laws) - 1
    freedom = min(noise.freedom for noise in noises)
    return Agreement(
        runs=len(laws),
        p_value=f_tail(statistic / (2 * half), half, freedom),
        a=-float(common[1]),
        b=float(common[0]),
    )


def f_tail(value: float, half: int, freedom: float) -> float:
    """P(F > value) for F of (2 half, freedom) degrees: a finite sum, as the first is even."""
    w = freedom / (freedom + 2 * half * value)
    term = total = 1.0
    for j in range(1, half):
        term *= (freedom / 2 + j - 1) / j * (1 - w)
        total += term
    return w ** (freedom / 2) * total
