"""One frame of `isentrope watch`: a run folder drawn for the terminal."""

from collections.abc import Mapping

import numpy as np
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isentrope.report.alarms import Alarm
from isentrope.report.arms import ENTROPY
from isentrope.report.load import RunFolder, column
from isentrope.report.svg import Array

__all__ = ["frame", "is_finished", "planned_steps", "sparkline"]

BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
CHART_HEIGHT = 4
RECENT = 20  # steps of the means in the table and of the time for the ETA
LEAST_QUIET_S = 60.0
QUIET_STEPS = 5  # a run that is silent for so many steps' time is pointed out
SHOWN = {
    # key: what the table calls it
    ENTROPY: "entropy, sequence mean",
    "entropy/token_mean": "entropy, token mean",
    "reward/mean": "training reward",
    "groups/all_right": "groups all right",
    "groups/all_wrong": "groups all wrong",
    "covariance/mean": "covariance, mean",
    "covariance/top_0.002": "covariance, top 0.2 %",
    "selected/fraction": "tokens selected",
    "entropy_change/measured": "entropy change, measured",
    "entropy_change/predicted": "entropy change, predicted",
    "kl/behaviour": "KL from sampling policy",
    "clip/fraction": "clip fraction",
    "grad_norm": "gradient norm",
    "length/mean": "length, mean",
    "truncated": "truncated",
    "tokens_per_s": "tokens per second",
}


def frame(run: RunFolder, alarms: list[Alarm], *, width: int, quiet_s: float) -> RenderableType:
    """Progress, two curves, the latest evaluation, alarms and the table of metrics.

    `quiet_s` is the time since the log last grew.
    """
    half = max((width - 2) // 2, 30)
    charts = [
        curve(run, ENTROPY, "entropy H, nats", "cyan", half),
        curve(run, "reward/mean", "training reward", "green", half),
    ]
    stacked: RenderableType = (
        Columns(charts, padding=(0, 1)) if 2 * half + 1 <= width else Group(*charts)
    )
    lines = [Text(alarm.text, style="bold red") for alarm in alarms]
    if not is_finished(run) and quiet_s > max(LEAST_QUIET_S, QUIET_STEPS * step_seconds(run)):
        lines.append(Text(f"no new step for {clock(quiet_s)}: stopped, or stuck", style="yellow"))
    return Group(progress(run), stacked, evaluation(run), *lines, metrics_table(run))


def progress(run: RunFolder) -> RenderableType:
    """Name, steps done, bar, elapsed time and time to go."""
    done, planned = len(run.metrics), planned_steps(run.config)
    elapsed = float(np.nansum(column(run.metrics, "time/step_s")))
    seed = f" seed {run.seed}" if run.seed is not None else ""
    grid = Table.grid(padding=(0, 2))
    name = Text.assemble((run.arm, "bold"), (seed, "dim"))
    if planned is None:
        grid.add_row(name, f"step {done}", f"{clock(elapsed)} so far")
        return grid
    if is_finished(run):
        remaining = "finished"
    else:
        remaining = f"{clock((planned - done) * step_seconds(run))} to go"
    bar = ProgressBar(total=planned, completed=done, width=24)
    share = f"{100 * done / planned:.0f} %"
    grid.add_row(name, f"step {done}/{planned}", bar, share, clock(elapsed), remaining)
    return grid


def step_seconds(run: RunFolder) -> float:
    """Mean duration of the last steps; 0 where it was not logged."""
    seconds = column(run.metrics, "time/step_s")
    recent = seconds[np.isfinite(seconds)][-RECENT:]
    return float(recent.mean()) if recent.size else 0.0


def planned_steps(config: Mapping[str, object]) -> int | None:
    """`steps` of config.toml, at the top or in one of its tables."""
    tables = [config, *(value for value in config.values() if isinstance(value, Mapping))]
    found = [table["steps"] for table in tables if isinstance(table.get("steps"), int)]
    return found[0] if found and found[0] > 0 else None


def is_finished(run: RunFolder) -> bool:
    """Whether every planned step was logged."""
    planned = planned_steps(run.config)
    return planned is not None and len(run.metrics) >= planned


def curve(run: RunFolder, key: str, title: str, style: str, width: int) -> Panel:
    """A small chart of one metric with its range on the left."""
    values = column(run.metrics, key)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Panel("not logged", title=title, width=width, title_align="left")
    low, high = float(values.min()), float(values.max())
    labels = [f"{high:.3g}", *[""] * (CHART_HEIGHT - 2), f"{low:.3g}"]
    margin = max(map(len, labels))
    rows = sparkline(values, width - margin - 5, CHART_HEIGHT)
    text = Text()
    for label, row in zip(labels, rows, strict=True):
        text.append(f"{label:>{margin}} ", style="dim")
        text.append(row + "\n", style=style)
    text.right_crop(1)
    course = f"{title}  {values[0]:.3g} -> {values[-1]:.3g}"
    return Panel(text, title=course, width=width, title_align="left")


def sparkline(values: Array, width: int, height: int) -> list[str]:
    """Bars of block characters, top row first; the lowest value still shows one eighth."""
    columns = np.array_split(values, min(width, values.size))
    means = np.array([float(part.mean()) for part in columns])
    spread = float(np.ptp(means))
    share = (means - means.min()) / spread if spread > 0 else np.full(means.size, 0.5)
    eighths = 1 + np.round(share * (8 * height - 1)).astype(int)
    return [
        "".join(BLOCKS[int(np.clip(filled - 8 * row, 0, 8))] for filled in eighths)
        for row in reversed(range(height))
    ]


def evaluation(run: RunFolder) -> RenderableType:
    """The first and the latest evaluation of every data set, one line each."""
    lines: list[str] = []
    for source in run.sources:
        rows = run.evaluated(source)
        k = rows[-1].get("k", "k")
        parts = [
            f"{name} {100 * values[0]:.1f} -> {100 * values[-1]:.1f} %"
            for key, name in (("reward/avg", f"avg@{k}"), ("reward/pass", f"pass@{k}"))
            if np.isfinite(values := column(rows, key)).all()
        ]
        step = int(column(rows, "step")[-1])
        lines.append(f"{source or 'evaluation'} at step {step}: " + ", ".join(parts))
    return Text("\n".join(lines) if lines else "no evaluation yet", style="bold")


def metrics_table(run: RunFolder) -> Table:
    """The logged metrics: at the start, over the last steps, and in the last step."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("metric")
    for name in ("first", f"mean of {RECENT}", "latest"):
        table.add_column(name, justify="right")
    for key, name in SHOWN.items():
        values = column(run.metrics, key)
        if not np.isfinite(values).any():
            continue
        recent = values[-RECENT:][np.isfinite(values[-RECENT:])]
        mean = significant(float(recent.mean())) if recent.size else "-"
        table.add_row(name, significant(float(values[0])), mean, significant(float(values[-1])))
    return table


def significant(value: float) -> str:
    """Four digits; a dash for a missing value."""
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def clock(seconds: float) -> str:
    """A duration as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
