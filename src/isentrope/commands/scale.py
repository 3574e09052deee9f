"""`isentrope scale RUNS.toml`: the law over model size, and whether algorithms share it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from isentrope.errors import ConfigError

__all__ = ["Options", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Fit a and b against log model size within a family; predict larger models."""

    runs: tyro.conf.Positional[Path]
    """A TOML file with a [[run]] table a run and a [[predict]] table a wanted model."""
    level: float = 0.9
    """Coverage of every interval."""
    json: bool = False
    """Print JSON for machines."""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ConfigError(f"--level lies between 0 and 1 (0.9 is 90 %), not {self.level:g}")


def run(options: Options) -> int:
    """Reads the runs, writes the fits over size and the comparisons, and returns 0."""
    from isentrope.law.ladder import climb, read_ladder

    result = climb(read_ladder(options.runs), level=options.level)
    if options.json:
        json.dump(result.as_dict(), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        from isentrope.commands.scale_tables import print_ladder

        print_ladder(result)
    return 0
