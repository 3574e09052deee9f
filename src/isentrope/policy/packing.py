"""Responses side by side that are nearly equally long: little padding is read."""

import torch
from torch import Tensor

from isentrope.policy.sampler import Rollout

__all__ = ["micro_batches"]


def micro_batches(rollout: Rollout, size: int, *, shared: bool = True) -> list[Tensor]:
    """Rows of at most `size` responses each, every row once; the longest come first.

    Of two orders the one is taken with which fewer tokens are read, padding included: whole groups
    by their longest response, whose prompt is read once for neighbours, or all responses by their
    own length. Without `shared` prompts every response brings its own. What fits into one
    micro-batch keeps its order.
    """
    length, prompt = rollout.mask.sum(-1), rollout.prompt_mask.sum(-1)
    if len(length) <= size:
        return [torch.arange(len(length))]
    group = rollout.prompts.unique(dim=0, return_inverse=True)[1]
    longest = torch.zeros_like(length).scatter_reduce(0, group, length, "amax")[group]
    by_row = length.argsort(descending=True, stable=True)
    by_group = sort(sort(by_row, group), longest, descending=True)

    def read(parts: list[Tensor]) -> int:
        """Tokens of prompts and responses."""
        total = 0
        for rows in parts:
            prompts = len(group[rows].unique()) if shared else len(rows)
            total += prompts * int(prompt[rows].max()) + len(rows) * int(length[rows].max())
        return total

    orders = ([sort(rows, group) for rows in order.split(size)] for order in (by_group, by_row))
    return min(orders, key=read)


def sort(rows: Tensor, values: Tensor, *, descending: bool = False) -> Tensor:
    """The rows in the order of their values; equal ones stay as they stand."""
    return rows[values[rows].argsort(descending=descending, stable=True)]
