"""Triton versions of the passes over the vocabulary; eager torch is the reference and fallback."""

import functools
import importlib.util

import torch
from torch import Tensor

__all__ = ["has_kernels"]


def has_kernels(logits: Tensor) -> bool:
    """Whether a Triton kernel works on these logits: on a GPU, not float64, Triton installed."""
    return logits.is_cuda and logits.dtype != torch.float64 and _triton_installed()


@functools.cache
def _triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None
