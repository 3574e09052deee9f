"""How often the 90 % intervals of the ceiling hold the truth, on synthetic runs of known (a, b).

    python benchmarks/interval_coverage.py [--runs 500]

H falls from 1.2 to 0.1 nats, R = 0.9 - 0.3 exp(H) plus AR(1) noise of deviation 0.02.
"""

import argparse

import numpy as np

from isentrope.law.bootstrap import bootstrap_ceiling
from isentrope.law.fit import fit_law
from isentrope.law.noise import t_quantile

TRUTH = 0.6


def noise(rng: np.random.Generator, points: int, rho: float) -> np.ndarray:
    """AR(1) noise of deviation 0.02."""
    values = rng.normal(size=points)
    for i in range(1, points):
        values[i] = rho * values[i - 1] + np.sqrt(1 - rho**2) * values[i]
    return 0.02 * values


def coverage(points: int, rho: float, runs: int) -> np.ndarray:
    """Shares of (ours, textbook, block bootstrap, ours with the quantile of the full n)."""
    rng = np.random.default_rng(11)
    h = 0.1 + 1.1 * np.exp(-5 * np.arange(points) / points)
    hits = np.zeros(4)
    for _ in range(runs):
        r = 0.9 - 0.3 * np.exp(h) + noise(rng, points, rho)
        law = fit_law(h, r)
        assert law.ceiling_interval is not None
        assert law.ceiling_textbook is not None
        assert law.noise is not None
        half = t_quantile(0.95, points - 2) * law.noise.line_variance(1.0) ** 0.5
        intervals = (
            law.ceiling_interval,
            law.ceiling_textbook,
            bootstrap_ceiling(h, r, fits=500),
            (law.ceiling - half, law.ceiling + half),
        )
        hits += [low < TRUTH < high for low, high in intervals]
    return hits / runs


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    options = parser.parse_args()
    print("| points | rho | chosen | textbook | block bootstrap | without effective points |")
    print("|---|---|---|---|---|---|")
    for points in (40, 100, 400):
        for rho in (0.0, 0.4, 0.7, 0.85, 0.95):
            shares = " | ".join(f"{share:.3f}" for share in coverage(points, rho, options.runs))
            print(f"| {points} | {rho} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
