"""The law R = -a exp(H) + b: its closed-form fit, how sure it is, and whether it holds at all.

H is the policy's entropy in nats and R its validation reward, both of the same policy
(arXiv 2505.22617, section 2.4). With x = exp(H) the law is a straight line, so no start guess
and no iteration is needed, and b - a is the reward that is left when the entropy is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isentrope.errors import DataError
from isentrope.law.noise import Noise, estimate_noise, t_quantile
from isentrope.law.verdict import MIN_POINTS, Evidence, Verdict, judge

__all__ = ["Law", "Line", "Verdict", "fit_law", "robust_line"]

Array = NDArray[np.float64]
Interval = tuple[float, float]

MOST_PAIRED_POINTS = 300  # the robust line looks at every pair of points
FLAT = 1e-9  # entropies closer than this are one value written with rounding noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One reading of the law: R = -a exp(H) + b."""

    a: float
    b: float

    @property
    def ceiling(self) -> float:
        """The reward at zero entropy, b - a."""
        return self.b - self.a

    def predict(self, entropy: Array) -> Array:
        """The reward that goes with each entropy."""
        return self.b - self.a * np.exp(entropy)


@dataclass(frozen=True, kw_only=True, slots=True)
class Law(Line):
    """The least-squares fit, its uncertainty, and the verdict on it. Unknown uncertainty is None."""

    points: int
    r2: float
    """Share of the reward's variance that the law explains; 0 for a constant reward."""
    rmse: float
    """Root of the mean squared residual."""
    level: float
    """Coverage asked of every interval."""
    a_error: float | None
    """Textbook standard error, which takes the points for independent."""
    b_error: float | None
    ceiling_textbook: Interval | None
    """The interval that takes the points for independent: much too narrow for most runs."""
    ceiling_interval: Interval | None
    """The interval that respects the autocorrelation; None below 8 points."""
    a_interval: Interval | None
    noise: Noise | None
    """Autoregressive noise around the line; None below 8 points."""
    robust: Line
    """The median-slope line, which a minority of outlying points cannot move."""
    entropy_range: Interval
    verdict: Verdict
    reason: str
    """Why the verdict is what it is, in one sentence with its numbers."""

    @property
    def usable(self) -> bool:
        """Whether the ceiling means something: the law holds, at least weakly."""
        return self.verdict in (Verdict.HOLDS, Verdict.WEAKLY)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        noise = self.noise
        return {
            "a": self.a,
            "b": self.b,
            "ceiling": self.ceiling,
            "points": self.points,
            "r2": self.r2,
            "rmse": self.rmse,
            "level": self.level,
            "a_error": self.a_error,
            "b_error": self.b_error,
            "a_interval": self.a_interval,
            "ceiling_textbook": self.ceiling_textbook,
            "ceiling_interval": self.ceiling_interval,
            "correlation": noise.correlation if noise else None,
            "effective_points": noise.effective_points if noise else None,
            "robust": {"a": self.robust.a, "b": self.robust.b, "ceiling": self.robust.ceiling},
            "entropy_range": self.entropy_range,
            "verdict": str(self.verdict),
            "reason": self.reason,
        }


def fit_law(
    entropy: Sequence[float] | Array, reward: Sequence[float] | Array, *, level: float = 0.9
) -> Law:
    """The law fitted to pairs in time order; pairs with a missing half are left out.

    Raises DataError when the pairs cannot carry a line: fewer than two, or all of one entropy.
    """
    h, r = complete_pairs(entropy, reward)
    x = np.exp(h)
    line = least_squares(x, r)
    residuals = r - line.predict(h)
    squares, total = float(residuals @ residuals), float(((r - r.mean()) ** 2).sum())
    r2 = 1 - squares / total if total > 0 else 0.0
    textbook = textbook_errors(line, x, squares, level)
    noise = estimate_noise(x, residuals) if len(x) >= MIN_POINTS else None
    a_interval = noise and around(line.a, noise.covariance[2], noise.quantile(level))
    ceiling_interval = noise and around(
        line.ceiling, noise.line_variance(1.0), noise.quantile(level)
    )
    robust = robust_line(h, r)
    verdict, reason = judge(
        Evidence(entropy=h, reward=r, a=line.a, r2=r2, a_interval=a_interval, robust_a=robust.a)
    )
    return Law(
        a=line.a,
        b=line.b,
        points=len(x),
        r2=r2,
        rmse=sqrt(squares / len(x)),
        level=level,
        a_error=textbook.a_error,
        b_error=textbook.b_error,
        ceiling_textbook=textbook.ceiling,
        ceiling_interval=ceiling_interval,
        a_interval=a_interval,
        noise=noise,
        robust=robust,
        entropy_range=(float(h.min()), float(h.max())),
        verdict=verdict,
        reason=reason,
    )


def complete_pairs(
    entropy: Sequence[float] | Array, reward: Sequence[float] | Array
) -> tuple[Array, Array]:
    """The pairs of which both halves are finite; DataError when no line goes through them."""
    h, r = np.asarray(entropy, np.float64), np.asarray(reward, np.float64)
    if h.ndim != 1 or h.shape != r.shape:
        raise DataError(
            f"entropy and reward must be two lists of one length, not of shapes {h.shape} and "
            f"{r.shape}; pair them by step first (isentrope.runs.pair)"
        )
    complete = np.isfinite(h) & np.isfinite(r)
    h, r = h[complete], r[complete]
    if len(h) < 2:
        raise DataError(
            f"the law needs at least 2 points with both entropy and reward; there "
            f"{'is 1' if len(h) == 1 else 'are none'}"
        )
    if float(np.ptp(h)) <= FLAT * max(1.0, float(np.abs(h).max())):
        raise DataError(
            f"every entropy is {h[0]:g}, so no slope can be fitted; "
            + ("an entropy of 0.0 throughout was not measured" if h[0] == 0 else "check its key")
        )
    return h, r


def least_squares(x: Array, reward: Array) -> Line:
    """The line of least squares through (x, reward) with x = exp(H), from centred sums."""
    center, middle = x.mean(), reward.mean()
    slope = float((x - center) @ (reward - middle)) / float((x - center) @ (x - center))
    return Line(a=-slope, b=float(middle) - slope * float(center))


class Textbook(NamedTuple):
    """Errors under independent points; None where no degree of freedom is left."""

    a_error: float | None
    b_error: float | None
    ceiling: Interval | None


def textbook_errors(line: Line, x: Array, squares: float, level: float) -> Textbook:
    """The standard errors of ordinary least squares and the t interval of the ceiling."""
    n = len(x)
    if n < 3:
        return Textbook(None, None, None)
    variance = squares / (n - 2)
    spread = float(((x - x.mean()) ** 2).sum())
    b_variance = variance * (1 / n + float(x.mean()) ** 2 / spread)
    ceiling_variance = variance * (1 / n + (1 - float(x.mean())) ** 2 / spread)
    width = t_quantile(0.5 + level / 2, n - 2)
    return Textbook(
        sqrt(variance / spread), sqrt(b_variance), around(line.ceiling, ceiling_variance, width)
    )


def around(center: float, variance: float, width: float) -> Interval:
    """The interval of `width` standard errors on each side."""
    half = width * sqrt(max(variance, 0.0))
    return center - half, center + half


def robust_line(entropy: Array, reward: Array) -> Line:
    """The Theil-Sen line: the median slope over all pairs of points, then the median intercept.

    Up to 29 % of the points may be anything. Above 300 points every k-th one is used.
    """
    stride = -(-len(entropy) // MOST_PAIRED_POINTS)
    x, y = np.exp(entropy[::stride]), reward[::stride]
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    apart = run != 0
    if not apart.any():  # thinned to points of one entropy
        return least_squares(np.exp(entropy), reward)
    slope = float(np.median((y[second] - y[first])[apart] / run[apart]))
    return Line(a=0.0 - slope, b=float(np.median(reward - slope * np.exp(entropy))))
