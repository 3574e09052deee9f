"""Entropy of the policy that sampled, over the responses of all ranks."""

import torch
from torch import Tensor

from isentrope.objective.masking import masked_sum, sequence_means

__all__ = ["entropy_means", "entropy_sums"]


def entropy_sums(entropy: Tensor, mask: Tensor) -> Tensor:
    """Four numbers of this rank's tokens (B, T), which add up over ranks; float64."""
    entropy = entropy.detach().double()
    rows = torch.tensor(len(mask), device=mask.device)
    means = sequence_means(entropy, mask).sum()
    return torch.stack(
        [part.double() for part in (masked_sum(entropy, mask), mask.sum(), means, rows)]
    )


def entropy_means(sums: Tensor) -> dict[str, float]:
    """`token_mean`, over tokens, and `sequence_mean`, over responses of the mean over their tokens."""
    tokens, count, means, rows = sums.tolist()
    return {"token_mean": tokens / max(count, 1.0), "sequence_mean": means / max(rows, 1.0)}
