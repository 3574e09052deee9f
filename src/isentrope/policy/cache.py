"""Keys and values of sampling in groups: those of a prompt are held once for all of its responses.

A new token attends to the prompt together with the other responses of its group, in one matrix
product, and to its own response alone:

    softmax([q K_prompt, q K_own]) [V_prompt, V_own]

Appending a token copies no older one: room is made ahead. Layers of other kinds than ordinary
attention (sliding window, recurrent) stay those of transformers, repeated for every response.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

__all__ = ["GroupCache", "grouped_attention"]

NAME = "isentrope_groups"
"""Of the attention function, where transformers looks it up."""

ROOM = 16
"""Tokens that are made room for at first; then as many as there are, but at most MORE."""

MORE = 128


class Room:
    """States (rows, heads, T, D) of tokens, the first ones of a tensor with room for more."""

    def __init__(self, prompt: Tensor, rows: int) -> None:
        """Without a token yet, like the states of a prompt."""
        _, heads, _, width = prompt.shape
        self.states = prompt.new_empty((rows, heads, ROOM, width))
        self.length = 0

    def append(self, states: Tensor) -> Tensor:
        """All states, with these at the end."""
        start, self.length = self.length, self.length + states.shape[-2]
        lacking = self.length - self.states.shape[-2]
        if lacking > 0:
            self.states = pad(self.states, (0, 0, 0, lacking + min(self.length, MORE)))
        self.states[..., start : self.length, :] = states
        return self.states[..., : self.length, :]

    def select(self, rows: Tensor) -> None:
        """Keeps these rows."""
        self.states = self.states[rows]


class GroupLayer(DynamicLayer):
    """Keys and values of prompts (groups, heads, P, D), then of responses (rows, heads, T, D)."""

    _layer_type = None

    def __init__(self) -> None:
        super().__init__()
        self.prompt: tuple[Tensor, Tensor] | None = None
        self.own: tuple[Room, Room] | None = None

    def share(self, rows: int) -> None:
        """Ends the prompt: what was read so far is shared by the responses, so many in all."""
        assert self.keys is not None
        assert self.values is not None
        self.prompt = (self.keys, self.values)
        self.own = (Room(self.keys, rows), Room(self.values, rows))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends tokens; returns the keys and values of the prompt, or of the responses."""
        if self.own is None:
            return super().update(key_states, value_states)
        keys, values = self.own
        return keys.append(key_states), values.append(value_states)

    def get_seq_length(self) -> int:
        """Tokens of the prompt and of the responses."""
        return super().get_seq_length() + (self.own[0].length if self.own else 0)

    def select(self, rows: Tensor) -> None:
        """Keeps these responses."""
        assert self.own is not None
        for room in self.own:
            room.select(rows)

    def select_prompts(self, prompts: Tensor) -> None:
        """Keeps these prompts."""
        assert self.prompt is not None
        self.keys, self.values = self.prompt = (self.prompt[0][prompts], self.prompt[1][prompts])


class GroupCache(DynamicCache):
    """A cache for the prompts of groups, then, after `batch_select_indices`, for responses."""

    def __init__(self, config: PreTrainedConfig, prompt_mask: Tensor) -> None:
        super().__init__(config=config)
        self.layers = [
            GroupLayer() if type(layer) is DynamicLayer else layer for layer in self.layers
        ]
        self.prompt_mask = prompt_mask
        """(groups, P) True at the prompt's tokens."""
        self.shared = False
        """Whether the batch is of responses."""
        self.place(torch.arange(len(prompt_mask), device=prompt_mask.device))

    def place(self, group: Tensor) -> None:
        """Notes where the rows are, whose prompts have these numbers (rows,)."""
        counts = group.bincount(minlength=len(self.prompt_mask))
        first = counts.cumsum(0) - counts
        self.group = group
        self.slot = torch.arange(len(group), device=group.device) - first[group]
        self.most = int(counts.max())
        self.full = self.most * len(counts) == len(group)
        """Whether all groups have equally many rows."""

    def batch_select_indices(self, indices: Tensor) -> None:
        """The batch becomes these rows of it: first every prompt's responses, side by side, then
        those that are left of them. Prompts without a response leave."""
        begins = not self.shared
        self.shared = True
        kept, group = self.group[indices].unique(return_inverse=True)
        prompts = None if len(kept) == len(self.prompt_mask) else kept
        for layer in self.layers:
            if isinstance(layer, GroupLayer):
                layer.share(len(indices)) if begins else layer.select(indices)
                if prompts is not None:
                    layer.select_prompts(prompts)
            elif isinstance(layer, DynamicLayer):
                layer.batch_select_indices(indices)
        self.prompt_mask = self.prompt_mask[kept]
        self.place(group)

    def by_group(self, rows: Tensor) -> Tensor:
        """Values (rows, ...) as (groups, most rows of a group, ...); zeros where there is no row."""
        if self.full:
            return rows.unflatten(0, (-1, self.most))
        packed = rows.new_zeros((len(self.prompt_mask), self.most, *rows.shape[1:]))
        packed[self.group, self.slot] = rows
        return packed

    def by_row(self, packed: Tensor) -> Tensor:
        """The inverse of `by_group`."""
        return packed.flatten(0, 1) if self.full else packed[self.group, self.slot]


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    groups: GroupCache | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """transformers' attention function: ordinary attention but for new tokens of responses.

    `query` is (rows, heads, tokens, D); the result (rows, tokens, heads, D).
    """
    layer = groups.layers[module.layer_idx] if groups is not None else None  # pyright: ignore[reportArgumentType, reportCallIssue]
    if not isinstance(layer, GroupLayer) or layer.prompt is None or groups is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query * scale, key, value, layer.prompt, groups).transpose(1, 2), None


def attend(
    query: Tensor, key: Tensor, value: Tensor, prompt: tuple[Tensor, Tensor], groups: GroupCache
) -> Tensor:
    """Attention (rows, heads, 1, D) of one new token a row to its prompt and its own tokens.

    Several heads of the query may share one of the keys: these count as further tokens.
    """
    rows, heads, _, width = query.shape
    shared = key.shape[1]
    query = query.reshape(rows, shared, heads // shared, width)
    packed = groups.by_group(query).transpose(1, 2)  # (groups, heads, rows of it, sharing, D)
    most = packed.shape[2]
    to_prompt = packed.flatten(2, 3) @ prompt[0].transpose(-1, -2)
    to_prompt.masked_fill_(~groups.prompt_mask[:, None, None, :], -torch.inf)
    length = to_prompt.shape[-1]
    to_prompt = groups.by_row(to_prompt.unflatten(2, (most, -1)).transpose(1, 2))
    scores = torch.cat([to_prompt, query @ key.transpose(-1, -2)], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    of_prompt = groups.by_group(weights[..., :length]).transpose(1, 2).flatten(2, 3) @ prompt[1]
    of_prompt = groups.by_row(of_prompt.unflatten(2, (most, -1)).transpose(1, 2))
    return (of_prompt + weights[..., length:] @ value).reshape(rows, heads, 1, -1)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def grouped_attention(network: PreTrainedModel) -> Iterator[None]:
    """Within it the model attends by the function above."""
    before = network.config._attn_implementation
    network.config._attn_implementation = NAME
    try:
        yield
    finally:
        network.config._attn_implementation = before
