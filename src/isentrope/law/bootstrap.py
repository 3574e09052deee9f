"""The moving-block bootstrap of the law: an alternative interval that assumes no kind of noise.

Blocks of successive points are drawn with replacement, so the correlation inside a block stays.
Each block's sums are differences of running sums, so a fit costs a few look-ups a block.
On short, strongly correlated curves it covers less than it promises; see docs/law.md.
"""

import numpy as np
from numpy.typing import NDArray

from isentrope.law.fit import complete_pairs

__all__ = ["bootstrap_ceiling", "bootstrap_fits"]

Array = NDArray[np.float64]


def bootstrap_fits(
    entropy: Array, reward: Array, *, fits: int = 2_000, block: int | None = None, seed: int = 0
) -> Array:
    """(a, b) of each resampled run, shape (fits, 2); blocks of 2 n^(1/3) points unless given."""
    h, r = complete_pairs(entropy, reward)
    n = len(h)
    length = min(block or max(1, round(2 * n ** (1 / 3))), n)
    x, y = np.exp(h), r - r.mean()
    center = x.mean()
    z = x - center
    products = np.stack([z, y, z * z, z * y])
    running = np.concatenate([np.zeros((4, 1)), np.cumsum(products, axis=1)], axis=1)
    block_sums = running[:, length:] - running[:, :-length]
    starts = np.random.default_rng(seed).integers(0, n - length + 1, (fits, -(-n // length)))
    count = starts.shape[1] * length
    z_mean, y_mean, zz, zy = (sums[starts].sum(axis=1) / count for sums in block_sums)
    spread = zz - z_mean**2
    slope = np.divide(zy - z_mean * y_mean, spread, out=np.full(fits, np.nan), where=spread > 1e-15)
    intercept = y_mean - slope * z_mean + r.mean() - slope * center
    return np.stack([-slope, intercept], axis=1)


def bootstrap_ceiling(
    entropy: Array, reward: Array, *, level: float = 0.9, fits: int = 2_000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the ceiling b - a."""
    drawn = bootstrap_fits(entropy, reward, fits=fits, seed=seed)
    low, high = np.nanquantile(drawn[:, 1] - drawn[:, 0], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
