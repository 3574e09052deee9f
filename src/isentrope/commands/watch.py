"""`isentrope watch RUN`: a run folder, or a log of another trainer, followed in the terminal."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from isentrope.report.run_files import Run

__all__ = ["Options", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Show progress, curves, metrics and alarms of a run while it goes, or once."""

    run: tyro.conf.Positional[Path]
    """The run folder, or a log that `isentrope fit` reads. It need not be there yet: the first step
    is waited for."""
    once: bool = False
    """Print one frame and stop, as is done where the output is not a terminal."""
    interval_s: float = 2.0
    """Seconds between two looks at the folder."""


def run(options: Options) -> int:
    """Draws the run until it has ended or Ctrl-C is pressed."""
    from rich.console import Console

    check(options)
    console = Console()
    if options.once or not console.is_terminal:
        from isentrope.report.run_files import load_run

        console.print(draw(options, load_run(options.run), console.width))
        return 0
    try:
        follow(options, console)
    except KeyboardInterrupt:
        console.print("stopped watching; the run itself goes on", style="dim")
    return 0


def check(options: Options) -> None:
    """Raises a ConfigError for what cannot be watched."""
    from isentrope.errors import ConfigError

    if options.interval_s <= 0:
        raise ConfigError(f"--interval-s must be above 0, got {options.interval_s}")


def follow(options: Options, console: "Console") -> None:
    """Redraws at every interval until every planned step is there."""
    from rich.live import Live

    from isentrope.report.live import is_finished

    waiting = f"waiting for the first step in {options.run}"
    with Live(waiting, console=console, auto_refresh=False) as live:
        while True:
            if found := begun(options.run):
                live.update(draw(options, found, console.width), refresh=True)
                if is_finished(found):
                    return
            time.sleep(options.interval_s)


def draw(options: Options, found: "Run", width: int) -> "RenderableType":
    """One frame of what the folder holds."""
    from isentrope.report.live import frame

    quiet_s = time.time() - log_of(options.run).stat().st_mtime
    return frame(found, width=width, quiet_s=quiet_s)


def log_of(path: Path) -> Path:
    """The log in a run folder, or of it; the folder of a run that keeps it elsewhere."""
    inside = path / "metrics.jsonl"
    return inside if inside.is_file() else path


def begun(path: Path) -> "Run | None":
    """The run as it is, or None where it has not logged a step yet."""
    from isentrope.errors import DataError
    from isentrope.report.run_files import load_run

    try:
        return load_run(path)
    except DataError:
        return None
