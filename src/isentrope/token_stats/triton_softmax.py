# pyright: reportInvalidTypeForm=false
# ruff: noqa: ANN001, ANN202
"""The sums over the vocabulary and the gradient of token statistics, one pass each, in Triton.

Same numbers as the eager passes of `objective.softmax_moments`, without their buffers: with
d = y / ln 2 + offset, a row's sums are those of 2^d, 2^d d and 4^d. (A kernel's arguments are
pointers and numbers of Triton's own types, hence without annotations.)
"""

import torch
from torch import Tensor

from isentrope.errors import require

triton = require("triton", "triton")
tl = require("triton.language", "triton")

__all__ = ["gradient", "moments"]

BLOCK = 4096
"""Logits in flight at once: a row of 151,936 takes 38 turns."""


def moments(
    logits: Tensor, inner: float, outer: float, floor: float, *, capped: bool, square: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Columns (rows, 1) of offset, sum 2^d, sum 2^d d and, where asked for, sum 4^d.

    y / ln 2 is `outer` times the logits, or `outer` tanh(`inner` logits) where `capped`; `floor`
    stands in for -inf in d.
    """
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, width = logits.shape
    sums = logits.new_empty(4, rows, 1, dtype=torch.float32)
    if rows:
        _moments[(rows,)](
            logits,
            *sums.unbind(),
            logits.stride(0),
            width,
            inner,
            outer,
            floor,
            CAPPED=capped,
            SQUARE=square,
            BLOCK=min(BLOCK, triton.next_power_of_2(width)),
        )
    offset, total, dot, squares = sums.unbind()
    return offset, total, dot, squares if square else None


def gradient(
    logits: Tensor,
    labels: Tensor,
    columns: tuple[Tensor, Tensor, Tensor, Tensor],
    inner: float,
    outer: float,
    floor: float,
    out: Tensor,
    *,
    capped: bool,
) -> None:
    """Writes 2^d (constant + slope d) + [v = label] label into `out`, which may be `logits`.

    `columns` are offset, constant, slope and label gradient of each row; where `capped`, all is
    multiplied by the derivative of tanh.
    """
    source = logits if logits.stride(-1) == 1 else logits.contiguous()
    target = out if out.stride(-1) == 1 else torch.empty_like(source)
    rows, width = source.shape
    block = min(BLOCK, triton.next_power_of_2(width))
    if rows:
        _gradient[(rows, triton.cdiv(width, block))](
            source,
            target,
            labels.contiguous(),
            *(column.contiguous() for column in columns),
            source.stride(0),
            target.stride(0),
            width,
            inner,
            outer,
            floor,
            CAPPED=capped,
            BLOCK=block,
        )
    if target is not out:
        out.copy_(target)


@triton.jit
def _bounded(logits, inner, CAPPED: tl.constexpr):
    wide = logits.to(tl.float32)
    if CAPPED:
        tanh = 1.0 - 2.0 / (tl.exp2(wide * (inner * 2.8853900817779268)) + 1.0)  # 2 / ln 2
        wide = tl.where(wide == float("-inf"), wide, tanh)
    return wide


@triton.jit
def _moments(
    logits,
    offset,
    total,
    dot,
    square,
    stride,
    width,
    inner,
    outer,
    floor,
    CAPPED: tl.constexpr,
    SQUARE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    # The lowest finite number, so that a row in which all is forbidden ends with total 0.
    top = -3.4028234663852886e38
    sum_weight = 0.0
    sum_dot = 0.0
    sum_square = 0.0
    for start in range(0, width, BLOCK):
        index = start + lanes
        raw = tl.load(logits + row * stride + index, mask=index < width, other=float("-inf"))
        scaled = _bounded(raw, inner, CAPPED) * outer
        higher = tl.maximum(top, tl.max(scaled, 0))
        lower = tl.maximum(top - higher, floor)
        keep = tl.exp2(lower)
        distance = scaled - higher
        distance = tl.where(distance < floor, floor, distance)  # a comparison keeps NaN
        weight = tl.exp2(distance)
        sum_dot = (sum_dot + lower * sum_weight) * keep + tl.sum(weight * distance, 0)
        sum_weight = sum_weight * keep + tl.sum(weight, 0)
        if SQUARE:
            sum_square = sum_square * keep * keep + tl.sum(weight * weight, 0)
        top = higher
    tl.store(offset + row, -top)
    tl.store(total + row, sum_weight)
    tl.store(dot + row, sum_dot)
    if SQUARE:
        tl.store(square + row, sum_square)


@triton.jit
def _gradient(
    logits,
    out,
    labels,
    offset,
    constant,
    slope,
    label_gradient,
    stride,
    out_stride,
    width,
    inner,
    outer,
    floor,
    CAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = index < width
    raw = tl.load(logits + row * stride + index, mask=inside, other=float("-inf"))
    bounded = _bounded(raw, inner, CAPPED)
    distance = bounded * outer + tl.load(offset + row)
    distance = tl.where(distance < floor, floor, distance)
    grad = tl.exp2(distance) * (tl.load(constant + row) + tl.load(slope + row) * distance)
    grad += tl.where(index == tl.load(labels + row), tl.load(label_gradient + row), 0.0)
    if CAPPED:
        grad *= tl.where(raw == float("-inf"), 0.0, 1.0 - bounded * bounded)
    tl.store(out + row * out_stride + index, grad.to(out.dtype.element_ty), mask=inside)
