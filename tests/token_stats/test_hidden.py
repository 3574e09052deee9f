"""Token statistics from hidden states: the logits' own statistics, whatever the tiles."""

import pytest
import torch
from torch import Tensor

from isentrope.errors import DataError
from isentrope.token_stats import hidden as token_stats_hidden
from isentrope.token_stats.logits import reference_token_stats, token_stats_from_hidden


@pytest.fixture(params=[(2048, 1024), (4, 3)], ids=["one tile", "many tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, words = request.param
    monkeypatch.setattr(token_stats_hidden, "TILE_ROWS", rows)
    monkeypatch.setattr(token_stats_hidden, "TILE_WORDS", words)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("softcap", [None, 4.0])
def test_gradcheck_and_reference(with_bias: bool, softcap: float | None) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(7, dtype=torch.float64, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 7, (2, 3))
    mask = torch.rand(2, 3) < 0.8

    def both(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        stats = token_stats_from_hidden(
            inputs[0],
            inputs[1],
            labels.where(mask, -100),
            bias=inputs[2] if with_bias else None,
            mask=mask,
            temperature=1.3,
            softcap=softcap,
            scale=0.7,
        )
        return stats.logprob, stats.entropy

    inputs = (hidden, weight) if bias is None else (hidden, weight, bias)
    logits = torch.nn.functional.linear(hidden, weight, bias)
    right = reference_token_stats(logits, labels, temperature=1.3, softcap=softcap, scale=0.7)
    torch.testing.assert_close(both(*inputs), (right.logprob * mask, right.entropy * mask))
    assert torch.autograd.gradcheck(both, inputs)


@pytest.mark.usefixtures("tiles")
def test_forbidden_words_and_byproducts() -> None:
    """A bias of -inf forbids whole tiles of the vocabulary; all of it gives NaN, never 0."""
    hidden = torch.zeros(3, 2)
    weight = torch.zeros(16, 2)
    bias = torch.full((16,), -torch.inf)
    labels = torch.tensor([12, 13, 13])
    stats = token_stats_from_hidden(hidden, weight, labels, bias=bias, byproducts=True)
    assert all(value is not None and value.isnan().all() for value in stats)
    bias[12:14] = 1.0
    stats = token_stats_from_hidden(hidden, weight, labels, bias=bias, byproducts=True)
    half = torch.full((3,), 0.5)
    assert stats.top1_prob is not None
    assert stats.sum_sq_prob is not None
    assert stats.max_logit is not None
    torch.testing.assert_close(stats.entropy, -half.log())
    torch.testing.assert_close(stats.logprob, half.log())
    torch.testing.assert_close(stats.top1_prob, half)
    torch.testing.assert_close(stats.sum_sq_prob, half)
    torch.testing.assert_close(stats.max_logit, torch.ones(3))


def test_only_wanted_gradients_are_computed() -> None:
    hidden = torch.randn(4, 3, requires_grad=True)
    weight = torch.randn(7, 3)
    stats = token_stats_from_hidden(hidden, weight, torch.zeros(4, dtype=torch.long))
    stats.entropy.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_fp32_agrees_with_the_float64_reference() -> None:
    torch.manual_seed(1)
    hidden = torch.randn(50, 64, requires_grad=True)
    weight = (0.3 * torch.randn(3000, 64)).requires_grad_()
    labels = torch.randint(0, 3000, (50,))
    coefficients = torch.randn(2, 50)
    exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
    right = reference_token_stats(exact[0] @ exact[1].T, labels)
    stats = token_stats_from_hidden(hidden, weight, labels)
    for value, expected in zip(stats[:2], right[:2], strict=True):
        torch.testing.assert_close(value.double(), expected, atol=1e-5, rtol=0)
    for found in (stats, right):
        (coefficients[0] * found.logprob + coefficients[1] * found.entropy).sum().backward()
    for value, expected in zip((hidden, weight), exact, strict=True):
        assert value.grad is not None
        assert expected.grad is not None
        torch.testing.assert_close(value.grad.double(), expected.grad, atol=1e-5, rtol=1e-5)


def test_bf16_loses_no_more_than_eager_bf16_with_fp32_sums() -> None:
    torch.manual_seed(1)
    hidden = torch.randn(50, 64, dtype=torch.bfloat16, requires_grad=True)
    weight = (0.3 * torch.randn(3000, 64)).to(torch.bfloat16).requires_grad_()
    labels = torch.randint(0, 3000, (50,))
    exact = reference_token_stats(hidden.double() @ weight.double().T, labels)
    eager = reference_token_stats(hidden @ weight.T, labels)
    stats = token_stats_from_hidden(hidden, weight, labels)
    for value, other, right in zip(stats[:2], eager[:2], exact[:2], strict=True):
        error, eager_error = (
            (found.double() - right).abs().max().item() for found in (value, other)
        )
        assert error <= eager_error
    (stats.logprob + stats.entropy).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    assert (hidden.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.bfloat16)


def test_labels_are_checked() -> None:
    with pytest.raises(DataError, match="vocabulary from 0 to 6"):
        token_stats_from_hidden(torch.zeros(1, 3), torch.zeros(7, 3), torch.tensor([7]))


@pytest.mark.parametrize("rows", [0, 3])
def test_without_a_token_that_counts_all_is_zero(rows: int) -> None:
    hidden = torch.randn(rows, 4, requires_grad=True)
    weight = torch.randn(7, 4, requires_grad=True)
    labels, mask = torch.zeros(rows, dtype=torch.long), torch.zeros(rows, dtype=torch.bool)
    stats = token_stats_from_hidden(hidden, weight, labels, mask=mask)
    assert stats.logprob.tolist() == stats.entropy.tolist() == [0.0] * rows
    (stats.logprob.sum() + stats.entropy.sum()).backward()
    assert weight.grad is not None
    assert weight.grad.abs().max() == 0
