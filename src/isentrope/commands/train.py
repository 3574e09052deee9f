"""`isentrope train RECIPE`: train a model, into a run folder."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from isentrope.config import TrainConfig, load_config
from isentrope.errors import ConfigError
from isentrope.toml_codec import recipe_names

__all__ = ["Options", "parse", "run"]

STOPPED = 128 + 15
"""Exit code of a process that SIGTERM ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Train a model with the settings of RECIPE, a TOML file or the name of one that comes with the
    package; flags override the recipe."""

    out: Path | None = None
    """Run folder; runs/NAME-seedN when left out."""
    resume: bool = False
    """Continue the run in that folder from its last checkpoint."""
    from_step: int | None = None
    """With --resume: continue from the checkpoint of this step instead, and remove those after it;
    0 is the start."""
    engine: Literal["local", "trl", "verl"] = "local"
    """Train here, in one process, or with TRL under torchrun, or with verl on Ray."""
    processes: int = 1
    """Of trl and verl: processes, one a device."""
    dry_run: bool = False
    """Of trl and verl: show the translated settings and the command, and start nothing."""
    config: Annotated[TrainConfig, tyro.conf.arg(name="")]

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out or Path("runs") / f"{self.config.name}-seed{self.config.seed}"


def parse(arguments: Sequence[str]) -> Options:
    """The options, with the recipe's values as the defaults of the flags."""
    recipe, flags = None, list(arguments)
    if flags and not flags[0].startswith("-"):
        recipe, *flags = flags
    elif "--help" not in flags and "-h" not in flags:
        raise ConfigError(
            "give a recipe first, a TOML file or a name, as in `isentrope train countdown`; the "
            f"names are: {', '.join(recipe_names())}"
        )
    config = load_config(Path(recipe)) if recipe else TrainConfig()
    default = Options(config=config)
    return tyro.cli(Options, prog="isentrope train RECIPE", args=flags, default=default)


def run(options: Options) -> int:
    """Trains; returns the exit code."""
    if options.from_step is not None and not (options.resume and options.engine == "local"):
        raise ConfigError(
            f"--from-step is {options.from_step}: it belongs to --resume of the local engine"
        )
    if options.engine != "local":
        return run_elsewhere(options)
    if options.dry_run or options.processes != 1:
        raise ConfigError(
            "--dry-run and --processes belong to --engine trl and verl; the local engine is one "
            "process"
        )
    from rich.console import Console

    from isentrope.commands.display import Display
    from isentrope.training.trainer import train

    console = Console(highlight=False)
    with Display(console) as display:
        done = train(
            options.config,
            options.folder,
            resume=options.resume,
            from_step=options.from_step,
            display=display,
        )
    if done < options.config.steps:
        console.print(f"stopped by SIGTERM after step {done}; continue the same with --resume")
        return STOPPED
    verdict = display.health.verdict() if display.health else "done"
    console.print(f"{verdict}; next: isentrope report {options.folder}")
    return 0


def run_elsewhere(options: Options) -> int:
    """Trains in another engine; returns the exit code."""
    from isentrope.integrations.launch import launch

    code = launch(
        options.config,
        options.folder,
        engine=options.engine,
        processes=options.processes,
        resume=options.resume,
        dry_run=options.dry_run,
    )
    if not options.dry_run:
        sys.stdout.write(f"done; next: isentrope report {options.folder}\n")
    return code
