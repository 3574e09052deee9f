"""Small random models of the families that people train: sampling and training must agree."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from isentrope.objective.streams import stream
from isentrope.policy.builtin import builtin_path
from isentrope.policy.forward import response_stats
from isentrope.policy.model import LanguageModel, language_model
from isentrope.policy.sampler import Rollout, sample

SMALL = {
    "vocab_size": 111,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": [1, 5],
    "bos_token_id": None,
}

FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 8, "final_logit_softcapping": 2.0},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
    "deepseek_v3": {
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
    },
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(builtin_path("countdown"))


@pytest.fixture(params=sorted(FAMILIES))
def model(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerBase) -> LanguageModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(request.param, **{**SMALL, **FAMILIES[request.param]})
    network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return language_model(network.eval(), tokenizer)


def test_sampling_and_training_agree(model: LanguageModel) -> None:
    prompts = [[7, 8, 9, 10, 11, 12, 13], [20, 21, 22], [30, 31, 32, 33, 34]]
    rollout = sample(
        model,
        prompts,
        samples=6,
        temperature=0.8,
        max_new_tokens=14,
        generator=stream(0, "architectures"),
    )
    with torch.no_grad():
        stats = response_stats(model, rollout, 0.8)
        plain = response_stats(replace(model, head=None), rollout, 0.8)
    mask = rollout.mask
    assert int(mask.sum()) > 50
    assert not mask.all()  # rows left the batch before the others ended
    assert model.head is not None
    # Gemma 2 limits the scores; DeepSeek-V3 attends to more than its cache returns.
    kind = model.network.config.model_type
    assert model.shares_prompts == (kind not in ("gemma2", "deepseek_v3"))
    for other in (rollout.logprob, plain.logprob):
        assert torch.allclose(stats.logprob[mask], other[mask], atol=2e-4)
    assert torch.allclose(stats.entropy[mask], plain.entropy[mask], atol=2e-4)


def test_sampling_and_training_agree_in_mixed_precision(model: LanguageModel) -> None:
    """bfloat16 rounds a logit, here below 1, by less than 1/256."""
    model = replace(model, compute_dtype=torch.bfloat16)
    prompts = [[7, 8, 9, 10, 11, 12, 13], [20, 21, 22], [30, 31, 32, 33, 34]]
    draws = stream(0, "mixed precision")
    rollout = sample(model, prompts, samples=6, temperature=1.0, max_new_tokens=14, generator=draws)
    stats = response_stats(model, rollout, 1.0)
    assert stats.logprob.dtype == torch.float32
    difference = (stats.logprob.detach() - rollout.logprob)[rollout.mask].abs()
    assert difference.max() < 0.03
    stats.logprob.sum().backward()
    gradients = [p.grad for p in model.network.parameters() if p.grad is not None]
    assert {g.dtype for g in gradients} == {torch.float32}
    assert all(g.isfinite().all() for g in gradients)


def test_a_prompt_read_once_has_the_gradient_of_one_read_by_every_response(
    model: LanguageModel,
) -> None:
    rollout = sample(
        model,
        [[7, 8, 9, 10, 11, 12, 13], [20, 21, 22], [7, 8]],
        samples=3,
        temperature=1.0,
        max_new_tokens=9,
        generator=stream(0, "gradients"),
    )
    weight = torch.rand(rollout.tokens.shape, generator=stream(0, "weights")) * rollout.mask
    once = gradient(model, rollout, weight)
    model.network.train()  # as for the recomputation of activations: every row is read whole
    every = gradient(model, rollout, weight)
    assert torch.allclose(once, every, atol=1e-5 * float(every.abs().max()))


def gradient(model: LanguageModel, rollout: Rollout, weight: torch.Tensor) -> torch.Tensor:
    stats = response_stats(model, rollout, 1.0)
    loss = (weight * stats.logprob).sum() + (weight * stats.entropy).sum()
    parameters = [p for p in model.network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([g.flatten() for g in gradients if g is not None])


def test_an_unusual_head_is_found_out(tokenizer: PreTrainedTokenizerBase) -> None:
    config = AutoConfig.for_model("llama", **SMALL)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert language_model(network.eval(), tokenizer).head is not None
    network.register_forward_hook(lambda module, inputs, output: double(output))
    assert language_model(network, tokenizer).head is None


def double(output: CausalLMOutputWithPast) -> CausalLMOutputWithPast:
    assert output.logits is not None
    output.logits = 2 * output.logits
    return output
