"""`isentrope compare RECIPE...`: several arms and seeds side by side, one table at the end."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import tyro

from isentrope.bounds import at_least
from isentrope.config import load_arms
from isentrope.errors import ConfigError

__all__ = ["Options", "at_once", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Train each recipe, and each combination of its [sweep], with each seed, in parallel processes,
    and compare the results."""

    recipes: tyro.conf.Positional[tuple[Path, ...]]
    """TOML files, one an arm."""
    out: Path = Path("runs/compare")
    """Folder for the run folders and the report."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of each arm."""
    jobs: int = 0
    """Processes at once; 0 is one a core. One more than the cores keeps them busy to the end."""
    steps: int | None = None
    """Steps of every run, in place of the recipe's."""

    def __post_init__(self) -> None:
        if not self.recipes:
            raise ConfigError(
                "give at least one recipe: isentrope compare countdown countdown-kl-cov"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {self.seeds}; give each of them once")
        at_least(self, steps=1)
        if self.jobs < 0:
            raise ConfigError(f"jobs is {self.jobs}; give 1 or more, or 0 for one a core")


def run(options: Options) -> int:
    """Runs the comparison; returns the exit code."""
    from rich.console import Console

    from isentrope.commands.display import follow
    from isentrope.commands.processes import plan, run_all
    from isentrope.report.page import render
    from isentrope.report.run_files import load_runs
    from isentrope.report.terminal import arms_table, frontier_lines, frontier_table, law_lines

    console = Console(highlight=False)
    runs = plan(
        [
            dataclasses.replace(config, seed=seed, steps=options.steps or config.steps)
            for recipe in options.recipes
            for config in load_arms(recipe)
            for seed in options.seeds
        ],
        options.out,
    )
    jobs = at_once(options.jobs)
    console.print(f"{len(runs)} runs, {min(jobs, len(runs))} at once, into {options.out}")
    follow(runs, run_all(runs, jobs), console)
    finished = load_runs(run.folder for run in runs)
    console.print(arms_table(finished))
    lines = law_lines(finished)
    if len({run.arm for run in finished}) > 1:
        console.print(frontier_table(finished))
        lines = [*frontier_lines(finished), *lines]
    for line in lines:
        console.print(line)
    page = options.out / "report.html"
    page.write_text(render(finished), encoding="utf-8")
    console.print(f"report: {page}; next: isentrope fit {runs[0].folder} --until 0.25")
    return 0


def at_once(jobs: int) -> int:
    """Processes at once; 0 is one a core."""
    return jobs or os.cpu_count() or 1
