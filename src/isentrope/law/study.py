"""Everything that is said about one run: each reward's fit, its forecast, its backtest; troubles."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isentrope.errors import DataError
from isentrope.law.fit import Law, fit_law
from isentrope.law.forecast import Backtest, Forecast, backtest, forecast, gain_spent
from isentrope.law.trouble import Trouble, find_troubles
from isentrope.runs.pairing import Pairs, choose_entropy, choose_rewards, pair, pair_series
from isentrope.runs.record import Record

__all__ = ["Fit", "Study", "study_record"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The law on one reward of a run."""

    pairs: Pairs
    """All of the run, also where only its first part was fitted."""
    law: Law | None
    """None where no line can be fitted; `refusal` says why."""
    refusal: str = ""
    by_step: Law | None = None
    """The same paired by equal step, where the better pairing differs from it."""
    forecast: Forecast | None = None
    backtests: tuple[Backtest, ...] = ()
    spent: float | None = None
    """Share of the reachable gain used up at the end of what was fitted."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return str(self.law.verdict) if self.law else "cannot be judged"

    @property
    def reason(self) -> str:
        """Why."""
        return self.law.reason if self.law else self.refusal

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "reward": self.pairs.reward.key,
            "entropy": self.pairs.entropy.key,
            "paired_by": self.pairs.by,
            "pairing": self.pairs.how,
            "verdict": self.verdict,
            "reason": self.reason,
            "law": self.law.as_dict() if self.law else None,
            "law_by_equal_step": self.by_step.as_dict() if self.by_step else None,
            "gain_spent": self.spent,
            "forecast": forecast_dict(self.forecast) if self.forecast else None,
            "backtest": [backtest_dict(b) for b in self.backtests],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One run, studied."""

    record: Record
    fits: tuple[Fit, ...]
    troubles: tuple[Trouble, ...]
    until: float | None

    @property
    def main(self) -> Fit:
        """The fit that the sentence of the verdict is about: on validation if it can be judged."""
        judged = [fit for fit in self.fits if fit.verdict != "cannot be judged"]
        return (judged or list(self.fits))[-1]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "log": self.record.path,
            "run": self.record.name,
            "format": self.record.format,
            "notes": list(self.record.notes),
            "unknown_entropy_keys": list(self.record.unknown_entropy_keys),
            "entropies": {
                s.key: s.meaning.describe() for s in self.record.having("entropy") if s.meaning
            },
            "until": self.until,
            "fits": [fit.as_dict() for fit in self.fits],
            "troubles": [
                {"kind": t.kind, "step": t.step, "evidence": t.evidence, "advice": t.advice}
                for t in self.troubles
            ],
        }


def study_record(
    record: Record,
    *,
    entropy: str | None = None,
    reward: str | None = None,
    until: float | None = None,
    more: int | None = None,
    backtested: bool = False,
    level: float = 0.9,
) -> Study:
    """The study of a run; DataError where it holds no entropy or no reward that can be used."""
    rewards = [record.series[reward]] if reward else choose_rewards(record)
    if not rewards or not record.having("entropy"):
        pair(record, entropy=entropy, reward=reward)  # raises, with what is missing
    fits = []
    for series in rewards:
        matching = record.series[entropy] if entropy else choose_entropy(record, series)
        pairs = pair_series(matching, series)
        equal = pair_series(matching, series, by="step")
        fits.append(study_pairs(pairs, equal, until, more, backtested, level))
    return Study(
        record=record, fits=tuple(fits), troubles=tuple(find_troubles(record)), until=until
    )


def study_pairs(
    pairs: Pairs,
    equal: Pairs,
    until: float | None,
    more: int | None,
    backtested: bool,
    level: float,
) -> Fit:
    """The fit of one reward."""
    n = len(pairs) if until is None else round(until * len(pairs))
    try:
        law = fit_law(pairs.h[:n], pairs.r[:n], level=level)
    except DataError as error:
        return Fit(pairs=pairs, law=None, refusal=str(error))
    return Fit(
        pairs=pairs,
        law=law,
        by_step=law_by_step(pairs, equal, level) if until is None else None,
        forecast=foresee(pairs, n, more, level) if law.usable else None,
        backtests=tuple(backtest(pairs.steps.astype(float), pairs.h, pairs.r, level=level))
        if backtested
        else (),
        spent=finite(gain_spent(pairs.h[:n])),
    )


def law_by_step(pairs: Pairs, equal: Pairs, level: float) -> Law | None:
    """The fit of the rough pairing, if it is another one."""
    if np.array_equal(pairs.h, equal.h):
        return None
    try:
        return fit_law(equal.h, equal.r, level=level)
    except DataError:
        return None


def foresee(pairs: Pairs, n: int, more: int | None, level: float) -> Forecast | None:
    """The forecast of the rest of the run, or beyond its end; None with too few points for one."""
    steps = pairs.steps.astype(float)
    ahead = steps[n:] if more is None else np.empty(0)
    if not len(ahead):
        last, length = steps[n - 1], more or steps[n - 1] - steps[0]
        ahead = last + np.linspace(length / 100, length, 100)
    try:
        return forecast(steps[:n], pairs.h[:n], pairs.r[:n], ahead, level=level)
    except DataError:
        return None


def finite(value: float | None) -> float | None:
    """The value, or None in place of NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def forecast_dict(foreseen: Forecast) -> Mapping[str, object]:
    """Plain values of a forecast."""
    return {
        "steps": foreseen.steps.tolist(),
        "entropy": foreseen.entropy.tolist(),
        "reward": foreseen.reward.tolist(),
        "low": foreseen.low.tolist(),
        "high": foreseen.high.tolist(),
        "gain": foreseen.gain,
        "gain_interval": foreseen.gain_interval,
    }


def backtest_dict(result: Backtest) -> Mapping[str, object]:
    """Plain values of one prefix."""
    return {
        "fraction": result.fraction,
        "points": result.points,
        "verdict": str(result.law.verdict) if result.law else None,
        "rmse_given_entropy": finite(result.rmse_given),
        "end_error_given_entropy": finite(result.end_given),
        "covered_given_entropy": finite(result.covered_given),
        "rmse_own_trend": finite(result.rmse_trend),
        "end_error_own_trend": finite(result.end_trend),
        "covered_own_trend": finite(result.covered_trend),
    }
