"""Entropy and reward of the same policy: which row of one goes with which row of the other.

Trainers log them at different times. verl prints the validation of step s after the update of that
step and the entropy before it, so val(s) belongs with H(s + 1): both are the policy after s updates.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isentrope.errors import DataError
from isentrope.runs.record import Meaning, Record, Series

__all__ = ["Pairs", "choose_entropy", "choose_rewards", "pair", "pair_series"]

By = Literal["policy", "step"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Entropies and rewards of the same policies, in time order."""

    entropy: Series
    reward: Series
    steps: NDArray[np.int64]
    """The step at which the log has the reward."""
    h: NDArray[np.float64]
    r: NDArray[np.float64]
    by: By
    how: str
    """The choice in words."""

    def __len__(self) -> int:
        return len(self.steps)


def pair(
    record: Record, *, entropy: str | None = None, reward: str | None = None, by: By = "policy"
) -> Pairs:
    """The pairs of a run: of the keys given, or of its first validation reward, else train reward."""
    if not entropy and not record.having("entropy"):
        raise DataError(no_entropy(record))
    rewards = choose_rewards(record)
    chosen = find(record, reward) if reward else (rewards[-1] if rewards else None)
    if chosen is None:
        raise DataError(no_reward(record))
    matching = find(record, entropy) if entropy else choose_entropy(record, chosen)
    return pair_series(matching, chosen, by=by)


def choose_rewards(record: Record) -> list[Series]:
    """The rewards worth a fit: the preferred train reward, then each validation set's preferred one."""
    train = record.having("train")[:1]
    sources: dict[str, Series] = {}
    for series in record.having("validation"):
        assert series.meaning is not None
        sources.setdefault(series.meaning.source, series)
    return [*train, *sources.values()]


def choose_entropy(record: Record, reward: Series) -> Series:
    """The entropy that goes with a reward: for a validation reward, one of the same evaluation."""
    entropies = record.having("entropy")
    if not entropies:
        raise DataError(no_entropy(record))
    wanted = reward.meaning or Meaning(role="train")
    same = [e for e in entropies if e.meaning and e.meaning.population == wanted.population]
    exact = [e for e in same if e.meaning and e.meaning.source in ("", "all", wanted.source)]
    train = [e for e in entropies if e.meaning and e.meaning.population == "train"]
    return (exact or train or entropies)[0]


def pair_series(entropy: Series, reward: Series, *, by: By = "policy") -> Pairs:
    """The pairs of two series, by policy version where both are known, else by step."""
    lags = [series.meaning.lag if series.meaning else None for series in (entropy, reward)]
    if by == "step" or lags[0] is None or lags[1] is None:
        how = "paired by equal step" + (
            "" if by == "step" else "; the log does not tell the policy"
        )
        return matched(entropy, reward, shift=0, reach=0, by="step", how=how)
    shift = lags[1] - lags[0]
    reach = interval(entropy.steps) - 1
    if shift == 0:
        how = f"{reward.key} and {entropy.key} of one step are of one policy"
    else:
        how = f"{reward.key} of step s is of the policy whose entropy is logged at step s{shift:+d}"
    return matched(entropy, reward, shift=shift, reach=reach, by="policy", how=how)


def matched(entropy: Series, reward: Series, *, shift: int, reach: int, by: By, how: str) -> Pairs:
    """Each reward with the first entropy at its step + shift, or up to `reach` steps later.

    A row of a log that is not written at every step averages the steps since the row before, so
    the policy of a step is in the next row, if that is within the interval of logging.
    """
    wanted = reward.steps + shift
    places = np.searchsorted(entropy.steps, wanted)
    inside = places < len(entropy.steps)
    gaps = entropy.steps[np.minimum(places, len(entropy.steps) - 1)] - wanted
    found = inside & (gaps <= reach)
    lost = int((~found).sum())
    return Pairs(
        entropy=entropy,
        reward=reward,
        steps=reward.steps[found],
        h=entropy.values[places[found]],
        r=reward.values[found],
        by=by,
        how=how + (f"; {lost} reward(s) have no such entropy" if lost else ""),
    )


def interval(steps: NDArray[np.int64]) -> int:
    """The usual distance of two rows."""
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 1


def find(record: Record, key: str) -> Series:
    """The series of a key."""
    if key not in record.series:
        raise DataError(f"there is no key {key!r} in {record.path}")
    return record.series[key]


def no_entropy(record: Record) -> str:
    """What to tell the user of a log without a usable entropy."""
    lines = [f"no entropy in {record.path} ({record.format})"]
    lines += [note for note in record.notes if "not measured" in note]
    if record.unknown_entropy_keys:
        lines.append(
            f"keys that no rule knows: {', '.join(record.unknown_entropy_keys)}; "
            "if one of them is the policy's entropy, give it with --entropy KEY"
        )
    elif record.entropy_hint:
        lines.append(f"to log it: {record.entropy_hint}")
    return "; ".join(lines)


def no_reward(record: Record) -> str:
    """What to tell the user of a log without a known reward."""
    words = ("reward", "acc", "score", "pass")
    likely = [k for k in record.series if any(word in k.lower() for word in words)]
    shown = likely[:12] or list(record.series)[:12]
    return (
        f"no reward that a rule knows in {record.path} ({record.format}); give one with "
        f"--reward KEY (and the entropy with --entropy KEY); likely: {', '.join(shown)}"
    )
