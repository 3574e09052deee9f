"""The comparison of arms for a terminal."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from isentrope.report.arms import group
from isentrope.report.laws import early_fit, read_law_of_arm
from isentrope.report.run_files import Run
from isentrope.report.summary import Change, arm_summary

__all__ = ["arms_table", "law_lines"]


def arms_table(runs: Sequence[Run]) -> Table:
    """One row an arm: entropy, scores and selected tokens, means over the seeds."""
    first = runs[0]
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    table.add_column("arm")
    for head in (
        "seeds",
        "steps",
        "H start",
        "H end",
        "H kept",
        f"{first.metric(first.reward)}",
        f"{first.metric(first.passed)}",
        "selected",
        "minutes",
    ):
        table.add_column(head, justify="right")
    for arm in group(runs):
        one = arm_summary(arm)
        table.add_row(
            arm.name,
            str(len(arm.runs)),
            str(one.steps),
            f"{one.entropy.start:.3f}",
            f"{one.entropy.end:.3f}",
            f"{100 * one.entropy.end / one.entropy.start:.0f} %",
            points(one.average),
            points(one.passed),
            f"{100 * one.selected_fraction:.2f} %",
            f"{one.minutes:.1f}",
        )
    return table


def law_lines(runs: Sequence[Run]) -> list[str]:
    """What the law says of each arm, in words; the forecast from its first quarter too."""
    lines = []
    for arm in group(runs):
        reading = read_law_of_arm(arm)
        if reading.law is None or not reading.usable:
            lines.append(f"{arm.name}: no ceiling; {reading.reason}")
            continue
        law = reading.law
        line = (
            f"{arm.name}: R = -{law.a:.3f} e^H + {law.b:.3f}, R2 {law.r2:.2f}, "
            f"ceiling at H = 0 {100 * law.ceiling:.1f} %"
        )
        early = early_fit(reading)
        if early is not None:
            line += f"; its first quarter forecasts the rest with RMSE {100 * early.rmse:.1f} %"
        lines.append(line)
    return lines


def points(change: Change) -> str:
    """Two scores in percent, start and end."""
    if not np.isfinite(change.end):
        return "-"
    return f"{100 * change.start:.1f} -> {100 * change.end:.1f} %"
