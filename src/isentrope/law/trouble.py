"""What goes wrong in a run and shows in its curves: each with its evidence and its first step.

Curves are smoothed by a running mean over the points of a twentieth of the run, so that one odd
batch is no finding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.runs.pairing import choose_entropy, choose_rewards
from isentrope.runs.record import Record, Series

__all__ = ["Trouble", "collapse", "explosion", "find_troubles", "narrowing", "plateau"]

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

FEWEST = 8
WINDOW_SHARE = 0.05
COLLAPSED = 0.1  # of the starting entropy is left
EXPLODED = 3.0  # times the lowest entropy so far ...
EXPLODED_BY = 0.1  # ... and more nats than this above it
REACHED = 0.95  # of the whole gain: from there on it is a plateau ...
PLATEAU_SHARE = 0.4  # ... if at least this share of the run is still to come
SHARP_GAIN = 0.02  # of pass@1
WIDE_SHARE = 0.25  # pass@k gains less than this share of what pass@1 gains


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """One finding."""

    kind: str
    """collapse, explosion, plateau, or narrowing."""
    step: int
    """The first step where it shows."""
    evidence: str
    advice: str

    def __str__(self) -> str:
        return f"{self.kind} from step {self.step}: {self.evidence}. {self.advice}"


def find_troubles(record: Record) -> list[Trouble]:
    """All findings on a run, the earliest first."""
    return sorted(findings(record), key=lambda trouble: trouble.step)


def findings(record: Record) -> Iterator[Trouble]:
    """The findings of every detector on the series it is meant for."""
    rewards = choose_rewards(record)
    if record.having("entropy"):
        entropy = choose_entropy(record, rewards[0]) if rewards else record.having("entropy")[0]
        yield from present(
            collapse(entropy.steps, entropy.values), explosion(entropy.steps, entropy.values)
        )
    if rewards:
        yield from present(plateau(rewards[-1].steps, rewards[-1].values, rewards[-1].key))
    for one in record.having("validation"):
        yield from present(*(narrowing(one, many) for many in wider(record, one)))


def wider(record: Record, one: Series) -> list[Series]:
    """The pass@k of the largest k of the same data set."""
    source = one.meaning.source if one.meaning else ""
    same = [s for s in record.having("pass@k") if s.meaning and s.meaning.source == source]
    return sorted(same, key=lambda s: group_size(s.meaning.metric if s.meaning else ""))[-1:]


def group_size(metric: str) -> int:
    """The k of "pass@16"."""
    digits = metric.rpartition("@")[2]
    return int(digits) if digits.isdigit() else 0


def present(*troubles: Trouble | None) -> list[Trouble]:
    """Those that were found."""
    return [trouble for trouble in troubles if trouble is not None]


def collapse(steps: Steps, entropy: Array) -> Trouble | None:
    """The entropy is nearly gone and stays so: the ceiling b - a is near, whatever is done next."""
    if len(entropy) < FEWEST:
        return None
    smooth = running_mean(entropy)
    start = smooth[0]
    first = stays(smooth < COLLAPSED * start)
    if first is None or start <= 0:
        return None
    return Trouble(
        kind="collapse",
        step=int(steps[first]),
        evidence=f"entropy {start:.3g} -> {smooth[first]:.3g} nats, "
        f"{1 - smooth[first] / start:.0%} of it gone after {first / len(steps):.0%} of the run",
        advice="Little exploration is left; Clip-Cov, KL-Cov or a target entropy keep it, "
        "from a checkpoint before that step",
    )


def explosion(steps: Steps, entropy: Array) -> Trouble | None:
    """The entropy climbs far above its lowest value so far, and stays above."""
    if len(entropy) < FEWEST:
        return None
    smooth = running_mean(entropy)
    lowest = np.minimum.accumulate(smooth)
    first = stays(smooth > np.maximum(EXPLODED * lowest, lowest + EXPLODED_BY))
    if first is None:
        return None
    return Trouble(
        kind="explosion",
        step=int(steps[first]),
        evidence=f"entropy {lowest[first]:.3g} -> {smooth[first]:.3g} nats there, "
        f"{smooth[-1]:.3g} at the end",
        advice="Look at truncated answers, the learning rate, entropy bonus and clip range, and at "
        "the log-probabilities of sampler and trainer; go back to a checkpoint before that step",
    )


def plateau(steps: Steps, reward: Array, key: str = "reward") -> Trouble | None:
    """The reward has all but reached its final level long before the end."""
    if len(reward) < 2 * FEWEST:
        return None
    smooth = running_mean(reward)
    tenth = max(1, len(reward) // 10)
    start, end = float(smooth[0]), float(reward[-tenth:].mean())
    noise = float(np.std(reward - smooth))
    reached = smooth >= start + REACHED * (end - start)
    first = int(np.argmax(reached))
    if end - start <= noise or 1 - first / len(reward) < PLATEAU_SHARE:
        return None
    return Trouble(
        kind="plateau",
        step=int(steps[first]),
        evidence=f"{key} {start:.3g} -> {smooth[first]:.3g} by then, {end:.3g} at the end: "
        f"{1 - first / len(reward):.0%} of the run brought {end - smooth[first]:+.2g}",
        advice="More steps alone will bring little; see the ceiling",
    )


def narrowing(one: Series, many: Series) -> Trouble | None:
    """pass@1 grows and pass@k does not: the policy sharpens on what it could already do."""
    common, i, j = np.intersect1d(one.steps, many.steps, return_indices=True)
    if len(common) < FEWEST:
        return None
    sharp, wide = running_mean(one.values[i]), running_mean(many.values[j])
    gained, widened = sharp[-1] - sharp[0], wide[-1] - wide[0]
    if gained < SHARP_GAIN or widened > WIDE_SHARE * gained:
        return None
    first = int(np.argmax(sharp - sharp[0] >= gained / 2))
    return Trouble(
        kind="narrowing",
        step=int(common[first]),
        evidence=f"{one.key} {sharp[0]:.3g} -> {sharp[-1]:.3g} while {many.key} "
        f"{wide[0]:.3g} -> {wide[-1]:.3g}",
        advice="The policy sharpens and learns nothing new: keep more entropy, or train on harder "
        "problems",
    )


def running_mean(values: Array) -> Array:
    """The mean over a centred window of a twentieth of the points, cut at the ends."""
    half = max(1, round(WINDOW_SHARE * len(values) / 2))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def stays(condition: NDArray[np.bool_]) -> int | None:
    """The place from which a condition holds to the end, for a tenth of the points at least."""
    if not condition[-max(1, len(condition) // 10) :].all():
        return None
    return int(len(condition) - np.argmin(condition[::-1])) if not condition.all() else 0
