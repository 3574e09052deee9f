"""`isentrope verify`: are the gold answers of a data set fit to be judged against?"""

from dataclasses import dataclass
from typing import Annotated

import tyro

__all__ = ["Options", "run"]

MIN_WIDTH = 130  # of the table, where the output is no terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Audits gold answers: each against itself, and against itself with something changed."""

    files: tyro.conf.Positional[tuple[str, ...]]
    """Data files (.jsonl, .json, .parquet) or hub ids."""
    preset: str | None = None
    """How to read them: gsm8k, math, olympiadbench, ...; by default by their usual fields."""
    show: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """How many findings of each file to print."""
    timeout_s: float = 10.0
    """Limit of one verification."""


def run(options: Options) -> int:
    """Prints a table of counts, and findings; 1 if a gold answer does not equal itself."""
    from rich.console import Console
    from rich.table import Table

    from isentrope.errors import ConfigError
    from isentrope.tasks.registry import read_golds
    from isentrope.verifiers.audit import ITSELF, audit_golds
    from isentrope.verifiers.math import MathVerifier
    from isentrope.verifiers.mutation import MUTATIONS

    if not options.files:
        raise ConfigError("name at least one data file")
    verifier = MathVerifier(timeout_s=options.timeout_s)
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, MIN_WIDTH)
    table = Table()
    headings = ("file", "rows", "equal itself", "unjudgeable", *(f"{m}: differ" for m in MUTATIONS))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "file" else "right")
    failed = False
    for file in options.files:
        audit = audit_golds(read_golds(file, options.preset), verifier)
        itself = audit.outcomes[ITSELF]
        cells = [str(audit.rows), str(itself["right"]), str(itself["unjudgeable"])]
        for kind in MUTATIONS:
            outcomes = audit.outcomes.get(kind, {})
            total = sum(outcomes.values())
            cells.append(f"{total - outcomes.get('right', 0)} of {total}")
        table.add_row(file.rpartition("/")[2], *cells)
        failed |= itself["right"] < audit.rows
        for finding in audit.findings[: options.show]:
            console.print(
                f"{file}, row {finding.row + 1}: {finding.kind}: {finding.gold!r} and "
                f"{finding.answer!r} are judged {finding.outcome} {finding.detail}",
                markup=False,
            )
    console.print(table)
    verifier.close()
    return int(failed)
