import math

import pytest
import torch

from isentrope.objective.masking import (
    Reducer,
    loss_denominator,
    masked_mean,
    masked_sum,
    reduce_loss,
    response_mask,
    sequence_means,
)


def mask_of(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def test_pooling_is_by_token_not_by_shard() -> None:
    # One token of entropy 1 in one shard, a hundred of entropy 2 in the other: 201 / 101.
    one, hundred = torch.full((1, 1), 1.0), torch.full((1, 100), 2.0)
    total = masked_sum(one, one > 0) + masked_sum(hundred, hundred > 0)
    assert float(total / 101) == pytest.approx(1.990099, abs=1e-5)


def test_sequence_means_have_their_own_name_and_value() -> None:
    entropy = torch.full((2, 100), 2.0)
    entropy[0, 0] = 1.0
    mask = torch.ones(2, 100, dtype=torch.bool)
    mask[0, 1:] = False
    assert float(sequence_means(entropy, mask).mean()) == pytest.approx(1.5)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_any_packing_order_gives_the_same_token_mean(order: list[int]) -> None:
    entropy = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0]])[order]
    mask = mask_of([1, 1, 1], [1, 0, 0])[order]
    assert float(masked_mean(entropy, mask)) == pytest.approx(1.25)


def test_what_is_masked_has_no_effect() -> None:
    values, mask = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([True, False, True])
    assert float(masked_sum(values, mask)) == 4.0
    assert float(masked_mean(values, mask)) == 2.0


def test_masked_tokens_are_in_neither_sum_nor_gradient() -> None:
    loss = torch.tensor([[1.0, 100.0], [1.0, -50.0]], requires_grad=True)
    mask = mask_of([1, 0], [1, 0])
    value = reduce_loss(loss, mask, "token_mean", loss_denominator(mask, "token_mean"))
    value.backward()
    assert value.item() == 1.0
    assert loss.grad is not None
    assert loss.grad.tolist() == [[0.5, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize("reducer", ["token_mean", "sequence_mean", "sequence_sum"])
def test_an_empty_mask_gives_a_connected_zero(reducer: Reducer) -> None:
    loss = torch.tensor([[1.0, math.nan]], requires_grad=True)
    mask = mask_of([0, 0])
    value = reduce_loss(loss, mask, reducer, loss_denominator(mask, reducer, max_tokens=2))
    value.backward()
    assert value.item() == 0.0
    assert loss.grad is not None
    assert loss.grad.tolist() == [[0.0, 0.0]]
    assert math.isnan(float(masked_mean(loss.detach(), mask)))


def test_a_sentinel_in_the_padding_is_not_summed() -> None:
    logprob = torch.tensor([[-0.5, -0.5, 1.0, 1.0]])
    assert float(masked_sum(-logprob, mask_of([1, 1, 0, 0]))) == 1.0


def test_accumulation_does_not_change_the_token_mean() -> None:
    # Micro-batch A: one token, loss 1. Micro-batch B: three tokens, loss 0. Mean 1/4.
    loss = torch.tensor([[1.0, 9.0, 9.0], [0.0, 0.0, 0.0]], requires_grad=True)
    mask = mask_of([1, 0, 0], [1, 1, 1])
    denominator = loss_denominator(mask, "token_mean")
    whole = reduce_loss(loss, mask, "token_mean", denominator)
    parts = sum(
        reduce_loss(loss[i : i + 1], mask[i : i + 1], "token_mean", denominator) for i in range(2)
    )
    assert isinstance(parts, torch.Tensor)
    assert whole.item() == parts.item() == 0.25
    (gradient,) = torch.autograd.grad(parts, loss)
    assert gradient.tolist() == [[0.25, 0.0, 0.0], [0.25, 0.25, 0.25]]


def test_reducers_by_hand() -> None:
    loss = torch.tensor([[1.0, 3.0], [5.0, 0.0]])
    mask = mask_of([1, 1], [1, 0])
    expected: dict[Reducer, float] = {
        "token_mean": 9 / 3,
        "sequence_mean": (2 + 5) / 2,
        "sequence_sum": 9 / (2 * 10),
    }
    for reducer, value in expected.items():
        denominator = loss_denominator(mask, reducer, max_tokens=10)
        assert float(reduce_loss(loss, mask, reducer, denominator)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("tokens", "eos", "expected"),
    [
        ([5, 6, 2, 2, 2], [2], [1, 1, 1, 0, 0]),
        ([5, 6, 7, 8, 9], [2], [1, 1, 1, 1, 1]),
        ([78, 0, 76, 2, 1, 0, 0], [1, 2], [1, 1, 1, 1, 0, 0, 0]),
    ],
)
def test_the_first_end_of_sequence_counts(
    tokens: list[int], eos: list[int], expected: list[int]
) -> None:
    mask = response_mask(torch.tensor([tokens]), torch.tensor(eos))
    assert mask.int().tolist() == [expected]
