"""Token statistics from hidden states and the output matrix, without the logits."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isentrope.objective.softmax_moments import (
    LogitTransform,
    Moments,
    RowGradients,
    Scratch,
    StatsContext,
    gradient_of_chunk,
    moments_of_chunk,
    sum_dtype,
)

__all__ = ["HiddenStats"]

SIZE = 64


class HiddenStats(torch.autograd.Function):
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
        picked, parts = [], []
        for rows, label in zip(hidden.split(SIZE), labels.split(SIZE), strict=True):
            logits = torch.nn.functional.linear(rows, weight, bias)
            scratch = Scratch(logits.shape[0], logits, transform)
            parts.append(moments_of_chunk(logits, transform, scratch, square=byproducts))
            picked.append(logits.gather(-1, label))
        moments = Moments.join(parts)
        distance = transform.distance(transform.bound(torch.cat(picked)), moments.offset)
        ctx.save_for_backward(hidden, weight, labels, distance, *moments[:3])
        ctx.transform, ctx.bias = transform, bias
        ctx.set_materialize_grads(False)
        stats = moments.stats(distance)
        ctx.mark_non_differentiable(*stats[2:])
        return stats

    @staticmethod
    @once_differentiable
    def backward(ctx: StatsContext, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, labels, distance, offset, total, dot = ctx.saved_tensors
        bias = ctx.bias
        wide = sum_dtype(hidden.dtype)
        moments = Moments(offset, total, dot)
        rows = RowGradients.of(
            moments, grads[0], grads[1], distance > -torch.inf, ctx.transform.slope
        )
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=wide)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=wide)
        for start in range(0, hidden.shape[0], SIZE):
            part = slice(start, start + SIZE)
            logits = torch.nn.functional.linear(hidden[part], weight, bias)
            scratch = Scratch(logits.shape[0], logits, ctx.transform)
            grad = torch.empty_like(logits, dtype=wide)
            gradient_of_chunk(
                logits,
                labels[part],
                offset[part],
                RowGradients(*(row[part] for row in rows)),
                ctx.transform,
                scratch,
                grad,
            )
            grad_hidden[part] = (grad @ weight.to(wide)).to(hidden.dtype)
            grad_weight.addmm_(grad.T, hidden[part].to(wide))
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype),
            None if bias is None or grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
            None,
        )
