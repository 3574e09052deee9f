"""A causal language model and its tokenizer, from a hub id, a folder, a GGUF file or the package."""

import inspect
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from isentrope.config import ModelConfig
from isentrope.errors import ConfigError, require
from isentrope.policy.builtin import builtin_path
from isentrope.policy.cache import GroupCache, grouped_attention
from isentrope.policy.memory import RowLimit
from isentrope.tasks.problem import conversation

if TYPE_CHECKING:
    from peft import PeftModel

__all__ = ["Head", "LanguageModel", "language_model", "load_model", "pick_device"]

BUILTIN = "builtin:"

disable_progress_bar()  # ours shows the run; a bar for each file that is read would break it up


@dataclass(frozen=True, slots=True)
class Head:
    """How a model turns hidden states into logits: softcap(scale x (W h + bias)), with the weights of
    its output layer."""

    softcap: float | None
    """Gemma's limit on the size of a logit."""
    scale: float | None
    """The factor of Cohere's and Granite's logits."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model, its tokenizer, and the token ids that sampling needs."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos_ids: Tensor
    pad_id: int
    cache_keyword: str
    """Name of the cache argument: `past_key_values`, renamed `cache` in transformers 5."""
    head: Head | None
    """The output layer, where it is an ordinary one; else the logits are computed as a whole."""
    compute_dtype: torch.dtype | None = None
    """Of matrix products, where they are not done in the type of the weights."""
    shares_prompts: bool = False
    """Whether sampling may hold a prompt's keys and values once for all of its responses."""
    chat: bool = False
    """Whether prompts go through the chat template."""
    system: str | None = None
    """System prompt of the chat."""
    adapters: "PeftModel | None" = None
    """The network seen with its adapters, where it has some: see `lora`."""
    sampling_rows: RowLimit = field(default_factory=RowLimit)
    """Responses at once that memory holds in sampling."""
    training_rows: RowLimit = field(default_factory=RowLimit)
    """Responses at once that memory holds in a forward and backward pass."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    def logits(
        self, tokens: Tensor, attention: Tensor, *, last: int, cache: DynamicCache | None = None
    ) -> Tensor:
        """Logits (B, last, V) after each of the last `last` tokens.

        `attention` (B, S) tells tokens from padding, those in the cache included, which is filled.
        """
        grouped = isinstance(cache, GroupCache)
        with self.precision(), grouped_attention(self.network) if grouped else nullcontext():
            return self.network(**self.inputs(tokens, attention, cache), logits_to_keep=last).logits

    def hidden(
        self, tokens: Tensor, attention: Tensor, *, last: int, cache: DynamicCache | None = None
    ) -> Tensor:
        """What the output layer `head` gets, (B, last, D), else as `logits`."""
        decoder = self.network.base_model
        with self.precision():
            states = decoder(**self.inputs(tokens, attention, cache)).last_hidden_state
        return states[:, -last:].to(self.compute_dtype or states.dtype)

    def precision(self) -> torch.autocast:
        """The context of forward passes: mixed precision (1710.03740), where it is asked for.

        What enters it once for many passes saves the conversion of the weights in each.
        """
        kind, low = self.device.type, self.compute_dtype
        return torch.autocast(kind, dtype=low, enabled=low is not None)

    def inputs(
        self, tokens: Tensor, attention: Tensor, cache: DynamicCache | None
    ) -> dict[str, Any]:
        """The arguments of the network: positions count what is no padding."""
        positions = (attention.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        given = {
            "input_ids": tokens,
            "attention_mask": attention.long(),
            "position_ids": positions,
            "use_cache": cache is not None,
            self.cache_keyword: cache,
        }
        return given | {"groups": cache} if isinstance(cache, GroupCache) else given

    def sampling_cache(self, prompt_mask: Tensor) -> DynamicCache:
        """An empty cache for prompts (groups, P) whose responses are sampled together."""
        if self.shares_prompts:
            return GroupCache(self.network.config, prompt_mask)
        return DynamicCache(config=self.network.config)

    def encode(self, text: str) -> list[int]:
        """The token ids of a prompt, in the model's chat template if it is to be used."""
        if not self.chat:
            return self.tokenizer(text)["input_ids"]
        wrapped = self.tokenizer.apply_chat_template(
            conversation(text, self.system), add_generation_prompt=True, tokenize=False
        )
        return self.tokenizer(str(wrapped), add_special_tokens=False)["input_ids"]

    def decode(self, tokens: list[int]) -> str:
        """The text of a response, without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def load_model(config: ModelConfig) -> LanguageModel:
    """The model that the configuration names, on its device, in evaluation mode."""
    device = pick_device(config.device)
    source, keywords = locate(config.path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **keywords)
        dtype = "auto" if config.dtype == "auto" else getattr(torch, config.dtype)
        network = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **keywords)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.path is {config.path!r}, which could not be loaded: {error}; give a Hugging "
            "Face id, a folder with config.json, a .gguf file, builtin:countdown or builtin:smollm2"
        ) from error
    if "gguf_file" in keywords:
        forget_quantization(network)
    torch.nn.Module.to(network, device).eval()
    if config.gradient_checkpointing:
        switch_off_dropout(network)
        recompute_activations(network)
    if config.prompt == "chat" and tokenizer.chat_template is None:
        raise ConfigError(
            f"model.prompt is 'chat', but the tokenizer of {config.path!r} has no chat template; "
            "set it to 'plain'"
        )
    low = None if config.compute_dtype == "weights" else getattr(torch, config.compute_dtype)
    model = replace(language_model(network, tokenizer), compute_dtype=low)
    return replace(model, chat=config.prompt == "chat", system=config.system)


def language_model(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> LanguageModel:
    """The model with what sampling and training need to know of it."""
    eos_ids = end_of_sequence(network, tokenizer)
    pad = tokenizer.pad_token_id
    parameters = inspect.signature(network.forward).parameters
    model = LanguageModel(
        network=network,
        tokenizer=tokenizer,
        eos_ids=torch.tensor(eos_ids, device=network.device),
        pad_id=pad if isinstance(pad, int) else eos_ids[0],
        cache_keyword="cache" if "cache" in parameters else "past_key_values",
        head=find_head(network),
    )
    return replace(model, shares_prompts=can_share_prompts(model))


@torch.no_grad()
def can_share_prompts(model: LanguageModel) -> bool:
    """Whether its logits with a GroupCache are those with an ordinary cache, on a few tokens.

    Narrow weights round each way differently, so that a limit on the scores, which our attention
    lacks, might hide in the difference: there it is looked for by name.
    """
    network = model.network
    limited = getattr(network.config.get_text_config(), "attn_logit_softcapping", None)
    if network.config._attn_implementation != "sdpa" or limited:
        return False
    try:
        ordinary, shared = (few_logits(replace(model, shares_prompts=s)) for s in (False, True))
    except (AttributeError, RuntimeError, TypeError):  # its attention is not transformers' own
        return False
    rounding = 8 * torch.finfo(network.dtype).eps * ordinary.abs().max().item()
    return torch.allclose(ordinary, shared, rtol=1e-3, atol=max(1e-3, rounding))


def few_logits(model: LanguageModel) -> Tensor:
    """Logits (5, V) of two prompts with two responses each, of which one then leaves the batch."""
    device = model.device
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]], dtype=torch.bool, device=device)
    tokens = torch.arange(3, device=device) + 4 * torch.arange(2, device=device)[:, None]
    cache = model.sampling_cache(mask)
    model.logits(tokens, mask, last=1, cache=cache)
    cache.batch_select_indices(torch.tensor([0, 0, 1, 1], device=device))
    mask = torch.cat([mask.repeat_interleave(2, 0), mask.new_ones(4, 1)], -1)
    first = model.logits(torch.arange(4, device=device)[:, None], mask, last=1, cache=cache)
    left = torch.tensor([3], device=device)
    cache.batch_select_indices(left)
    mask = torch.cat([mask[left], mask.new_ones(1, 1)], -1)
    last = model.logits(left[:, None], mask, last=1, cache=cache)
    return torch.cat([first, last])[:, 0].float()


def recompute_activations(network: PreTrainedModel) -> None:
    """Switches activation checkpointing on; older releases of
    transformers have another name for it."""
    if hasattr(network, "activation_checkpointing_enable"):
        network.activation_checkpointing_enable({"use_reentrant": False})
    else:
        network.gradient_checkpointing_enable({"use_reentrant": False})


def switch_off_dropout(network: PreTrainedModel) -> None:
    """Dropout would make the trained policy another than the sampled one."""
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif getattr(module, "attention_dropout", 0.0):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010  a field of some modules only


def forget_quantization(network: PreTrainedModel) -> None:
    """The weights of a GGUF file are read as ordinary ones; without this they cannot be saved."""
    vars(network).pop("hf_quantizer", None)
    vars(network.config).pop("quantization_config", None)


def locate(path: str) -> tuple[str, dict[str, str]]:
    """The source for `from_pretrained`, and the keyword that a GGUF file needs."""
    file = Path(path)
    if path.startswith(BUILTIN):
        file = builtin_path(path.removeprefix(BUILTIN))
    elif looks_local(path) and not file.exists():
        raise ConfigError(f"model.path is {path!r}, but there is no such file or folder")
    if file.suffix == ".gguf":
        require("gguf", "demo-lm")
        return str(file.parent), {"gguf_file": file.name}
    if (file / "adapter_config.json").is_file():
        raise ConfigError(
            f"model.path is {path!r}, which holds adapters alone; give the folder `merged` of the "
            "run's last checkpoint, or the model they belong to"
        )
    return str(file), {}


def looks_local(path: str) -> bool:
    """Whether it cannot be a Hugging Face id, which is NAME or OWNER/NAME."""
    return path.endswith(".gguf") or path.startswith((".", "/", "~")) or path.count("/") > 1


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is cuda where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"model.device is {name!r}; choose cpu, cuda or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"model.device is {name!r}, but torch sees no GPU; choose cpu or auto")
    return device


def end_of_sequence(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every token id that ends a response: some models have several."""
    generation = network.generation_config
    ids = generation.eos_token_id if generation is not None else None
    found = [*(ids if isinstance(ids, list) else [ids]), tokenizer.eos_token_id]
    ends = [i for i in dict.fromkeys(found) if isinstance(i, int)]
    if not ends:
        raise ConfigError(
            "the model names no end-of-sequence token; set eos_token_id in generation_config.json"
        )
    return ends


@torch.no_grad()
def find_head(network: PreTrainedModel) -> Head | None:
    """The output layer, if the model's own logits on a few tokens prove that it is all there is."""
    projection = network.get_output_embeddings()
    config = network.config.get_text_config()
    if not isinstance(projection, torch.nn.Linear) or network.base_model is network:
        return None
    granite = getattr(config, "logits_scaling", None)
    head = Head(
        softcap=getattr(config, "final_logit_softcapping", None),
        scale=1 / granite if granite else getattr(config, "logit_scale", None),
    )
    tokens = torch.arange(4, device=network.device).view(1, 4) % config.vocab_size
    logits = network(input_ids=tokens, use_cache=False).logits.float()
    rebuilt = projection(network.base_model(input_ids=tokens, use_cache=False).last_hidden_state)
    rebuilt = rebuilt.float() * (head.scale or 1.0)
    if head.softcap:
        rebuilt = head.softcap * (rebuilt / head.softcap).tanh()
    return head if torch.allclose(logits, rebuilt, rtol=1e-3, atol=1e-3) else None
