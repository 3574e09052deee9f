"""The tables and sentences of `isentrope fit`."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isentrope.law.fit import Law
from isentrope.law.forecast import Backtest
from isentrope.law.study import Fit, Study
from isentrope.law.verdict import Verdict

__all__ = ["print_studies"]

COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.WEAKLY: "yellow",
    Verdict.FAILS: "red",
    Verdict.UNKNOWN: "cyan",
}
PAPER_RMSE, PAPER_END = "0.009", "0.005"


def print_studies(
    studies: Sequence[Study], failures: dict[str, str], *, figure: Path | None
) -> None:
    """Prints each run: what was read, the fits, the verdict, troubles, what to run next."""
    console = Console(highlight=False, soft_wrap=False)
    for study in studies:
        print_study(study, console)
    for log, message in failures.items():
        console.print(f"[red]{escape(log)}[/red]: {escape(message)}")
    if figure:
        console.print(f"figure: {escape(str(figure))}")


def print_study(study: Study, console: Console) -> None:
    """Prints one run."""
    record = study.record
    console.print(f"[bold]{escape(record.name)}[/bold]: {escape(record.format)}")
    for key in dict.fromkeys(fit.pairs.entropy.key for fit in study.fits):
        meaning = record.series[key].meaning
        console.print(f"  entropy {escape(key)}: {meaning.describe() if meaning else 'unknown'}")
    for note in record.notes:
        console.print(f"  note: {escape(note)}", style="dim")
    if record.unknown_entropy_keys:
        listed = escape(", ".join(record.unknown_entropy_keys))
        console.print(f"  keys with entropy that no rule knows: {listed}", style="dim")
    console.print(fits_table(study))
    for fit in study.fits:
        if fit.by_step:
            console.print(f"  {escape(fit.pairs.how)}", style="dim")
    for fit in study.fits:
        if fit.backtests:
            console.print(backtest_table(fit))
    print_verdict(study, console)


def fits_table(study: Study) -> Table:
    """The fits, one a row; a second row where pairing by equal step gives another."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("reward", overflow="fold", min_width=12)
    for name in ("points", "a", "b", "R2"):
        table.add_column(name, justify="right", no_wrap=True)
    level = next((f"{fit.law.level:.0%}" for fit in study.fits if fit.law), "")
    table.add_column(f"ceiling ({level})", no_wrap=True)
    table.add_column("law", no_wrap=True, min_width=len(Verdict.UNKNOWN))
    for fit in study.fits:
        table.add_row(escape(fit.pairs.reward.key), *law_cells(fit.law))
        if fit.by_step:
            table.add_row("  by equal step", *law_cells(fit.by_step), style="dim")
    return table


def law_cells(law: Law | None) -> list[str]:
    """The cells of a fit; no ceiling where the law does not hold."""
    if law is None:
        return ["", "", "", "", "", f"[cyan]{Verdict.UNKNOWN}[/cyan]"]
    colour = COLOURS[law.verdict]
    return [
        str(law.points),
        f"{law.a:.3f}",
        f"{law.b:.3f}",
        f"{law.r2:.3f}",
        f"{law.ceiling:.3f} {plus_minus(law.ceiling_interval)}" if law.usable else "-",
        f"[{colour}]{law.verdict}[/{colour}]",
    ]


def plus_minus(bounds: tuple[float, float] | None) -> str:
    """Half the width of a symmetric interval."""
    return f"+- {(bounds[1] - bounds[0]) / 2:.3f}" if bounds else ""


def interval(bounds: tuple[float, float] | None, digits: int = 3) -> str:
    """Bounds, or what is known instead."""
    return f"{bounds[0]:.{digits}f} .. {bounds[1]:.{digits}f}" if bounds else "unknown"


def print_verdict(study: Study, console: Console) -> None:
    """The sentences: verdict, what is left to gain, troubles, and what to run next."""
    until = f" (first {study.until:.0%} of the run)" if study.until else ""
    for fit in study.fits:
        key = escape(fit.pairs.reward.key)
        console.print(f"[bold]The law {fit.verdict} on {key}[/bold]{until}: {escape(fit.reason)}.")
    if study.main.law and study.main.law.usable:
        print_outlook(study.main, console)
    for trouble in study.troubles:
        console.print(f"[red]watch[/red] {escape(str(trouble))}.")
    console.print(f"next: {escape(next_command(study))}\n", style="dim")


def print_outlook(fit: Fit, console: Console) -> None:
    """What the ceiling leaves to gain, and how the forecast compares with what came."""
    law = fit.law
    assert law is not None
    spent = f"; {fit.spent:.0%} of the reachable gain is spent" if fit.spent is not None else ""
    console.print(
        f"{escape(fit.pairs.reward.key)}: ceiling at zero entropy {law.ceiling:.3f} ({interval(law.ceiling_interval)}; "
        f"taking points for independent {interval(law.ceiling_textbook)}; "
        f"median slope {law.robust.ceiling:.3f}){spent}."
    )
    foreseen = fit.forecast
    if foreseen is None:
        return
    low, high = foreseen.gain_interval
    last = fit.pairs.steps[law.points - 1]
    console.print(
        f"{foreseen.steps[-1] - last:.0f} more steps after step {last} are worth "
        f"{foreseen.gain:+.3f} +- {(high - low) / 2:.3f}; "
        f"a reward of {foreseen.reward[-1]:.3f} ({foreseen.low[-1]:.3f} .. {foreseen.high[-1]:.3f}) "
        f"is expected at step {foreseen.steps[-1]:.0f}."
    )


def backtest_table(fit: Fit) -> Table:
    """How forecasts from prefixes of this run would have fared."""
    table = Table(
        title=f"backtest on {escape(fit.pairs.reward.key)} (the paper's mean: RMSE {PAPER_RMSE}, "
        f"end {PAPER_END} at 15 %, entropy given)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("first", justify="right")
    table.add_column("points", justify="right")
    for name in ("RMSE", "end", "in band", "RMSE, own trend", "end", "in band"):
        table.add_column(name, justify="right")
    table.add_column("verdict then")
    for result in fit.backtests:
        table.add_row(f"{result.fraction:.0%}", str(result.points), *backtest_cells(result))
    return table


def backtest_cells(result: Backtest) -> list[str]:
    """The figures of one prefix."""
    if result.law is None:
        return [*["-"] * 6, "too few points"]
    errors = [
        f"{result.rmse_given:.3f}",
        f"{result.end_given:+.3f}",
        f"{result.covered_given:.0%}",
        f"{result.rmse_trend:.3f}",
        f"{result.end_trend:+.3f}",
        f"{result.covered_trend:.0%}",
    ]
    return [*errors, str(result.law.verdict)]


def next_command(study: Study) -> str:
    """What is worth running after this."""
    log = study.record.path
    fit = study.main
    if fit.verdict == "cannot be judged":
        others = [s.key for s in study.record.having("entropy")]
        return f"more points, or another reward or entropy ({', '.join(others[:4])})"
    if fit.law and fit.law.usable:
        return f"isentrope fit {log} --until 0.15 --backtest --figure law.png"
    return f"isentrope fit {log} --reward KEY, if another reward was meant; see docs/law.md"
