"""The Triton kernels against the eager passes: by Triton's interpreter, or on a GPU.

pip install triton; pytest -m extra tests/token_stats     (interpreter, on a CPU)
pytest -m gpu tests/token_stats                           (on a CUDA device)
"""

import os

import pytest
import torch
from torch import Tensor

from isentrope.token_stats import logits as token_stats
from isentrope.token_stats import moments as softmax_moments
from isentrope.token_stats.moments import LogitTransform, RowGradients, Scratch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

TRANSFORMS = [
    LogitTransform(),
    LogitTransform(temperature=0.6, scale=0.5),
    LogitTransform(temperature=1.5, softcap=5.0),
]
SHAPES = [(1, 1), (3, 7), (5, 1000), (2, 9001)]
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.extra),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def some_logits(shape: tuple[int, int], dtype: torch.dtype, device: str) -> Tensor:
    torch.manual_seed(sum(shape))
    logits = 4 * torch.randn(shape)
    logits[torch.rand(shape) < 0.1] = -torch.inf
    logits[:, 0] = 1.0  # one allowed token a row, at the least
    return logits.to(device=device, dtype=dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_kernels_equal_the_eager_passes(
    transform: LogitTransform, shape: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    pytest.importorskip("triton")
    logits = some_logits(shape, dtype, device)
    wide = logits.double()
    expected = softmax_moments.moments_of_chunk(wide, transform, Scratch(), True)
    sums = softmax_moments.kernel_moments(logits, transform, True)
    for value, right in zip(sums, expected, strict=True):
        assert value is not None
        assert right is not None
        torch.testing.assert_close(value.double(), right, atol=2e-5, rtol=2e-5)

    labels = torch.randint(0, shape[1], (shape[0], 1), device=device)
    columns = RowGradients(*torch.randn(3, shape[0], 1, device=device).unbind())
    right = torch.empty_like(wide)
    softmax_moments.gradient_of_chunk(
        wide,
        labels,
        expected.offset,
        RowGradients(*(column.double() for column in columns)),
        transform,
        Scratch(),
        right,
    )
    out = torch.empty_like(logits)
    softmax_moments.kernel_gradient(logits, labels, sums.offset, columns, transform, out)
    torch.testing.assert_close(out.double(), right, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_without_an_allowed_token_or_with_nan_gives_nan(device: str) -> None:
    pytest.importorskip("triton")
    logits = torch.full((3, 5000), -torch.inf, device=device)
    logits[1, 4500] = 2.0
    logits[2] = 0.0
    logits[2, 77] = torch.nan
    moments = softmax_moments.kernel_moments(logits, LogitTransform(), True)
    of_label = LogitTransform().distance(logits[:, 4500:4501], moments.offset)
    logprob, entropy, *_ = moments.stats(of_label)
    assert logprob.isnan().flatten().tolist() == [True, False, True]
    assert entropy.isnan().flatten().tolist() == [True, False, True]
    assert entropy[1].item() == 0.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_both_functions_through_the_kernels(
    monkeypatch: pytest.MonkeyPatch, device: str, softcap: float | None
) -> None:
    """The public functions give the same values and gradients whichever passes they run on."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    hidden = torch.randn(2, 6, 16, device=device, requires_grad=True)
    weight = torch.randn(1500, 16, device=device, requires_grad=True)
    labels = torch.randint(0, 1500, (2, 6), device=device)
    mask = torch.rand(2, 6, device=device) < 0.7

    def run(kernels: bool) -> list[Tensor]:
        monkeypatch.setattr(softmax_moments, "has_kernels", lambda _: kernels)
        inputs = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
        logits = (hidden @ weight.T).detach().requires_grad_()
        results: list[Tensor] = []
        for stats in (
            token_stats.token_stats(logits, labels, mask=mask, softcap=softcap),
            token_stats.token_stats_from_hidden(*inputs, labels, mask=mask, softcap=softcap),
        ):
            (stats.logprob.sum() + 0.3 * stats.entropy.square().sum()).backward()
            results += [stats.logprob, stats.entropy]
        gradients = [tensor.grad for tensor in (logits, *inputs) if tensor.grad is not None]
        assert len(gradients) == 3
        return results + gradients

    for fused, eager in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(fused, eager, atol=2e-5, rtol=2e-5)
