"""Sampling in groups: several responses to each prompt, with their log-probs and entropies.

The prompt of a group is read once and its cache shared; rows that have ended leave the batch.
Every row has random numbers of its own, so the responses do not depend on how many rows are
sampled at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from isentrope.objective.masking import response_mask
from isentrope.policy.filtering import WHOLE, Filter, filtered
from isentrope.policy.model import LanguageModel
from isentrope.token_stats.logits import token_stats

__all__ = [
    "Drawn",
    "OnPart",
    "Rollout",
    "draw",
    "ignored",
    "join_rollouts",
    "pad_left",
    "sample",
    "sample_rows",
]

COMPACT_BELOW = 0.75
"""Ended rows are dropped when fewer than this share is alive: dropping copies the cache."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Responses, right-padded, to left-padded prompts; all on the CPU.

    Log-probs are at the sampling temperature, `entropy` (nats, full vocabulary) at temperature 1.
    """

    prompts: Tensor
    """(B, P) token ids."""
    prompt_mask: Tensor
    """(B, P) True at the prompt's tokens."""
    tokens: Tensor
    """(B, T) token ids of the response."""
    mask: Tensor
    """(B, T) True up to and including the first end-of-sequence token."""
    logprob: Tensor
    """(B, T) under the policy before the update: by the trainer's own forward pass where there was
    one, else the sampler's. Ratios and covariances are of these."""
    sampler_logprob: Tensor
    """(B, T) under the distribution that each token was drawn from."""
    entropy: Tensor
    """(B, T)"""
    truncated: Tensor
    """(B,) True where no end-of-sequence token came."""

    def rows(self, index: Tensor | slice) -> "Rollout":
        """Some of the responses."""
        return Rollout(*(getattr(self, name)[index] for name in Rollout.__slots__))

    def trimmed(self) -> "Rollout":
        """The same without columns that hold only padding."""
        start = int(self.prompt_mask.any(0).int().argmax())
        stop = int(self.mask.any(0).sum())
        cut = {"prompts": slice(start, None), "prompt_mask": slice(start, None)}
        cut |= dict.fromkeys(
            ("tokens", "mask", "logprob", "sampler_logprob", "entropy"), slice(stop)
        )
        return Rollout(
            **{
                name: getattr(self, name)[:, cut[name]] if name in cut else getattr(self, name)
                for name in Rollout.__slots__
            }
        )


OnPart = Callable[[Rollout, Sequence[int]], object]
"""Is told of a part of a rollout when it is sampled, with the numbers of its prompts."""


def ignored(part: Rollout, prompts: Sequence[int]) -> None:
    """The `OnPart` that does nothing."""


def join_rollouts(parts: Sequence[Rollout]) -> Rollout:
    """The rollouts one below the other: prompts padded on the left, responses on the right."""
    columns = {}
    for name in Rollout.__slots__:
        values = [getattr(part, name) for part in parts]
        if values[0].dim() == 2:
            width = max(value.shape[1] for value in values)
            left = name.startswith("prompt")
            values = [
                pad(value, (width - value.shape[1], 0) if left else (0, width - value.shape[1]))
                for value in values
            ]
        columns[name] = torch.cat(values)
    return Rollout(**columns)


@torch.no_grad()
def sample(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int,
    temperature: float,
    max_new_tokens: int,
    generator: torch.Generator,
    rows: int = 1024,
    keep: Filter = WHOLE,
    on_part: OnPart = ignored,
) -> Rollout:
    """`samples` responses to each prompt, the responses of one prompt side by side.

    With a filter, log-probs are of the filtered distribution, entropy is of the whole one.
    At most `rows` responses (but at least one group) are in the batch at once, and fewer where
    memory does not hold them; prompts of a batch are about equally long. `on_part` is told of each
    batch when it is done.
    """
    padded, prompt_mask = pad_left(prompts, model.pad_id)
    draws = torch.rand(len(prompts), samples, max_new_tokens, generator=generator)
    order = torch.arange(len(prompts))
    if rows < len(prompts) * samples:
        order = prompt_mask.sum(-1).argsort(descending=True, stable=True)

    def groups_from(first: int, rows: int) -> Rollout:
        """The responses of as many groups, from this place on, as there are rows for."""
        some = order[first : first + max(1, rows // samples)]
        start = int(prompt_mask[some].any(0).int().argmax())
        given = (padded[some, start:], prompt_mask[some, start:], draws[some])
        return sample_groups(model, *given, temperature, keep)

    parts: list[Rollout] = []
    first = 0
    while first < len(prompts):
        work, wanted = partial(groups_from, first), min(rows, (len(prompts) - first) * samples)
        part = model.sampling_rows.fit(work, max(samples, wanted), least=samples)
        last = first + len(part.tokens) // samples
        on_part(part, order[first:last].tolist())
        parts.append(part)
        first = last
    back = (order.argsort()[:, None] * samples + torch.arange(samples)).flatten()
    return join_rollouts(parts).rows(back).trimmed()


def sample_groups(
    model: LanguageModel,
    prompts: Tensor,
    prompt_mask: Tensor,
    draws: Tensor,
    temperature: float,
    keep: Filter,
) -> Rollout:
    """The responses to a batch of prompts, with the random numbers `draws` (prompts, samples, T)."""
    count, samples, _ = draws.shape
    owner = torch.arange(count).repeat_interleave(samples)
    drawn = sample_rows(model, prompts, prompt_mask, owner, draws.flatten(0, 1), temperature, keep)
    ends = model.eos_ids.cpu()
    return Rollout(
        prompts=prompts[owner],
        prompt_mask=prompt_mask[owner],
        tokens=drawn.tokens,
        mask=response_mask(drawn.tokens, ends),
        logprob=drawn.logprob,
        sampler_logprob=drawn.logprob,
        entropy=drawn.entropy,
        truncated=~torch.isin(drawn.tokens, ends).any(-1),
    )


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens with their statistics, each (rows,), or (rows, T)."""

    tokens: Tensor
    logprob: Tensor
    """Of the distribution that was drawn from: at the temperature, filtered."""
    entropy: Tensor
    """Of the whole distribution at temperature 1, nats."""
    full_logprob: Tensor
    """Of the same."""


def sample_rows(
    model: LanguageModel,
    prompts: Tensor,
    prompt_mask: Tensor,
    owner: Tensor,
    draws: Tensor,
    temperature: float,
    keep: Filter = WHOLE,
) -> Drawn:
    """A response (rows, T) to the prompt of number `owner` (rows,) each, with the random numbers
    `draws` (rows, T); the rows of a prompt are side by side. Temperature 0 is greedy."""
    device = model.device
    count, length = draws.shape
    tokens = torch.full((count, length), model.pad_id)
    drawn = Drawn(tokens, *(torch.zeros(count, length) for _ in range(3)))
    attention, owner = prompt_mask.to(device), owner.to(device)
    with model.precision():
        cache = model.sampling_cache(attention)
        logits = model.logits(prompts.to(device), attention, last=1, cache=cache)[owner]
        cache.batch_select_indices(owner)
        attention = attention[owner]
        alive = torch.arange(count)  # the rows still in the batch
        running = torch.ones(count, dtype=torch.bool)  # of these, the ones that have not ended
        for t in range(length):
            new = draw(logits[:, -1], draws[alive, t].to(device), temperature, keep)
            chosen = new.tokens
            tokens[alive[running], t] = chosen.cpu()[running]
            for name in ("logprob", "entropy", "full_logprob"):
                getattr(drawn, name)[alive, t] = getattr(new, name).cpu()
            running = running & ~torch.isin(chosen, model.eos_ids).cpu()
            if not running.any() or t == length - 1:
                break
            if running.float().mean() < COMPACT_BELOW:
                kept = running.nonzero().squeeze(-1)
                cache.batch_select_indices(kept.to(device))
                alive, running = alive[kept], running[kept]
                chosen, attention = chosen[kept.to(device)], attention[kept.to(device)]
            attention = torch.cat([attention, attention.new_ones(len(alive), 1)], -1)
            logits = model.logits(chosen[:, None], attention, last=1, cache=cache)
    return drawn


def draw(logits: Tensor, uniform: Tensor, temperature: float, keep: Filter = WHOLE) -> Drawn:
    """Next tokens (rows,) by inversion of the cumulative distribution; greedy at temperature 0."""
    if temperature == 0:
        chosen = logits.argmax(-1)
        full = token_stats(logits, chosen)
        return Drawn(chosen, torch.zeros_like(full.logprob), full.entropy, full.logprob)
    scaled = filtered(logits.float() / temperature, keep)
    cumulative = scaled.softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]
    point = torch.minimum(uniform[:, None] * total, torch.nextafter(total, total.new_zeros(())))
    chosen = torch.searchsorted(cumulative, point, right=True).squeeze(-1)
    chosen = chosen.clamp(max=logits.shape[-1] - 1)  # NaN is past the end; its numbers tell
    full = token_stats(logits, chosen)
    logprob = full.logprob
    if keep != WHOLE:
        logprob = scaled.log_softmax(-1).gather(-1, chosen[:, None]).squeeze(-1)
    elif temperature != 1:
        logprob = token_stats(logits, chosen, temperature=temperature).logprob
    return Drawn(chosen, logprob, full.entropy, full.logprob)


def pad_left(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids (B, P) padded on the left, and the mask of what is not padding."""
    width = max(map(len, sequences))
    padded = torch.full((len(sequences), width), pad_id)
    for row, sequence in zip(padded, sequences, strict=True):
        row[width - len(sequence) :] = torch.tensor(list(sequence))
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return padded, torch.arange(width) >= width - lengths[:, None]
