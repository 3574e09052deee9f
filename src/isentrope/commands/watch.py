"""`isentrope watch RUN`: a run folder followed in the terminal."""

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
    """The run folder. It may still be empty: the first step is waited for."""
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
    """Raises ConfigError or DataError for what cannot be watched."""
    from isentrope.errors import ConfigError, DataError

    if not options.run.is_dir():
        raise DataError(f"{options.run} is not a folder; give the folder that a run writes to")
    if options.interval_s <= 0:
        raise ConfigError(f"--interval-s must be above 0, got {options.interval_s}")


def follow(options: Options, console: "Console") -> None:
    """Redraws at every interval until every planned step is there."""
    from rich.live import Live

    from isentrope.report.live import is_finished
    from isentrope.report.run_files import load_run

    with Live("waiting for the first step", console=console, auto_refresh=False) as live:
        while True:
            if has_first_line(options.run / "metrics.jsonl"):
                found = load_run(options.run)
                live.update(draw(options, found, console.width), refresh=True)
                if is_finished(found):
                    return
            time.sleep(options.interval_s)


def draw(options: Options, found: "Run", width: int) -> "RenderableType":
    """One frame of what the folder holds."""
    from isentrope.report.live import frame

    quiet_s = time.time() - (options.run / "metrics.jsonl").stat().st_mtime
    return frame(found, width=width, quiet_s=quiet_s)


def has_first_line(path: Path) -> bool:
    """Whether a log has at least one complete line."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")
