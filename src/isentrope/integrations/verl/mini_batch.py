"""The way of a selection from the worker, which sees a mini-batch, to the loss of a micro-batch.

verl hands a policy loss a fixed set of columns, so the column with the selection is set aside here
while the loss of its micro-batch is computed.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from isentrope.errors import ConfigError

__all__ = ["COLUMN", "current_selection", "with_selection"]

COLUMN = "isentrope_selected"

_current: ContextVar[Tensor | None] = ContextVar("isentrope_selected", default=None)


def with_selection(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The loss function of a worker, which sets aside the selection of each micro-batch."""

    def loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        column = data[COLUMN]
        padded = column.to_padded_tensor(0) if column.is_nested else column
        token = _current.set(padded.bool())
        try:
            return loss_fn(model_output=model_output, data=data, dp_group=dp_group)
        finally:
            _current.reset(token)

    return loss


def current_selection(mask: Tensor) -> Tensor:
    """The selected tokens (B, T) of the micro-batch whose loss is being computed."""
    selected = _current.get()
    if selected is None:
        raise ConfigError(
            "no tokens were selected for this mini-batch: the loss runs in a worker that is not "
            "isentrope's. Set VERL_USE_EXTERNAL_MODULES=isentrope.integrations.verl in every "
            "process, and leave actor_worker_cls of verl's workers alone"
        )
    assert selected.shape == mask.shape, (selected.shape, mask.shape)
    return selected
