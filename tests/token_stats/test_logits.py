"""Token statistics from logits: hand-computed numbers, the float64 reference, gradients."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from isentrope.errors import ConfigError, DataError
from isentrope.token_stats import row_chunks
from isentrope.token_stats.logits import reference_token_stats, token_stats

NINF = -torch.inf
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7, "scale": 0.25},
    {"softcap": 3.0},
    {"temperature": 0.8, "softcap": 5.0, "scale": 2.0},
]


@pytest.mark.parametrize(
    ("temperature", "entropy"), [(1.0, 0.832396), (0.5, 0.441057), (1.5, 0.965332)]
)
def test_three_logits_at_three_temperatures(temperature: float, entropy: float) -> None:
    stats = token_stats(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), temperature=temperature)
    probability = math.exp(2 / temperature) / sum(math.exp(y / temperature) for y in (2, 1, 0))
    assert stats.entropy.item() == pytest.approx(entropy, abs=1e-6)
    assert stats.logprob.item() == pytest.approx(math.log(probability), abs=1e-6)


def test_scale_and_softcap_come_before_the_temperature() -> None:
    logits = torch.tensor([[6.0, 0.0]])
    y = 4 * math.tanh(0.5 * 6 / 4) / 2
    stats = token_stats(logits, torch.tensor([1]), temperature=2.0, softcap=4.0, scale=0.5)
    assert stats.logprob.item() == pytest.approx(-math.log1p(math.exp(y)), abs=1e-6)


def test_byproducts() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0]]).mul(math.log(2)).requires_grad_()
    stats = token_stats(logits, torch.tensor([1]), byproducts=True)
    assert stats.top1_prob is not None
    assert stats.sum_sq_prob is not None
    assert stats.max_logit is not None
    assert stats.top1_prob.item() == pytest.approx(0.5)
    assert stats.sum_sq_prob.item() == pytest.approx(0.375)
    assert stats.max_logit.item() == pytest.approx(2 * math.log(2))
    assert stats.entropy.requires_grad
    assert not stats.top1_prob.requires_grad
    assert token_stats(logits, torch.tensor([1])).top1_prob is None


@pytest.mark.parametrize("softcap", [None, 30.0])
def test_forbidden_tokens_add_nothing_and_get_no_gradient(softcap: float | None) -> None:
    logits = torch.tensor([[0.0, 0.0, NINF], [5.0, NINF, NINF]], requires_grad=True)
    stats = token_stats(logits, torch.tensor([0, 0]), softcap=softcap, temperature=0.5)
    torch.testing.assert_close(stats.entropy, torch.tensor([math.log(2), 0.0]))
    torch.testing.assert_close(stats.logprob, torch.tensor([-math.log(2), 0.0]))
    (stats.logprob + 3 * stats.entropy).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[logits == NINF] == 0).all()


def test_a_forbidden_label_has_no_probability_and_no_gradient() -> None:
    logits = torch.tensor([[0.0, 1.0, NINF]], requires_grad=True)
    stats = token_stats(logits, torch.tensor([2]))
    assert stats.logprob.item() == NINF
    stats.logprob.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 2].item() == 0


def test_extreme_rows_over_a_real_vocabulary() -> None:
    vocabulary = 151_936
    logits = torch.zeros(4, vocabulary)
    logits[1, 7] = 1e4  # one dominates
    logits[2] = NINF
    logits[2, 100_000] = -3.0  # one is allowed
    logits[3] = NINF  # all are forbidden
    stats = token_stats(logits, torch.tensor([5, 7, 100_000, 0]), byproducts=True)
    uniform = math.log(vocabulary)
    torch.testing.assert_close(stats.entropy[:3], torch.tensor([uniform, 0, 0]))
    torch.testing.assert_close(stats.logprob[:3], torch.tensor([-uniform, 0, 0]))
    for value in stats:
        assert value is not None
        assert value[:3].isfinite().all()
        assert value[3].isnan()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (2, 5, 1000), (1, 33_000), (2, 2, 3, 64)])
def test_fp32_agrees_with_the_float64_reference(
    shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    torch.manual_seed(len(shape))
    logits = (4 * torch.randn(shape)).requires_grad_()
    labels = torch.randint(0, shape[-1], shape[:-1])
    kept = torch.rand(labels.shape) < 0.7
    weights = torch.randn(2, *labels.shape, dtype=torch.float64) * kept

    exact = logits.detach().double().requires_grad_()
    right = reference_token_stats(exact, labels, **settings)
    (weights[0] * right.logprob + weights[1] * right.entropy).sum().backward()
    stats = token_stats(logits, labels.where(kept, -100), mask=kept, **settings)
    (weights[0] * stats.logprob + weights[1] * stats.entropy).sum().backward()

    assert stats.logprob.dtype == torch.float32
    for value, expected in ((stats.logprob, right.logprob), (stats.entropy, right.entropy)):
        torch.testing.assert_close(value.double(), expected * kept, atol=1e-5, rtol=0)
    assert logits.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(logits.grad.double(), exact.grad, atol=1e-5, rtol=0)
    assert (logits.grad[~kept] == 0).all()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("outputs", [(0,), (1,), (0, 1)])
def test_gradcheck(outputs: tuple[int, ...], settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 7, (2, 3))
    mask = torch.tensor([[True, True, False], [True, False, True]])

    def wanted(x: Tensor) -> tuple[Tensor, ...]:
        stats = token_stats(x, labels, mask=mask, **settings)
        return tuple((stats.logprob, stats.entropy)[i] for i in outputs)

    assert torch.autograd.gradcheck(wanted, (logits,))


def test_masked_rows_are_not_read() -> None:
    logits = torch.tensor([[[0.0, 1.0], [torch.nan, NINF]]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    stats = token_stats(logits, torch.tensor([[1, -100]]), mask=mask)
    assert stats.entropy[0, 1].item() == 0
    assert stats.logprob[0, 1].item() == 0
    (stats.entropy + stats.logprob).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].abs().sum() > 0
    assert (logits.grad[0, 1] == 0).all()


@pytest.mark.parametrize("rows", [0, 3])
def test_no_row_to_compute(rows: int) -> None:
    logits = torch.randn(rows, 5, requires_grad=True)
    mask = torch.zeros(rows, dtype=torch.bool)
    stats = token_stats(logits, torch.zeros(rows, dtype=torch.long), mask=mask)
    stats.entropy.sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() == 0


@pytest.mark.parametrize("chunk_bytes", [1, 3 * 4 * 50])
def test_chunks_and_strides_change_nothing(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    torch.manual_seed(0)
    whole = torch.randn(3, 8, 50, requires_grad=True)
    labels = torch.randint(0, 50, (3, 7))
    mask = torch.rand(3, 7) < 0.6
    right = token_stats(whole[:, :-1].contiguous(), labels, mask=mask)
    monkeypatch.setattr(row_chunks, "CPU_CHUNK_BYTES", chunk_bytes)
    stats = token_stats(whole[:, :-1], labels, mask=mask)
    torch.testing.assert_close(stats[:2], right[:2], atol=1e-6, rtol=0)
    grads = [
        torch.autograd.grad(s.logprob.sum() + s.entropy.square().sum(), whole)[0]
        for s in (right, stats)
    ]
    torch.testing.assert_close(grads[1], grads[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_lose_no_more_than_eager_with_fp32_sums(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (4 * torch.randn(16, 5000)).to(dtype).requires_grad_()
    labels = torch.randint(0, 5000, (16,))
    exact = reference_token_stats(logits.double(), labels)
    eager = reference_token_stats(logits, labels)
    stats = token_stats(logits, labels)
    for value, other, right in zip(stats[:2], eager[:2], exact[:2], strict=True):
        error = (value.double() - right).abs().max().item()
        assert error <= max((other.double() - right).abs().max().item(), 2e-6)
    (stats.logprob + stats.entropy).sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    right_grad = torch.autograd.grad((exact.logprob + exact.entropy).sum(), logits)[0]
    assert (logits.grad - right_grad).abs().max() <= torch.finfo(dtype).eps


def test_overwritten_logits_hold_the_gradient_and_cannot_be_read_again() -> None:
    torch.manual_seed(0)
    source = torch.randn(4, 30, requires_grad=True)
    labels = torch.randint(0, 30, (4,))
    right = torch.autograd.grad(token_stats(source * 1.0, labels).entropy.sum(), source)[0]
    logits = source * 1.0
    stats = token_stats(logits, labels, overwrite_logits=True)
    stats.entropy.sum().backward(retain_graph=True)
    torch.testing.assert_close(source.grad, right)
    torch.testing.assert_close(logits.detach(), right)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stats.logprob.sum().backward()


def test_errors_say_what_was_seen() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    label = torch.tensor([0])
    with pytest.raises(DataError, match=r"from -100 to -100, the vocabulary from 0 to 2"):
        token_stats(logits, torch.tensor([-100]))
    with pytest.raises(ConfigError, match=r"temperature is 0\.0"):
        token_stats(logits, label, temperature=0.0)
    with pytest.raises(ConfigError, match="leaf"):
        token_stats(logits, label, overwrite_logits=True)
