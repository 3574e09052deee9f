"""The keys and values of sampling: room is made ahead, so that a new token copies no old one."""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

__all__ = ["RoomyLayer", "sampling_cache"]

ROOM = 128
"""Tokens that are made room for at once."""


def sampling_cache(config: PreTrainedConfig) -> DynamicCache:
    """An empty cache for sampling, without gradients: ordinary attention layers have room.

    Layers of other kinds (sliding window, recurrent) are those of transformers.
    """
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


class RoomyLayer(DynamicLayer):
    """Keys and values (B, heads, S, D), each the filled part of a longer tensor."""

    _layer_type = None

    def __init__(self) -> None:
        super().__init__()
        self.rooms: tuple[Tensor, Tensor] | None = None
        self.filled: tuple[Tensor, Tensor] | None = None
        """The views that `update` returned: if they are still the layer's, they have room."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends the new tokens; returns all keys and values."""
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        if start == 0:  # the prompt: it will be repeated for its group, so it gets no room
            return super().update(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        mine = self.filled is not None and self.keys is self.filled[0]
        if not mine or self.rooms is None or stop > self.rooms[0].shape[-2]:
            self.rooms = (enlarged(self.keys, stop + ROOM), enlarged(self.values, stop + ROOM))
        for room, states in zip(self.rooms, (key_states, value_states), strict=True):
            room[..., start:stop, :] = states
        self.keys, self.values = (room[..., :stop, :] for room in self.rooms)
        self.filled = (self.keys, self.values)
        return self.filled


def enlarged(states: Tensor, length: int) -> Tensor:
    """A tensor of that length that begins with the states (B, heads, S, D)."""
    room = states.new_empty((*states.shape[:-2], length, states.shape[-1]))
    room[..., : states.shape[-2], :] = states
    return room
