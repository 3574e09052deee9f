"""Sampling with vLLM, in the same process: its engine gets the trained weights after each update.

vLLM gives the tokens and their log-probabilities at the sampling temperature. The entropy over the
whole vocabulary it cannot give: one forward pass of the trained model does, and with it the
trainer's own log-probabilities, from which the ratios of the loss start.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from isentrope.config import TrainConfig
from isentrope.errors import ConfigError, require
from isentrope.policy.adapters import merged_weights
from isentrope.policy.filtering import WHOLE, Filter
from isentrope.policy.forward import response_numbers
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import OnPart, Rollout, ignored, pad_left

__all__ = ["VllmSampler", "import_vllm", "start_vllm"]

SEEDS = 2**31 - 1
"""Seeds of requests are below this."""


ON_CPU = {"hf_overrides": {"tie_word_embeddings": False}, "enable_chunked_prefill": False}
"""What vLLM's CPU back end (0.32) needs: it packs the output layer, and an update would miss it
where it is tied; and a request with a seed fails when its prompt is read in two parts."""


@dataclass(frozen=True, slots=True)
class VllmSampler:
    """A running engine beside the model that is trained."""

    model: LanguageModel
    engine: Any
    """vllm.LLM, from a package that need not be installed."""
    size: int
    """Responses in one forward pass of the trained model."""

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

        Every response has a seed of its own from the generator. Entropy takes a second forward
        pass where the temperature is not 1.
        """
        self.check_length(prompts, max_new_tokens)
        repeated = [list(prompt) for prompt in prompts for _ in range(samples)]
        seeds = torch.randint(SEEDS, (len(repeated),), generator=generator).tolist()
        options = {
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            "top_p": keep.top_p,
            "top_k": keep.top_k,
            "min_p": keep.min_p,
            "logprobs": 0,  # of the sampled token only
            "ignore_eos": True,  # the end is ours to say
            "stop_token_ids": self.model.eos_ids.tolist(),
            "detokenize": False,
        }
        make = import_vllm().SamplingParams
        outputs = self.engine.generate(
            [{"prompt_token_ids": prompt} for prompt in repeated],
            [make(seed=seed, **options) for seed in seeds],
            use_tqdm=False,
        )
        rollout = self.rollout(repeated, [output.outputs[0] for output in outputs])
        on_part(
            rollout, range(len(prompts))
        )  # its log-probs and entropies are of no interest to a verifier
        logprob, entropy = self.numbers(rollout, temperature)
        if temperature != 1:
            _, entropy = self.numbers(rollout, 1.0)
        return replace(rollout, logprob=logprob, entropy=entropy)

    def numbers(self, rollout: Rollout, temperature: float) -> tuple[Tensor, Tensor]:
        """The trainer's log-probs and entropies, as many rows at a time as memory holds."""
        return self.model.training_rows.fit(
            lambda size: response_numbers(self.model, rollout, temperature, size),
            min(self.size, len(rollout.tokens)),
        )

    def check_length(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        """Raises a ConfigError where a response would be cut by the engine's own limit."""
        limit = self.engine.model_config.max_model_len
        longest = max(map(len, prompts))
        if longest + max_new_tokens > limit:
            raise ConfigError(
                f"a prompt has {longest} tokens and rollout.max_new_tokens is {max_new_tokens}, "
                f"together more than the {limit} tokens of vLLM; lower max_new_tokens, or raise "
                "vllm.max_model_len where the model allows it"
            )

    def rollout(self, prompts: list[list[int]], answers: list[Any]) -> Rollout:
        """vLLM's answers, padded; log-probs and entropy of the trainer are still missing."""
        width = max(len(answer.token_ids) for answer in answers)
        tokens = torch.full((len(answers), width), self.model.pad_id)
        sampled = torch.zeros(len(answers), width)
        for row, answer in enumerate(answers):
            ids = list(answer.token_ids)
            tokens[row, : len(ids)] = torch.tensor(ids)
            chosen = [
                entry[token].logprob for entry, token in zip(answer.logprobs, ids, strict=True)
            ]
            sampled[row, : len(ids)] = torch.tensor(chosen)
        lengths = torch.tensor([len(answer.token_ids) for answer in answers])
        padded, prompt_mask = pad_left(prompts, self.model.pad_id)
        mask = torch.arange(width) < lengths[:, None]
        ended = torch.isin(tokens, self.model.eos_ids.cpu()) & mask
        return Rollout(
            prompts=padded,
            prompt_mask=prompt_mask,
            tokens=tokens,
            mask=mask,
            logprob=sampled,
            sampler_logprob=sampled,
            entropy=torch.zeros(len(answers), width),
            truncated=~ended.any(-1),
        )

    def refresh(self) -> None:
        """Gives the engine the trained weights, and drops what it has cached of the old ones."""
        weights = {"weights_iterator": checkpoint_tensors(self.model)}
        self.engine.collective_rpc("reload_weights", kwargs=weights)
        self.engine.reset_prefix_cache()


def import_vllm() -> Any:
    """The package, set to run in this process, or a MissingExtraError."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    return require("vllm", "vllm")


def start_vllm(config: TrainConfig, model: LanguageModel) -> VllmSampler:
    """An engine for the model, with its weights."""
    vllm, settings = import_vllm(), config.vllm
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(architecture(model)), encoding="utf-8")
        try:
            engine = vllm.LLM(
                folder,
                load_format="dummy",  # the weights come from the trained model
                skip_tokenizer_init=True,
                dtype=str(model.compute_dtype or model.network.dtype).removeprefix("torch."),
                seed=config.seed,
                max_model_len=settings.max_model_len,
                max_num_seqs=config.rollout.rows,
                gpu_memory_utilization=settings.gpu_memory_utilization,
                enforce_eager=settings.enforce_eager,
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",  # after the temperature
                **(ON_CPU if model.device.type == "cpu" else {}),
            )
        except ValueError as error:
            raise ConfigError(
                f"vLLM cannot run {config.model.path!r} with the settings in [vllm]: {error}"
            ) from error
    sampler = VllmSampler(model, engine, config.optimizer.micro_batch_size)
    sampler.refresh()
    return sampler


def architecture(model: LanguageModel) -> dict[str, object]:
    """The model's config.json; its weights are plain, whatever file they were read from."""
    table = json.loads(model.network.config.to_json_string(use_diff=False))
    table.pop("quantization_config", None)
    return {**table, "architectures": [type(model.network).__name__]}


@torch.no_grad()
def checkpoint_tensors(model: LanguageModel) -> Iterator[tuple[str, Tensor]]:
    """The weights by the names that they have in a checkpoint."""
    yield from revert_weight_conversion(model.network, merged_weights(model)).items()
