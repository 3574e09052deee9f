"""The comparison of arms for a terminal."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from isentrope.report.arms import group
from isentrope.report.frontier import LAST, Estimate, standings
from isentrope.report.laws import early_fit, read_law_of_arm
from isentrope.report.run_files import Run
from isentrope.report.summary import Change, arm_summary

__all__ = ["arms_table", "frontier_lines", "frontier_table", "law_lines"]


def arms_table(runs: Sequence[Run]) -> Table:
    """One row an arm: entropy, scores and selected tokens at start and end, means over the seeds.

    It is at most 80 columns wide.
    """
    first, arms = runs[0], group(runs)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", no_wrap=True)
    scores = (f"{first.metric(first.reward)}, %", f"{first.metric(first.passed)}, %")
    for head in ("seeds", "H, nats", "kept", *scores, "selected", "min"):
        table.add_column(head, justify="right", no_wrap=True)
    for arm in arms:
        one = arm_summary(arm)
        table.add_row(
            arm.name,
            str(len(arm.runs)),
            ends(one.entropy, "{:.3f}"),
            f"{100 * one.entropy.end / one.entropy.start:.0f} %",
            ends(one.average, "{:.1f}", 100),
            ends(one.passed, "{:.1f}", 100),
            f"{100 * one.selected_fraction:.1f} %",
            f"{one.minutes:.1f}",
        )
    return table


def frontier_table(runs: Sequence[Run]) -> Table:
    """One row an arm: its end with intervals over the seeds, and the gains over the first arm."""
    first = runs[0]
    average, passed = first.metric(first.reward), first.metric(first.passed)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", no_wrap=True)
    heads = (f"{average}, %", f"{passed}, %", "H, nats", f"{average} gain", f"{passed} gain")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for one in standings(group(runs)):
        table.add_row(
            one.arm.name,
            spread(one.average, ".1f", 100),
            spread(one.passed, ".1f", 100),
            spread(one.entropy, ".3f"),
            spread(one.average_gain, "+.1f", 100),
            spread(one.passed_gain, "+.1f", 100),
        )
    return table


def frontier_lines(runs: Sequence[Run]) -> list[str]:
    """How to read `frontier_table`, and which arms no other beats."""
    arms = group(runs)
    unbeaten = [one.arm.name for one in standings(arms) if not one.beaten_by]
    lengths = {run.steps for run in runs}
    lines = [
        f"means of the last {LAST} evaluations; +- is the 95 % interval over the seeds; gains "
        f"over {arms[0].name}, paired by seed",
        f"no other arm has more of both: {', '.join(unbeaten)}",
    ]
    if len(lengths) > 1:
        lines.append(f"the runs have from {min(lengths)} to {max(lengths)} steps")
    return lines


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


def spread(estimate: Estimate, form: str, factor: float = 1) -> str:
    """The mean and half the interval."""
    if not np.isfinite(estimate.mean):
        return "-"
    text = f"{factor * estimate.mean:{form}}"
    half = f" +-{factor * estimate.half:{form.removeprefix('+')}}"
    return text + (half if np.isfinite(estimate.half) else "")


def ends(change: Change, form: str, factor: float = 1) -> str:
    """The value at the start and at the end."""
    if not np.isfinite(change.end):
        return "-"
    return f"{form.format(factor * change.start)} > {form.format(factor * change.end)}"
