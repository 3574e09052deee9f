"""What a run carries from step to step beside its weights, all of it known from its log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from isentrope.config import TrainConfig
from isentrope.control.controllers import Control, Controller

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is. A resumed run makes it again from the rows that are logged."""

    config: TrainConfig
    controller: Controller
    """As it was in the last step."""
    problem: int = 0
    """Number of the first problem that no step has drawn."""

    def after(self, row: Mapping[str, float | None]) -> "Progress":
        """The progress after the step that this row of metrics.jsonl tells of."""
        drawn = row.get("sampling/prompts") or self.config.rollout.prompts
        return replace(self, controller=self.updated(row), problem=self.problem + int(drawn))

    def after_all(self, rows: Iterable[Mapping[str, float | None]]) -> "Progress":
        """The progress after all of these steps."""
        progress = self
        for row in rows:
            progress = progress.after(row)
        return progress

    def control(self, row: Mapping[str, float | None]) -> Control:
        """What the loss of the step gets in which these metrics are measured."""
        return self.updated(row).control

    def updated(self, row: Mapping[str, float | None]) -> Controller:
        """The controller, told the entropy in the row; without one it stays."""
        entropy = row.get(f"entropy/{self.config.control.measure}")
        if entropy is None or not isfinite(entropy):
            return self.controller
        return self.controller.update(entropy)
