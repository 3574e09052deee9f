import pytest
import torch
from transformers import AutoConfig
from transformers.cache_utils import DynamicLayer

from isentrope.models import builtin_path
from isentrope.training.cache import ROOM, RoomyLayer, sampling_cache


def roomy_layer() -> RoomyLayer:
    cache = sampling_cache(AutoConfig.from_pretrained(builtin_path("countdown")))
    assert isinstance(cache.layers[0], RoomyLayer)
    return cache.layers[0]


def test_a_layer_with_room_holds_what_one_without_holds() -> None:
    roomy, plain = roomy_layer(), DynamicLayer()
    draws = torch.Generator().manual_seed(0)

    def append(rows: int, length: int) -> None:
        states = [torch.rand(rows, 2, length, 4, generator=draws) for _ in range(2)]
        for found, expected in zip(roomy.update(*states), plain.update(*states), strict=True):
            assert torch.equal(found, expected)

    append(2, 5)
    for layer in (roomy, plain):
        layer.batch_repeat_interleave(3)
    for _ in range(ROOM + 3):
        append(6, 1)
    kept = torch.tensor([0, 2, 5])
    for layer in (roomy, plain):
        layer.batch_select_indices(kept)
    append(3, 1)
    append(3, 1)
    assert roomy.get_seq_length() == 5 + ROOM + 3 + 2


def test_appending_a_token_copies_no_other() -> None:
    layer = roomy_layer()
    states = torch.rand(1, 1, 1, 4)
    layer.update(states, states)
    layer.update(states, states)
    assert layer.keys is not None
    before = layer.keys.data_ptr()
    layer.update(states, states)
    assert layer.keys.data_ptr() == before
    assert layer.keys.flatten().tolist() == pytest.approx(states.flatten().tolist() * 3)
