"""How the rows of a tensor (..., V) are walked through: a cached chunk at a time, without copies."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["RowChunks"]

CPU_CHUNK_BYTES = 2**20
"""Of full-precision logits, for each thread. The chunk and its two scratch buffers of the same size
stay in the cache; much smaller ones spend their time on the calls, much larger ones on memory."""

ACCELERATOR_CHUNK_BYTES = 2**26
"""Enough rows to fill a GPU; small beside the logits of a batch."""


def rows_per_chunk(width: int, itemsize: int, device: torch.device) -> int:
    """The number of rows of `width` numbers that are worked on at once; at least one."""
    if device.type == "cpu":
        size = CPU_CHUNK_BYTES * torch.get_num_threads()
    else:
        size = ACCELERATOR_CHUNK_BYTES
    return max(1, size // max(1, width * itemsize))


@dataclass(frozen=True, slots=True)
class RowChunks:
    """The cut of a tensor's rows into chunks of kept rows and the gaps between them."""

    sizes: list[list[int]]
    """Rows of each piece, for each of the tensor's matrices."""
    kept: list[bool]
    """For each piece, in order, whether it is a chunk to compute; False in a gap."""
    whole: bool
    """Whether all leading dimensions are one matrix."""

    @classmethod
    def of(cls, tensor: Tensor, kept: Tensor | None, itemsize: int) -> "RowChunks":
        """Chunks of the rows of `tensor` (..., V) where `kept` (rows,) is True."""
        limit = rows_per_chunk(tensor.shape[-1], itemsize, tensor.device)
        whole = tensor.is_contiguous()
        counts = [matrix.shape[0] for matrix in _matrices(tensor, whole)]
        masks = [None] * len(counts) if kept is None else kept.split(counts)
        cuts = [_cut(count, mask, limit) for count, mask in zip(counts, masks, strict=True)]
        return cls(
            sizes=[[size for size, _ in pieces] for pieces in cuts],
            kept=[flag for pieces in cuts for _, flag in pieces],
            whole=whole,
        )

    def matrices(self, tensor: Tensor) -> list[Tensor]:
        """The pieces of a tensor (..., V), as views (rows, V)."""
        parts = zip(_matrices(tensor, self.whole), self.sizes, strict=True)
        return [piece for matrix, sizes in parts for piece in matrix.split(sizes)]

    def columns(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """The pieces of a tensor with one row for each row of the matrices, as views."""
        return tensor.split([size for sizes in self.sizes for size in sizes])


def _matrices(tensor: Tensor, whole: bool) -> list[Tensor]:
    """Views (rows, V) that cover a tensor (..., V) in order."""
    if whole:
        return [tensor.view(-1, tensor.shape[-1])]
    if tensor.dim() <= 2:
        return [tensor if tensor.dim() == 2 else tensor.unsqueeze(0)]
    return [matrix for part in tensor.unbind() for matrix in _matrices(part, whole)]


def _cut(count: int, kept: Tensor | None, limit: int) -> list[tuple[int, bool]]:
    """(rows, kept) of the pieces of `count` rows; a run of kept rows is cut to at most `limit`."""
    if kept is None or count == 0:
        runs = [(count, True)]
    else:
        values, lengths = kept.unique_consecutive(return_counts=True)
        runs = list(zip(lengths.tolist(), values.tolist(), strict=True))
    pieces: list[tuple[int, bool]] = []
    for length, flag in runs:
        if not flag:
            pieces.append((length, False))
            continue
        full, rest = divmod(length, limit)
        pieces += [(limit, True)] * full
        if rest or not full:
            pieces.append((rest, True))
    return pieces
