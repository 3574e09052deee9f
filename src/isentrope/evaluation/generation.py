"""Completions of a causal language model, one seed each, independent of their neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

import numpy as np
import torch

from isentrope.config import ModelConfig
from isentrope.objective.masking import response_mask
from isentrope.policy.model import LanguageModel, load_model, pick_device
from isentrope.policy.sampler import pad_left, sample_rows

__all__ = ["Completion", "Generator", "LocalGenerator", "load_generator"]


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


@dataclass(frozen=True, slots=True)
class LocalGenerator:
    """The group sampler of the local engine: samples of one problem share its prompt."""

    model: LanguageModel

    def encode(self, prompt: str) -> list[int]:
        """The token ids, within the chat template where it is to be used."""
        return self.model.encode(prompt)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text without special tokens."""
        return self.model.decode(list(token_ids))

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
    ) -> list[Completion]:
        """One completion a prompt; a prompt that follows itself is read once."""
        runs = [list(run) for _, run in groupby(range(len(prompts)), key=lambda i: prompts[i])]
        padded, mask = pad_left([prompts[run[0]] for run in runs], self.model.pad_id)
        owner = torch.tensor([number for number, run in enumerate(runs) for _ in run])
        draws = [np.random.default_rng(s).random(max_new_tokens, dtype=np.float32) for s in seeds]
        drawn = sample_rows(
            self.model, padded, mask, owner, torch.from_numpy(np.stack(draws)), temperature
        )
        ends = self.model.eos_ids.cpu()
        kept = response_mask(drawn.tokens, ends)
        return [
            Completion(
                *(
                    tuple(values[row][kept[row]].tolist())
                    for values in (drawn.tokens, drawn.full_logprob, drawn.entropy)
                ),
                truncated=not torch.isin(drawn.tokens[row], ends).any(),
            )
            for row in range(len(prompts))
        ]


def load_generator(path: str, *, device: str = "auto", chat: bool = True) -> LocalGenerator:
    """The generator of a model: a hub id, a folder, a GGUF file or builtin:NAME.

    Its chat template is used where it has one, unless `chat` is off. On a GPU the weights keep
    their type; a CPU computes in float32, which is faster there than any shorter type.
    """
    found = pick_device(device)
    dtype = "float32" if found.type == "cpu" else "auto"
    model = load_model(ModelConfig(path=path, dtype=dtype, device=device))
    return LocalGenerator(replace(model, chat=chat and model.tokenizer.chat_template is not None))
