"""Collapse and explosion of the entropy, found from its course alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isentrope.report.svg import Array

__all__ = ["COLLAPSE_RATIO", "EXPLOSION_RATIO", "Alarm", "entropy_alarms"]

Kind = Literal["collapse", "explosion"]

COLLAPSE_RATIO = 0.25  # the paper's runs kept 27 % of their entropy after a twelfth of their steps
EXPLOSION_RATIO = 2.0
WINDOW = 5  # steps whose median is the level, so that one odd batch raises no alarm


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """What happened, when, and by how much."""

    kind: Kind
    step: int
    level: float
    start: float

    @property
    def text(self) -> str:
        """One sentence."""
        share = 100 * self.level / self.start
        return (
            f"entropy {self.kind} at step {self.step}: {self.level:.3g} nats, "
            f"{share:.0f} % of its start ({self.start:.3g})"
        )


def entropy_alarms(
    step: NDArray[np.int64],
    entropy: Array,
    *,
    collapse_ratio: float = COLLAPSE_RATIO,
    explosion_ratio: float = EXPLOSION_RATIO,
) -> list[Alarm]:
    """The first collapse and the first explosion, in order of step.

    The level is the median of the last 5 measured values, the start that of the first 5.
    """
    if entropy.size < 2 * WINDOW:
        return []
    start = float(np.median(entropy[:WINDOW]))
    if start <= 0:
        return []
    level = np.median(np.lib.stride_tricks.sliding_window_view(entropy, WINDOW), axis=1)
    at = step[WINDOW - 1 :]
    found = [
        first_alarm("collapse", at, level, start, level < collapse_ratio * start),
        first_alarm("explosion", at, level, start, level > explosion_ratio * start),
    ]
    return sorted((alarm for alarm in found if alarm), key=lambda alarm: alarm.step)


def first_alarm(
    kind: Kind, step: NDArray[np.int64], level: Array, start: float, beyond: NDArray[np.bool_]
) -> Alarm | None:
    """The alarm of the first step that is beyond the limit, or None."""
    if not beyond.any():
        return None
    first = int(beyond.argmax())
    return Alarm(kind=kind, step=int(step[first]), level=float(level[first]), start=start)
