"""Statistics of given responses under the model being trained."""

import torch
from torch import Tensor

from isentrope.objective.token_stats import TokenStats, token_stats
from isentrope.training.model import LanguageModel
from isentrope.training.sampler import Rollout

__all__ = ["response_logits", "response_stats"]


def response_logits(model: LanguageModel, rollout: Rollout) -> Tensor:
    """Logits (B, T, V) from which each response token was drawn."""
    tokens = torch.cat([rollout.prompts, rollout.tokens], -1).to(model.device)
    attention = torch.cat([rollout.prompt_mask, rollout.mask], -1).to(model.device)
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    width = rollout.tokens.shape[1]
    return model.logits(tokens, attention.long(), positions, last=width + 1)[:, :-1]


def response_stats(model: LanguageModel, rollout: Rollout, temperature: float) -> TokenStats:
    """Log-probability and entropy (B, T) of each response token, with gradient."""
    logits = response_logits(model, rollout)
    labels, mask = rollout.tokens.to(model.device), rollout.mask.to(model.device)
    return token_stats(logits, labels, temperature=temperature, mask=mask)
