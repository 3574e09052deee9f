"""Token statistics from hidden states and the output matrix, without the logits.

The logits h W^T are worked through in tiles of TILE_ROWS tokens by TILE_WORDS words. Forward, a
tile gives each row's sums over its part of the vocabulary, and the parts are merged at the end.
Backward, the tile is computed once more, the gradient takes its place, and two products add it to
the gradients of h and W: four products of the size of the head in all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isentrope.token_stats.moments import (
    LogitTransform,
    Moments,
    RowGradients,
    Scratch,
    StatsContext,
    moments_of_rows,
    sum_dtype,
    write_gradient,
)

__all__ = ["HiddenStats"]

TILE_ROWS = 2048
TILE_WORDS = 1024
"""8 MiB of fp32 logits a tile: large enough for matrix products at full speed, 1/32 of the logits
of 2,048 tokens over a vocabulary of 32,768."""


class HiddenStats(torch.autograd.Function):
    """Columns (N, 1) of log-prob, entropy, by-products from hidden (N, D) and weight (V, D)."""

    @staticmethod
    def forward(
        ctx: StatsContext,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        transform: LogitTransform,
        byproducts: bool,
    ) -> tuple[Tensor, ...]:
        head = _Head.of(hidden, weight, bias)
        picked = hidden.new_zeros(labels.shape, dtype=head.dtype)
        scratch = Scratch()
        parts: list[Moments] = []
        for words in _blocks(weight.shape[0], TILE_WORDS):
            of_words: list[Moments] = []
            for rows in _blocks(hidden.shape[0], TILE_ROWS):
                logits = head.logits(rows, words)
                of_words.append(moments_of_rows(logits, None, transform, scratch, byproducts))
                inside, index = _labels_among(words, labels[rows])
                picked[rows] = logits.gather(-1, index).where(inside, picked[rows])
            parts.append(Moments.join(of_words))
        moments = Moments.merge(parts)
        distance = transform.distance(transform.bound(picked, scratch), moments.offset)
        stats = moments.stats(distance)
        biases = () if bias is None else (bias,)
        ctx.save_for_backward(hidden, weight, labels, distance, *moments[:3], *biases)
        ctx.transform = transform
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*stats[2:])
        return stats

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: StatsContext, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, labels, distance, offset, total, dot, *biases = ctx.saved_tensors
        gradients = RowGradients.of(
            Moments(offset, total, dot),
            grads[0],
            grads[1],
            distance > -torch.inf,
            ctx.transform.slope,
        )
        head = _Head.of(hidden, weight, biases[0] if biases else None)
        scratch = Scratch()
        want_hidden, want_weight, want_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden, dtype=head.dtype) if want_hidden else None
        grad_weight = torch.empty_like(weight) if want_weight else None
        grad_bias = torch.empty_like(biases[0]) if want_bias else None
        for words in _blocks(weight.shape[0], TILE_WORDS):
            of_weight = weight.new_zeros(weight[words].shape, dtype=head.dtype)
            of_bias = weight.new_zeros(weight[words].shape[0], dtype=head.dtype)
            for rows in _blocks(hidden.shape[0], TILE_ROWS):
                logits = head.logits(rows, words)
                inside, index = _labels_among(words, labels[rows])
                constant, slope, label = (column[rows] for column in gradients)
                write_gradient(
                    logits,
                    None,
                    index,
                    offset[rows],
                    RowGradients(constant, slope, label * inside),
                    ctx.transform,
                    scratch,
                    out=logits,
                )
                if grad_hidden is not None:
                    _add_product(grad_hidden[rows], logits, head.matrix(words))
                if grad_weight is not None:
                    _add_product(of_weight, logits.T, head.hidden[rows])
                if grad_bias is not None:
                    of_bias += logits.sum(0)
            if grad_weight is not None:
                grad_weight[words] = of_weight
            if grad_bias is not None:
                grad_bias[words] = of_bias
        if grad_hidden is not None:
            grad_hidden = grad_hidden.to(hidden.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None


@dataclass(frozen=True, slots=True)
class _Head:
    """The output layer, a tile at a time."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    dtype: torch.dtype
    """Of the logits: float32, or float64 for float64."""
    tile: Tensor
    """The buffer of the logits of a tile."""

    @classmethod
    def of(cls, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> "_Head":
        dtype = sum_dtype(hidden.dtype)
        rows, words = min(TILE_ROWS, hidden.shape[0]), min(TILE_WORDS, weight.shape[0])
        return cls(
            _operand(hidden), weight, bias, dtype, hidden.new_empty(rows * words, dtype=dtype)
        )

    def matrix(self, words: slice) -> Tensor:
        """The rows of the output matrix for these words, ready to be multiplied."""
        return _operand(self.weight[words])

    def logits(self, rows: slice, words: slice) -> Tensor:
        """The logits of a tile, in a buffer that the next tile overwrites."""
        hidden, matrix = self.hidden[rows], self.matrix(words)
        shape = (hidden.shape[0], matrix.shape[0])
        logits = self.tile[: shape[0] * shape[1]].view(shape)
        if self.bias is None:
            logits.zero_()
        else:
            logits.copy_(self.bias[words])
        _add_product(logits, hidden, matrix.T)
        return logits


def _operand(tensor: Tensor) -> Tensor:
    """The tensor as it is multiplied: on a CPU widened, since narrow products round their sums."""
    return tensor if tensor.is_cuda else tensor.to(sum_dtype(tensor.dtype))


def _add_product(target: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left @ right to `target`; narrow operands on a GPU are summed in the target's format."""
    if right.dtype == target.dtype:
        target.addmm_(left.to(target.dtype), right)
    else:
        target += torch.mm(left.to(right.dtype), right, out_dtype=target.dtype)


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count`; an empty one where there is nothing to cover."""
    for start in range(0, max(count, 1), size):
        yield slice(start, min(start + size, count))


def _labels_among(words: slice, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which labels are among `words`, and their place there (0 for the others)."""
    index = labels - words.start
    inside = (index >= 0) & (labels < words.stop)
    return inside, index * inside
