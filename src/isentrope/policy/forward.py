"""Statistics of given responses under the model being trained."""

import torch
from torch import Tensor
from transformers import DynamicCache

from isentrope.policy.model import LanguageModel
from isentrope.policy.packing import micro_batches
from isentrope.policy.sampler import Rollout
from isentrope.token_stats.logits import TokenStats, token_stats, token_stats_from_hidden

__all__ = ["response_logits", "response_logprob", "response_numbers", "response_stats"]


def response_stats(model: LanguageModel, rollout: Rollout, temperature: float) -> TokenStats:
    """Log-probability and entropy (B, T) of each response token, with gradient.

    The logits are not held, where the model has an ordinary output layer.
    """
    states = states_of(model, rollout)
    labels, mask = rollout.tokens.to(model.device), rollout.mask.to(model.device)
    if model.head is None:
        return token_stats(states, labels, temperature=temperature, mask=mask)
    output = model.network.get_output_embeddings()
    assert output is not None, "a model with a head has an output layer"
    return token_stats_from_hidden(
        states,
        output.weight.to(states.dtype),
        labels,
        bias=output.bias,
        temperature=temperature,
        softcap=model.head.softcap,
        scale=model.head.scale,
        mask=mask,
    )


def states_of(model: LanguageModel, rollout: Rollout) -> Tensor:
    """Hidden states (B, T, D) from which each response token is drawn; logits, without a head.

    A prompt that neighbouring rows share is read once, with gradient, and its cache given to all
    of them: for groups of 8 and prompts as long as responses that is nearly half of the work.
    """
    read = model.logits if model.head is None else model.hidden
    width = rollout.tokens.shape[1]
    tokens, mask = rollout.tokens.to(model.device), rollout.mask.to(model.device)
    prompts, prompt_mask = rollout.prompts.to(model.device), rollout.prompt_mask.to(model.device)
    first, owner = shared_prompts(prompts, prompt_mask)
    if len(first) == len(owner) or model.network.training:  # recomputation takes no cache
        whole = torch.cat([prompts, tokens], -1)
        return read(whole, torch.cat([prompt_mask, mask], -1), last=width + 1)[:, :-1]
    cache = DynamicCache(config=model.network.config)
    start = read(prompts[first], prompt_mask[first], last=1, cache=cache)[owner]
    if width == 1:
        return start
    cache.batch_select_indices(owner)
    attention = torch.cat([prompt_mask, mask[:, :-1]], -1)
    return torch.cat([start, read(tokens[:, :-1], attention, last=width - 1, cache=cache)], 1)


def shared_prompts(prompts: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that begin a run of equal prompts, and for each row (B,) the number of its run."""
    change = ((prompts[1:] != prompts[:-1]) | (mask[1:] != mask[:-1])).any(-1)
    begins = torch.cat([change.new_ones(1), change])
    return begins.nonzero().squeeze(-1), begins.cumsum(0) - 1


def response_logits(model: LanguageModel, rollout: Rollout) -> Tensor:
    """Logits (B, T, V) from which each response token was drawn."""
    tokens = torch.cat([rollout.prompts, rollout.tokens], -1).to(model.device)
    attention = torch.cat([rollout.prompt_mask, rollout.mask], -1).to(model.device)
    return model.logits(tokens, attention, last=rollout.tokens.shape[1] + 1)[:, :-1]


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
    for rows in micro_batches(rollout, size):
        part = rollout.rows(rows).trimmed()
        stats = response_stats(model, part, temperature)
        place = rows, slice(part.tokens.shape[1])
        logprob[place], entropy[place] = stats.logprob.cpu(), stats.entropy.cpu()
    return logprob, entropy
