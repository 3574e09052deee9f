"""`isentrope fit LOG...`: the law on any run, its verdict, what is to come, and what goes wrong."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from isentrope.errors import ConfigError, DataError

if TYPE_CHECKING:
    from isentrope.law.study import Study

__all__ = ["Options", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Fit R = -a exp(H) + b to the log of a run, and say whether it holds."""

    logs: tyro.conf.Positional[tuple[str, ...]]
    """Log files or run folders, of any trainer; or wandb:ENTITY/PROJECT/RUN."""
    entropy: str | None = None
    """The key of the policy's entropy, where the rules do not know it or another is wanted."""
    reward: str | None = None
    """The key of the reward."""
    name: str | None = None
    """The run to take from a file that holds several."""
    until: float | None = None
    """Use only this share of the run (0.15: the first 15 %) and forecast the rest."""
    more: int | None = None
    """Forecast this many steps beyond the end (default: as many as the run has had)."""
    backtest: bool = False
    """Forecast from prefixes of 5 to 50 % of the run and compare with what came."""
    level: float = 0.9
    """Coverage of every interval."""
    figure: Path | None = None
    """Write a figure of the fit: .png, .svg or .pdf; of several fits, one a panel."""
    json: bool = False
    """Print JSON for machines."""

    def __post_init__(self) -> None:
        if not self.logs:
            raise ConfigError("no log given; run: isentrope fit LOG")
        if self.until is not None and not 0 < self.until < 1:
            raise ConfigError(f"--until is a share of the run between 0 and 1, not {self.until:g}")
        if self.more is not None and self.more < 1:
            raise ConfigError(f"--more is a number of steps, at least 1, not {self.more}")
        if not 0 < self.level < 1:
            raise ConfigError(f"--level lies between 0 and 1 (0.9 is 90 %), not {self.level:g}")


def run(options: Options) -> int:
    """Fits every log, writes the result, and returns 0; 2 if a log of several could not be used."""
    from isentrope.law.study import study_record
    from isentrope.runs import read_runs

    if options.figure:
        from isentrope.report.law_figure import check_suffix

        check_suffix(options.figure)
    studies: list[Study] = []
    failures: dict[str, str] = {}
    for log in options.logs:
        try:
            for record in read_runs(log, entropy=options.entropy, reward=options.reward):
                if options.name in (None, record.name):
                    studies.append(
                        study_record(
                            record,
                            entropy=options.entropy,
                            reward=options.reward,
                            until=options.until,
                            more=options.more,
                            backtested=options.backtest,
                            level=options.level,
                        )
                    )
        except DataError as error:
            if len(options.logs) == 1:
                raise
            failures[log] = str(error)
    if not studies and not failures:
        raise DataError(f"no run is named {options.name!r} in {', '.join(options.logs)}")
    write(studies, failures, options)
    return 2 if failures else 0


def write(studies: list["Study"], failures: dict[str, str], options: Options) -> None:
    """Writes the tables or the JSON, and the figure if one is asked for."""
    from isentrope.commands.fit_tables import print_studies

    if options.json:
        found = [study.as_dict() for study in studies]
        found += [{"log": log, "error": message} for log, message in failures.items()]
        json.dump(found, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        print_studies(studies, failures, figure=options.figure)
    if options.figure:
        from isentrope.report.law_figure import draw_studies

        draw_studies(studies, options.figure)
