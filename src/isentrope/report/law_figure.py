"""Figures of the law: reward over entropy with the fit, and over steps with the forecast."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isentrope.errors import ConfigError, require
from isentrope.law.study import Fit, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_suffix", "draw_studies"]

SUFFIXES = (".png", ".svg", ".pdf")
POINT, LINE, BAND = "#4c72b0", "#c44e52", "#dd8452"


def check_suffix(path: Path) -> None:
    """Raises a ConfigError for a suffix that is no figure's."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"a figure is one of {', '.join(SUFFIXES)}, not {path.name!r}")


def draw_studies(studies: Sequence[Study], path: Path) -> None:
    """Writes one row of two panels a fit."""
    check_suffix(path)
    require("matplotlib", "report")
    from matplotlib.figure import Figure

    drawn = [(study, fit) for study in studies for fit in study.fits if fit.law]
    if not drawn:
        raise ConfigError("there is no fit to draw")
    figure = Figure(figsize=(10, 3.6 * len(drawn)), layout="constrained")
    rows = figure.subplots(len(drawn), 2, squeeze=False)
    for (study, fit), (left, right) in zip(drawn, rows, strict=True):
        draw_law(fit, study.record.name, left)
        draw_course(fit, right)
    figure.savefig(path, dpi=150)


def draw_law(fit: Fit, name: str, axes: "Axes") -> None:
    """Reward over entropy: fitted points filled, the rest open; the line down to zero entropy."""
    law, pairs = fit.law, fit.pairs
    assert law is not None
    n = law.points
    axes.scatter(pairs.h[n:], pairs.r[n:], s=10, facecolors="none", edgecolors=POINT, lw=0.6)
    axes.scatter(pairs.h[:n], pairs.r[:n], s=10, color=POINT)
    grid = np.linspace(0, float(pairs.h.max()), 200)
    axes.plot(grid, law.predict(grid), color=LINE, label=f"{law.b:.3f} - {law.a:.3f} exp(H)")
    if law.usable and law.ceiling_interval:
        low, high = law.ceiling_interval
        axes.errorbar(
            [0],
            [law.ceiling],
            yerr=[[law.ceiling - low], [high - law.ceiling]],
            color=LINE,
            capsize=4,
            fmt="o",
            label=f"ceiling {law.ceiling:.3f}",
        )
    axes.set_xlabel("entropy H (nats)")
    axes.set_ylabel(pairs.reward.key)
    axes.set_title(f"{name}: {law.verdict} (R2 {law.r2:.2f}, {n} points)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)


def draw_course(fit: Fit, axes: "Axes") -> None:
    """Reward over steps, the law's reward, and the band of the forecast."""
    law, pairs = fit.law, fit.pairs
    assert law is not None
    axes.plot(pairs.steps, pairs.r, color=POINT, lw=0.8, label="measured")
    axes.plot(
        pairs.steps[: law.points], law.predict(pairs.h[: law.points]), color=LINE, lw=1, label="law"
    )
    foreseen = fit.forecast
    if foreseen is not None:
        axes.fill_between(foreseen.steps, foreseen.low, foreseen.high, color=BAND, alpha=0.25, lw=0)
        axes.plot(foreseen.steps, foreseen.reward, color=BAND, label=f"forecast, {law.level:.0%}")
        axes.axvline(pairs.steps[law.points - 1], color="0.6", lw=0.8, ls=":")
    if law.usable:
        axes.axhline(law.ceiling, color=LINE, lw=0.8, ls="--")
    axes.set_xlabel("step")
    axes.legend(fontsize=8, frameon=False)
