"""The tables and sentences of `isentrope scale`."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isentrope.law.ladder import Climbed
from isentrope.law.scale import Prediction

__all__ = ["print_ladder"]

FAR = 10.0  # times the largest model fitted


def print_ladder(result: Climbed) -> None:
    """Prints the runs, the predictions with their intervals, and the comparisons."""
    console = Console(highlight=False)
    console.print(runs_table(result))
    for family, a, b in result.lines:
        console.print(
            f"{escape(family)}: a = {a.start:.3f} {a.slope:+.3f} ln N, "
            f"b = {b.start:.3f} {b.slope:+.3f} ln N, N parameters, {a.models} runs"
        )
    for family, prediction in result.predictions:
        console.print(f"[bold]{escape(family)}, {size(prediction.parameters)}[/bold]: ", end="")
        console.print(sentence(prediction))
    for model, found in result.agreements:
        verdict = "may share one (a, b)" if found.shared else "do not share one (a, b)"
        console.print(
            f"[bold]{escape(model)}[/bold]: {found.runs} algorithms {verdict}, p = "
            f"{found.p_value:.3f} (common a {found.a:.3f}, b {found.b:.3f})"
        )


def runs_table(result: Climbed) -> Table:
    """One row a run."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("family", "size", "algorithm"):
        table.add_column(name)
    for name in ("points", "a", "b", "ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("law", no_wrap=True)
    for rung in result.rungs:
        entry, law = rung.entry, rung.law
        table.add_row(
            escape(entry.family),
            size(entry.parameters),
            escape(entry.algorithm or ""),
            str(law.points) if law else "",
            f"{rung.a:.3f}",
            f"{rung.b:.3f}",
            f"{rung.b - rung.a:.3f}",
            f"{law.verdict}{'' if rung.counts else ' (left out)'}" if law else "given",
        )
    return table


def sentence(found: Prediction) -> str:
    """A prediction in words."""
    parts = [
        f"a {found.a:.3f} {bounds(found.a_interval)}",
        f"b {found.b:.3f} {bounds(found.b_interval)}",
        f"ceiling {found.ceiling:.3f} {bounds(found.ceiling_interval)}",
    ]
    far = (
        f"; {found.extrapolation:.0f} times the largest model: far"
        if found.extrapolation > FAR
        else ""
    )
    return ", ".join(parts) + far


def bounds(interval: tuple[float, float] | None) -> str:
    """An interval in brackets."""
    if interval is None:
        return "(interval unknown: two models)"
    return f"({interval[0]:.3f} .. {interval[1]:.3f})"


def size(parameters: float) -> str:
    """A number of parameters, short."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{name}"
    return f"{parameters:g}"
