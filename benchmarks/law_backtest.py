"""Markdown tables over real logs: the fit of every reward, and forecasts from a prefix of the run.

python benchmarks/law_backtest.py LOG... [--fractions 0.15 0.3]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from isentrope.errors import DataError
from isentrope.law.fit import Law
from isentrope.law.forecast import backtest
from isentrope.law.study import Fit, study_record
from isentrope.runs import read_runs


def fits(logs: list[str]) -> Iterator[tuple[str, Fit]]:
    """(short name, fit) of every reward of every log; a log that is refused is printed."""
    for log in logs:
        try:
            for record in read_runs(log):
                for fit in study_record(record).fits:
                    yield record.name, fit
        except DataError as error:
            print(f"{Path(log).name}: refused: {str(error).split('; ', 1)[1]}\n")


def figures(law: Law | None) -> str:
    """(a, b, R2)."""
    return f"{law.a:.3f}, {law.b:.3f}, {law.r2:.3f}" if law else "-"


def print_fits(found: list[tuple[str, Fit]]) -> None:
    """The table of the fits, by equal step and by policy."""
    print("| log | reward | n | a, b, R2 by equal step | by policy | ceiling, 90 % | law |")
    print("|---|---|---|---|---|---|---|")
    for name, fit in found:
        law = fit.law
        ceiling = "-"
        if law and law.usable and law.ceiling_interval:
            low, high = law.ceiling_interval
            ceiling = f"{law.ceiling:.3f} +- {(high - low) / 2:.3f}"
        step = figures(fit.by_step or law)
        policy = figures(law) if fit.by_step else "the same"
        points = law.points if law else 0
        print(
            f"| {name} | {fit.pairs.reward.key} | {points} | {step} | {policy} | {ceiling} "
            f"| {fit.verdict} |"
        )


def print_backtests(found: list[tuple[str, Fit]], fractions: list[float]) -> None:
    """The table of the forecasts."""
    print(
        "\n| log | reward | first | n | RMSE | end | in band | RMSE, own trend | end | in band | law then |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, fit in found:
        pairs = fit.pairs
        for b in backtest(pairs.steps.astype(float), pairs.h, pairs.r, fractions=fractions):
            cells = ["-"] * 6 + ["too few points"]
            if b.law:
                cells = [f"{b.rmse_given:.3f}", f"{b.end_given:+.3f}", f"{b.covered_given:.0%}"]
                cells += [f"{b.rmse_trend:.3f}", f"{b.end_trend:+.3f}", f"{b.covered_trend:.0%}"]
                cells += [str(b.law.verdict)]
            print(
                f"| {name} | {pairs.reward.key} | {b.fraction:.0%} | {b.points} | {' | '.join(cells)} |"
            )


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.15])
    options = parser.parse_args()
    found = list(fits(options.logs))
    print_fits(found)
    print_backtests(found, options.fractions)


if __name__ == "__main__":
    main()
