"""The optimizer of a run: AdamW, with its two running means in the weights' type or in 8 bits."""

from collections.abc import Callable

import torch

from isentrope.config import OptimizerConfig
from isentrope.errors import require
from isentrope.policy.model import LanguageModel

__all__ = ["clipped_step", "make_optimizer"]


def make_optimizer(model: LanguageModel, settings: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of those weights that train."""
    return OPTIMIZERS[settings.name]()(
        [parameter for parameter in model.network.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
    )


def adamw_8bit() -> Callable[..., torch.optim.Optimizer]:
    """AdamW with block-wise quantised running means (arXiv 2110.02861), of bitsandbytes.

    Tensors of fewer than 4,096 elements keep theirs in fp32.
    """
    return require("bitsandbytes.optim", "eight-bit").AdamW8bit


OPTIMIZERS: dict[str, Callable[[], Callable[..., torch.optim.Optimizer]]] = {
    "adamw": lambda: torch.optim.AdamW,
    "adamw_8bit": adamw_8bit,
}


def clipped_step(network: torch.nn.Module, optimizer: torch.optim.Optimizer, limit: float) -> float:
    """One optimizer step with the gradient's norm clipped to `limit`; returns the norm before.

    Where the norm is not finite the step is left out: it would make every weight NaN.
    """
    norm = torch.nn.utils.clip_grad_norm_(list(network.parameters()), limit)
    if norm.isfinite():
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm.item()
