import pytest
import torch
from transformers import AutoConfig

from isentrope.policy.builtin import builtin_path
from isentrope.policy.cache import ROOM, GroupCache, GroupLayer, attend


def group_cache(prompt_mask: torch.Tensor) -> GroupCache:
    return GroupCache(AutoConfig.from_pretrained(builtin_path("countdown")), prompt_mask)


def random(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


def test_appending_a_token_copies_no_other() -> None:
    layer = GroupLayer()
    layer.update(random(2, 1, 5, 4), random(2, 1, 5, 4))
    layer.share(6)
    assert layer.get_seq_length() == 5
    given = [random(6, 1, 1, 4) + step for step in range(ROOM + 2)]
    found = [layer.update(states, -states) for states in given]
    keys, values = found[-1]
    assert torch.equal(keys, torch.cat(given, -2))
    assert torch.equal(values, -torch.cat(given, -2))
    places = {keys.data_ptr() for keys, _ in found}
    assert len(places) == 2  # the first room, and the larger one
    layer.select(torch.tensor([1, 5]))
    kept, _ = layer.update(given[0][:2], given[0][:2])
    assert torch.equal(kept, torch.cat([keys[[1, 5]], given[0][:2]], -2))
    assert layer.get_seq_length() == 5 + ROOM + 3


def rows_of(kept: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of the rows that are left of 2 groups of 3, by the cache and by definition."""
    heads, width = 2, 4  # four heads of the query, two to a key
    mask = torch.tensor([[True, True, True], [False, True, True]])
    prompt = (random(2, heads, 3, width), random(2, heads, 3, width + 1))
    key, value = random(6, heads, 2, width), random(6, heads, 2, width + 1)
    query = random(6, 2 * heads, 1, width)
    cache = group_cache(mask)
    cache.place(torch.arange(2).repeat_interleave(3)[kept])
    found = attend(query[kept], key[kept], value[kept], prompt, cache)
    keys, values = (
        torch.cat([shared.repeat_interleave(3, 0), own], 2).repeat_interleave(2, 1)
        for shared, own in zip(prompt, (key, value), strict=True)
    )
    visible = torch.cat([mask, torch.ones(2, 2, dtype=torch.bool)], -1).repeat_interleave(3, 0)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=visible[:, None, None, :], scale=1.0
    )
    return found, expected[kept]


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4, 5], [0, 2, 5], [1, 4]])
def test_attention_in_groups_is_that_of_every_row(kept: list[int]) -> None:
    found, expected = rows_of(kept)
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_prompt_without_responses_leaves() -> None:
    cache = group_cache(torch.tensor([[True, True], [False, True]]))
    for layer in cache.layers:
        assert isinstance(layer, GroupLayer)
        layer.update(random(2, 2, 2, 32), random(2, 2, 2, 32))
    cache.batch_select_indices(torch.tensor([0, 0, 1, 1]))
    for layer in cache.layers:
        assert isinstance(layer, GroupLayer)
        layer.update(random(4, 2, 1, 32), random(4, 2, 1, 32))
    cache.batch_select_indices(torch.tensor([3]))
    assert cache.prompt_mask.tolist() == [[False, True]]
    assert cache.group.tolist() == [0]
    first = cache.layers[0]
    assert isinstance(first, GroupLayer)
    assert first.prompt is not None
    assert torch.equal(first.prompt[0], random(2, 2, 2, 32)[1:])
