"""The isentropic budget of a TRL run: a controller that looks at the entropy of each rollout."""

from collections.abc import Mapping
from typing import Any

from isentrope.control.controllers import Control, Tracking, state_of, with_state
from isentrope.errors import require

__all__ = ["BudgetController"]

transformers = require("transformers", "trl")

STATE = "isentrope_budget"
"""Name of its state among those that the checkpoints of transformers hold."""


class BudgetController(transformers.TrainerCallback):
    """Holds the controller, and keeps its state in the trainer's checkpoints."""

    def __init__(self, controller: Tracking, measure: str) -> None:
        """`measure` is token_mean or sequence_mean: which entropy of the rollout it looks at."""
        self.controller = controller
        self.measure = measure

    @property
    def control(self) -> Control:
        """Budget and target of the present rollout."""
        return self.controller.control

    def metrics(self) -> dict[str, float]:
        """What it has decided."""
        control = self.control
        assert control.budget is not None
        assert control.target is not None
        return {"control/budget": control.budget, "control/target": control.target}

    def measured(self, entropies: Mapping[str, float]) -> None:
        """One rollout on."""
        self.controller = self.controller.update(entropies[self.measure])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A resumed run goes on with the state in its checkpoint."""
        if state.global_step and STATE in state.stateful_callbacks:
            self.controller = with_state(self.controller, state.stateful_callbacks[STATE])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Puts the state where the next checkpoint finds it."""
        state.stateful_callbacks[STATE] = state_of(self.controller)
