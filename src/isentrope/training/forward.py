"""Statistics of given responses under the model being trained."""

import torch
from torch import Tensor

from isentrope.objective.token_stats import TokenStats
from isentrope.training.model import LanguageModel
from isentrope.training.sampler import Rollout

__all__ = ["response_logits", "response_logprob", "response_numbers", "response_stats"]


def response_logits(model: LanguageModel, rollout: Rollout) -> Tensor:
    """Logits (B, T, V) from which each response token was drawn."""
    width = rollout.tokens.shape[1]
    return model.logits(*inputs(model, rollout), last=width + 1)[:, :-1]


def response_stats(model: LanguageModel, rollout: Rollout, temperature: float) -> TokenStats:
    """Log-probability and entropy (B, T) of each response token, with gradient."""
    mask = rollout.mask.to(model.device)
    return model.response_stats(*inputs(model, rollout), mask, temperature)


def response_logprob(
    model: LanguageModel, rollout: Rollout, temperature: float, size: int
) -> Tensor:
    """Log-probability (B, T) of each response token, `size` responses at a time; on the CPU."""
    return response_numbers(model, rollout, temperature, size)[0]


@torch.no_grad()
def response_numbers(
    model: LanguageModel, rollout: Rollout, temperature: float, size: int
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy (B, T) of each response token, both at that temperature,
    `size` responses at a time; on the CPU."""
    logprob, entropy = (torch.zeros(rollout.mask.shape) for _ in range(2))
    for start in range(0, len(logprob), size):
        part = rollout.rows(slice(start, start + size)).trimmed()
        stats = response_stats(model, part, temperature)
        place = slice(start, start + size), slice(part.tokens.shape[1])
        logprob[place], entropy[place] = stats.logprob.cpu(), stats.entropy.cpu()
    return logprob, entropy


def inputs(model: LanguageModel, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, attention mask and positions (B, P + T) of prompts with their responses."""
    tokens = torch.cat([rollout.prompts, rollout.tokens], -1).to(model.device)
    attention = torch.cat([rollout.prompt_mask, rollout.mask], -1).long().to(model.device)
    return tokens, attention, (attention.cumsum(-1) - 1).clamp(min=0)
