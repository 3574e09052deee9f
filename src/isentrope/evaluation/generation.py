"""Completions of a causal language model, one seed each, independent of their neighbours."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from isentrope.errors import ConfigError

__all__ = ["Completion", "Generator", "TransformersGenerator"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled response, its end token included.

    Log-probabilities and entropies are of the full vocabulary at temperature 1, in nats, whatever
    temperature was sampled at. `truncated` means that it ran into the limit before its end token.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    truncated: bool


class Generator(Protocol):
    """What evaluation needs of a sampler."""

    def encode(self, prompt: str) -> list[int]:
        """The token ids of a prompt."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
    ) -> list[Completion]:
        """One completion a prompt, drawn with its own seed; temperature 0 is greedy."""
        ...


class TransformersGenerator:
    """A batched loop over a Hugging Face model: plain, exact, for any causal model."""

    def __init__(self, model: str, *, device: str = "auto", chat: bool = True) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        options: dict[str, Any] = {}
        folder = model
        if model.endswith(".gguf"):
            folder, options = str(Path(model).parent), {"gguf_file": Path(model).name}
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            network: Any = AutoModelForCausalLM.from_pretrained(folder, **options)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the model {model!r} could not be loaded: {error}; "
                "give a hub id, a folder or a GGUF file"
            ) from error
        self.use(network.to(device).eval(), tokenizer, device, chat=chat)

    def use(self, model: Any, tokenizer: Any, device: str, *, chat: bool) -> None:
        """Takes a model and a tokenizer that are loaded."""
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self.chat = chat and tokenizer.chat_template is not None
        self.end_ids = end_ids(model.generation_config.eos_token_id, tokenizer.eos_token_id)
        # transformers 5 renamed the argument
        parameters = inspect.signature(model.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self.cache_keyword = "cache" if "cache" in parameters else "past_key_values"

    def encode(self, prompt: str) -> list[int]:
        """The token ids, within the chat template where the model has one."""
        if not self.chat:
            return list(self.tokenizer(prompt)["input_ids"])
        message = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
    ) -> list[Completion]:
        """One completion a prompt; finished rows leave the batch."""
        from transformers import DynamicCache

        ids, mask = left_padded(prompts, self.device)
        uniforms = [np.random.default_rng(seed).random(max_new_tokens) for seed in seeds]
        rows = [Row([], [], []) for _ in prompts]
        active = list(range(len(prompts)))
        cache = DynamicCache(config=self.model.config)
        for step in range(max_new_tokens):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                **{self.cache_keyword: cache},
                **self.last_only,
                use_cache=True,
            )
            draws = torch.tensor([uniforms[row][step] for row in active], dtype=torch.float64)
            chosen, logprobs, entropies = choose(output.logits[:, -1], draws, temperature)
            for row, *values in zip(
                active, chosen.tolist(), logprobs.tolist(), entropies.tolist(), strict=True
            ):
                rows[row].add(*values)
            left = [n for n, token in enumerate(chosen.tolist()) if token not in self.end_ids]
            if not left:
                break
            ids, mask = chosen[:, None].to(self.device), extended(mask)
            if len(left) < len(active):
                keep = torch.tensor(left, device=self.device)
                ids, mask = ids[keep], mask[keep]
                cache.batch_select_indices(keep)
                active = [active[n] for n in left]
        return [row.completion(self.end_ids) for row in rows]


@dataclass(frozen=True, slots=True)
class Row:
    """A completion in the making."""

    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float]

    def add(self, token: int, logprob: float, entropy: float) -> None:
        """One more token."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)

    def completion(self, ends: frozenset[int]) -> Completion:
        """The completion as it stands."""
        ended = bool(self.token_ids) and self.token_ids[-1] in ends
        return Completion(
            tuple(self.token_ids), tuple(self.logprobs), tuple(self.entropies), not ended
        )


def choose(logits: Tensor, draws: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The next token of each row by inversion of its draw in [0, 1), its log-prob and the entropy.

    In double precision, so that a draw near a step of the distribution goes the same way whatever
    batch it is in, but for the model's own rounding.
    """
    logits = logits.double().cpu()
    logprobs = logits.log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1)
    if temperature == 0:
        chosen = logits.argmax(-1)
    else:
        steps = (logits / temperature).softmax(-1).cumsum(-1)
        chosen = torch.searchsorted(steps, (draws * steps[:, -1])[:, None], right=True)[:, 0]
        chosen = chosen.clamp(max=logits.shape[-1] - 1)
    return chosen, logprobs.gather(-1, chosen[:, None])[:, 0], entropies


def left_padded(prompts: Sequence[Sequence[int]], device: str) -> tuple[Tensor, Tensor]:
    """Token ids with zeros before the shorter prompts, and the mask of what is prompt."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def extended(mask: Tensor) -> Tensor:
    """The mask with one more token in every row."""
    return torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)


def end_ids(*candidates: int | list[int] | None) -> frozenset[int]:
    """The ids of all end tokens that the model or its tokenizer name."""
    found: set[int] = set()
    for candidate in candidates:
        if candidate is not None:
            found.update([candidate] if isinstance(candidate, int) else candidate)
    return frozenset(found)
