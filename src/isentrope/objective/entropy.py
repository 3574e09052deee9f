"""Entropy of a policy on sampled responses, by every mean that is in use; nats."""

import torch

from isentrope.objective.advantages import group_means
from isentrope.objective.masking import masked_mean, sequence_means
from isentrope.objective.shapes import GroupIds, PerToken, TokenMask

__all__ = ["entropy_metrics"]


@torch.no_grad()
def entropy_metrics(entropy: PerToken, mask: TokenMask, groups: GroupIds) -> dict[str, float]:
    """The entropy of responses to the prompts of these numbers (B,).

    `token_mean` weighs all tokens alike; `sequence_mean`, the paper's H, all responses. `prompt_median`
    and `prompt_std` are over prompts, of the mean over a prompt's responses: where the median
    falls and the mean does not, a few prompts hold the entropy.
    """
    responses = sequence_means(entropy, mask)
    prompts = torch.unique(torch.stack([groups, group_means(responses, groups)], -1), dim=0)[:, 1]
    return {
        "entropy/token_mean": masked_mean(entropy, mask).item(),
        "entropy/sequence_mean": responses.mean().item(),
        "entropy/prompt_median": prompts.quantile(0.5).item(),
        "entropy/prompt_std": prompts.std(correction=0).item(),
    }
