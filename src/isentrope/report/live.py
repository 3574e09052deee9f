"""One frame of `isentrope watch`: a run folder drawn for the terminal."""

import numpy as np
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isentrope.law.trouble import find_troubles
from isentrope.report.laws import outlook, read_law
from isentrope.report.run_files import Run
from isentrope.report.summary import outlook_sentence
from isentrope.report.svg import Array
from isentrope.runs import Series

__all__ = ["frame", "is_finished", "sparkline"]

BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
CHART_HEIGHT = 4
RECENT = 20  # steps of the means in the table and of the time for the ETA
LEAST_QUIET_S = 60.0
QUIET_STEPS = 5  # a run that is silent for so many steps' time is pointed out
TROUBLE_STYLES = {
    "collapse": "bold red",
    "explosion": "bold red",
    "narrowing": "bold yellow",
    "plateau": "bold yellow",
}
SHOWN = {
    # key: what the table calls it
    "entropy/sequence_mean": "entropy, sequence mean",
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


def frame(run: Run, *, width: int, quiet_s: float) -> RenderableType:
    """Progress, two curves, the latest evaluation, alarms and the table of metrics.

    `quiet_s` is the time since the log last grew.
    """
    half = max((width - 2) // 2, 30)
    charts = [
        curve(run.training_entropy, "entropy H, nats", "cyan", half),
        curve(run.first("train"), "training reward", "green", half),
    ]
    stacked: RenderableType = (
        Columns(charts, padding=(0, 1)) if 2 * half + 1 <= width else Group(*charts)
    )
    lines = [
        Text.assemble(
            (f"{one.kind} from step {one.step}: ", TROUBLE_STYLES[one.kind]), one.evidence
        )
        for one in find_troubles(run.record)
    ]
    if not is_finished(run) and quiet_s > max(LEAST_QUIET_S, QUIET_STEPS * step_seconds(run)):
        lines.append(Text(f"no new step for {clock(quiet_s)}: stopped, or stuck", style="yellow"))
    ahead = outlook(run, read_law(run))
    if ahead is not None:
        lines.insert(0, Text(outlook_sentence(ahead)))
    return Group(progress(run), stacked, evaluation(run), *lines, metrics_table(run))


def progress(run: Run) -> RenderableType:
    """Name, steps done, bar, elapsed time and time to go."""
    done, planned = steps_done(run), run.planned_steps
    elapsed = clock(float(run.get("time/step_s").values.sum()))
    seed = f" seed {run.seed}" if run.seed is not None else ""
    name = Text.assemble((run.arm, "bold"), (seed, "dim"))
    grid = Table.grid(padding=(0, 2))
    if planned is None:
        grid.add_row(name, f"step {done}", f"{elapsed} so far")
        return grid
    remaining = "finished"
    if not is_finished(run):
        remaining = f"{clock((planned - done) * step_seconds(run))} to go"
    bar = ProgressBar(total=planned, completed=done, width=24)
    share = f"{100 * done / planned:.0f} %"
    grid.add_row(name, f"step {done}/{planned}", bar, share, elapsed, remaining)
    return grid


def steps_done(run: Run) -> int:
    """Training steps that are over: the row of step s is written at the end of it."""
    entropy = run.training_entropy
    return int(entropy.steps[-1]) + 1 if len(entropy) else run.steps


def step_seconds(run: Run) -> float:
    """Mean duration of the last steps; 0 where it was not logged."""
    recent = run.get("time/step_s").values[-RECENT:]
    return float(recent.mean()) if recent.size else 0.0


def is_finished(run: Run) -> bool:
    """Whether every planned step was logged."""
    planned = run.planned_steps
    return planned is not None and steps_done(run) >= planned


def curve(series: Series | None, title: str, style: str, width: int) -> Panel:
    """A small chart of one metric with its range on the left."""
    if series is None or not len(series):
        return Panel("not logged", title=title, width=width, title_align="left")
    values = series.values
    low, high = float(values.min()), float(values.max())
    labels = [f"{high:.3g}", *[""] * (CHART_HEIGHT - 2), f"{low:.3g}"]
    margin = max(map(len, labels))
    rows = sparkline(values, width - margin - 5, CHART_HEIGHT)
    lines = [
        Text.assemble((f"{label:>{margin}} ", "dim"), (row, style))
        for label, row in zip(labels, rows, strict=True)
    ]
    return Panel(
        Group(*lines),
        title=title,
        subtitle=f"{values[0]:.3g} -> {values[-1]:.3g}",
        width=width,
        title_align="left",
        subtitle_align="left",
    )


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


def evaluation(run: Run) -> RenderableType:
    """The first and the latest value of every evaluated reward."""
    rewards = [*run.record.having("validation"), *run.record.having("pass@k")]
    if not rewards:
        return Text("no evaluation yet", style="dim")
    lines = [
        f"{run.name_of(series)}: {100 * series.values[0]:.1f} -> {100 * series.values[-1]:.1f} %"
        f" at step {series.steps[-1]}"
        for series in rewards
    ]
    return Text("   ".join(lines), style="bold")


def metrics_table(run: Run) -> Table:
    """The logged metrics: at the start, over the last steps, and in the last step."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("metric")
    for name in ("first", f"mean of {RECENT}", "latest"):
        table.add_column(name, justify="right")
    for key, name in SHOWN.items():
        values = run.get(key).values
        if values.size:
            numbers = (values[0], values[-RECENT:].mean(), values[-1])
            table.add_row(name, *(significant(float(value)) for value in numbers))
    return table


def significant(value: float) -> str:
    """Four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def clock(seconds: float) -> str:
    """A duration as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
