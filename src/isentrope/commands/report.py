"""`isentrope report RUN [RUN ...]`: an HTML page from run folders."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from isentrope.report.run_files import Run

__all__ = ["Options", "run", "write"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Write one self-contained HTML page about a run, or about several arms and seeds."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, folders that hold some, or logs of other trainers. Runs of one `name` are seeds
    of one arm."""
    out: Path | None = None
    """Where to write it: report.html in the run's folder, for several in the folder they share."""
    samples: int = 12
    """Most completions to show of a run."""


def run(options: Options) -> int:
    """Writes the page and says where it is."""
    from rich.console import Console

    from isentrope.errors import ConfigError
    from isentrope.report.run_files import load_runs

    if not options.runs:
        raise ConfigError("no run folder given; use: isentrope report RUN [RUN ...]")
    if options.samples < 0:
        raise ConfigError(f"--samples must not be negative, got {options.samples}")
    out, size = write(load_runs(options.runs), options.out, options.samples)
    Console(soft_wrap=True, highlight=False).print(f"{out} ({size / 1024:.0f} KB)")
    return 0


def write(runs: "list[Run]", out: Path | None, samples: int) -> tuple[Path, int]:
    """Writes the page of these runs; returns where, and its size in bytes."""
    from isentrope.errors import ConfigError
    from isentrope.report.page import render

    out = out or default_out([one.path for one in runs])
    page = render(runs, samples=samples)
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    return out, len(page)


def default_out(paths: list[Path]) -> Path:
    """report.html in the run folder; else in the folder that all runs, or the log file, lie in."""
    if len(paths) == 1 and paths[0].is_dir():
        return paths[0] / "report.html"
    return Path(os.path.commonpath([path.resolve().parent for path in paths])) / "report.html"
