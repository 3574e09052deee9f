"""What may sample: the group sampler of this package, or another engine behind the same protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from isentrope.config import TrainConfig
from isentrope.policy.filtering import WHOLE, Filter
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import OnPart, Rollout, ignored, sample

__all__ = ["LocalSampler", "Sampler", "check_sampler", "make_sampler"]


class Sampler(Protocol):
    """What a run needs of a sampler."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        samples: int,
        temperature: float,
        max_new_tokens: int,
        generator: torch.Generator,
        keep: Filter = WHOLE,
        on_part: OnPart = ignored,
    ) -> Rollout:
        """`samples` responses to each prompt, the responses of one prompt side by side.

        `on_part` may be told of parts of them as they are done, with the numbers of their prompts.
        """
        ...

    def refresh(self) -> None:
        """Takes the weights of the trained model as they are; to be called after each update."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSampler:
    """Samples from the trained model itself, at most `rows` responses at once."""

    model: LanguageModel
    rows: int

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        samples: int,
        temperature: float,
        max_new_tokens: int,
        generator: torch.Generator,
        keep: Filter = WHOLE,
        on_part: OnPart = ignored,
    ) -> Rollout:
        """`samples` responses to each prompt, the responses of one prompt side by side."""
        return sample(
            self.model,
            prompts,
            samples=samples,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            generator=generator,
            rows=self.rows,
            keep=keep,
            on_part=on_part,
        )

    def refresh(self) -> None:
        """The weights are the trained ones."""


def check_sampler(config: TrainConfig) -> None:
    """Raises a MissingExtraError where the chosen sampler is not installed."""
    if config.rollout.sampler == "vllm":
        from isentrope.policy.vllm_sampler import import_vllm

        import_vllm()


def make_sampler(config: TrainConfig, model: LanguageModel) -> Sampler:
    """The sampler that the configuration names, with the weights of the model."""
    if config.rollout.sampler == "vllm":
        from isentrope.policy.vllm_sampler import start_vllm

        return start_vllm(config, model)
    return LocalSampler(model, config.rollout.rows)
