"""Low-rank adapters (LoRA, arXiv 2106.09685): the model's own weights stay, W + (alpha / r) B A learns.

The adapters are in full precision whatever the model is, and B starts at 0: the policy starts as
the model. Without its adapters the network is the start policy, so that a reference KL needs no
second copy. Needs peft.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from isentrope.config import ModelConfig
from isentrope.errors import ConfigError, require
from isentrope.objective.streams import stream
from isentrope.policy.model import LanguageModel, load_model

__all__ = ["add_adapters", "load_adapters", "merged_weights", "save_merged", "start_policy"]

WEIGHTS = "adapter_model.safetensors"


def add_adapters(model: LanguageModel, config: ModelConfig, seed: int) -> LanguageModel:
    """The model with new adapters in its network; they alone have a gradient."""
    peft = require("peft", "lora")
    names = config.lora_targets
    settings = peft.LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=names if names == "all-linear" else names.replace(" ", "").split(","),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "lora").initial_seed())
        try:
            with quiet():
                adapters = peft.get_peft_model(model.network, settings)
        except ValueError as error:
            raise ConfigError(
                f"model.lora_targets is {names!r}: {error}; give 'all-linear', or names of linear "
                "layers such as 'q_proj,v_proj'"
            ) from error
    for layer in (model.network.get_input_embeddings(), model.network.get_output_embeddings()):
        if isinstance(layer, peft.tuners.tuners_utils.BaseTunerLayer):
            raise ConfigError(
                f"model.lora_targets is {names!r}, with embeddings or the output layer; these stay "
                "as they are: leave them out"
            )
    return replace(model, adapters=adapters)


def load_adapters(model: LanguageModel, checkpoint: Path) -> None:
    """Sets the adapters' weights to those in a checkpoint."""
    peft = require("peft", "lora")
    state = load_file(checkpoint / WEIGHTS, device=str(model.device))
    left = peft.set_peft_model_state_dict(model.adapters, state)
    assert not left.unexpected_keys, left.unexpected_keys


@contextmanager
def start_policy(reference: LanguageModel) -> Iterator[LanguageModel]:
    """The start policy, without gradient: the reference, its adapters off where it has some."""
    with torch.no_grad():
        if reference.adapters is None:
            yield reference
        else:
            with reference.adapters.disable_adapter():
                yield reference


def save_merged(config: ModelConfig, checkpoint: Path) -> None:
    """Writes the folder `merged` into a checkpoint: the same policy as a model without adapters."""
    peft = require("peft", "lora")
    start = load_model(replace(config, device="cpu"))
    with quiet():
        merged = peft.PeftModel.from_pretrained(start.network, checkpoint).merge_and_unload()
    merged.save_pretrained(checkpoint / "merged")
    start.tokenizer.save_pretrained(checkpoint / "merged")


@torch.no_grad()
def merged_weights(model: LanguageModel) -> dict[str, Tensor]:
    """The weights of the same policy as a network without adapters."""
    state = model.network.state_dict()
    if model.adapters is None:
        return state
    from peft.tuners.lora import Linear

    merged = {}
    for name, value in state.items():
        layer, inside, rest = name.partition(".base_layer.")
        if inside and rest == "weight":
            module = model.network.get_submodule(layer)
            assert isinstance(module, Linear)
            value = (value + module.get_delta_weight("default")).to(value.dtype)
        if ".lora_" not in name:
            merged[f"{layer}.{rest}" if inside else name] = value
    return merged


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warning that peft uses a name which transformers has renamed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield
