"""What an update did to the entropy, on a few of its own tokens."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from isentrope.errors import require
from isentrope.objective.dynamics import entropy, predicted_change

__all__ = ["AfterUpdate", "Probe"]

transformers = require("transformers", "trl")


class Probe:
    """The policy's distributions, at temperature 1, at some tokens before an update."""

    def __init__(self, model: Any, part: Mapping[str, Any], max_tokens: int) -> None:
        """The states are tokens of the first responses, at most `max_tokens`, but one response."""
        rows = int((part["completion_mask"].sum(-1).cumsum(0) <= max_tokens).sum())
        rows = max(rows, 1)
        self.model = model
        self.mask = part["completion_mask"][:rows].bool()
        self.tokens = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)[:rows]
        self.attention = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)[:rows]
        self.before = self._logits()

    def change(self) -> Tensor:
        """(predicted sum, measured sum, states): entropy changes since, in nats, in float64."""
        after = self._logits()
        before = self.before.log_softmax(-1)
        predicted = predicted_change(before, after - self.before).double().sum()
        measured = (entropy(after.log_softmax(-1)) - entropy(before)).double().sum()
        return torch.stack([predicted, measured, self.mask.sum().double()])

    @torch.no_grad()
    def _logits(self) -> Tensor:
        width = self.mask.shape[1]
        logits = self.model(
            input_ids=self.tokens, attention_mask=self.attention, logits_to_keep=width + 1
        ).logits[:, -width - 1 : -1]
        return logits[self.mask].float()


class AfterUpdate(transformers.TrainerCallback):
    """Calls a function when an update is done, before its line is logged."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has made its step."""
        self.function()
