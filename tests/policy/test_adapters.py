"""Adapters: they alone train, resume exactly, and leave folders that other software loads."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from isentrope.config import ModelConfig, ObjectiveConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.policy.adapters import (
    add_adapters,
    load_adapters,
    merged_weights,
    quiet,
    start_policy,
)
from isentrope.policy.forward import response_logprob, response_stats
from isentrope.policy.model import LanguageModel, load_model
from isentrope.tasks.countdown import Countdown
from isentrope.training.experience import collect

Run = Callable[..., None]

LORA = ModelConfig(lora_rank=4, lora_alpha=8)


def adapted(config: ModelConfig = LORA, seed: int = 0) -> LanguageModel:
    return add_adapters(load_model(config), config, seed)


def adapters_of(model: LanguageModel) -> dict[str, Tensor]:
    return {n: p.detach() for n, p in model.network.named_parameters() if p.requires_grad}


def moved(model: LanguageModel) -> LanguageModel:
    """With adapters that do something."""
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in adapters_of(model).values():
            value += 0.05 * torch.randn(value.shape, generator=draws)
    return model


@pytest.fixture(scope="module")
def trained(tiny: TrainConfig, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lora") / "run"
    run(lora_run(tiny), out)
    return out


def lora_run(tiny: TrainConfig) -> TrainConfig:
    return replace(
        tiny,
        model=LORA,
        objective=ObjectiveConfig(loss="kl_cov", kl_fraction=0.05, reference_kl_coefficient=0.1),
        optimizer=replace(tiny.optimizer, learning_rate=3e-3),
    )


def rows(file: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    clock = ("time/", "tokens_per_s")
    return [{k: v for k, v in line.items() if not k.startswith(clock)} for line in lines]


def test_the_adapters_alone_train_and_start_at_nothing(model: LanguageModel) -> None:
    lora = adapted()
    names = adapters_of(lora)
    layers = {name.rpartition(".lora_")[0] for name in names}
    assert len(names) == 2 * len(layers) == 2 * 7 * lora.network.config.num_hidden_layers
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert lora.head is not None
    tokens = torch.arange(12).view(2, 6)
    with torch.no_grad():
        assert torch.equal(
            lora.network(input_ids=tokens).logits, model.network(input_ids=tokens).logits
        )


def test_the_seed_gives_the_adapters() -> None:
    before = torch.get_rng_state()
    one, same, other = (adapters_of(adapted(seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_what_is_added_is_alpha_over_rank_times_b_a() -> None:
    plain, lora = load_model(LORA), moved(adapted())
    name = "model.layers.0.self_attn.q_proj"
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    parts = adapters_of(lora)
    a, b = (parts[f"{name}.lora_{letter}.default.weight"] for letter in "AB")
    with torch.no_grad():
        added = lora.network.get_submodule(name)(x) - plain.network.get_submodule(name)(x)
    assert torch.allclose(added, 8 / 4 * x @ a.T @ b.T, atol=1e-5)


def test_without_its_adapters_a_model_is_the_start_policy(
    model: LanguageModel, tiny: TrainConfig
) -> None:
    rollout = collect(model, Countdown(seed=0), tiny, 0).rollout
    lora = moved(adapted())
    expected = response_logprob(model, rollout, 1.0, 100)
    loss = response_stats(lora, rollout, 1.0).logprob.sum()
    with start_policy(lora) as start:
        found = response_logprob(start, rollout, 1.0, 100)
    loss.backward()  # through the adapters, though they were off in between
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(response_logprob(lora, rollout, 1.0, 100), expected, atol=1e-2)
    gradients = {n: p.grad for n, p in lora.network.named_parameters() if p.grad is not None}
    assert gradients.keys() == adapters_of(lora).keys()
    with start_policy(model) as start:
        assert start is model


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings:UserWarning")
@pytest.mark.parametrize("layer", ["lm_head", "embed_tokens"])
def test_adapters_of_the_tied_ends_are_refused(layer: str) -> None:
    with pytest.raises(ConfigError, match="leave them out"):
        adapted(replace(LORA, lora_targets=f"q_proj, {layer}"))


def test_recomputed_activations_give_the_same_gradient(
    model: LanguageModel, tiny: TrainConfig
) -> None:
    rollout = collect(model, Countdown(seed=0), tiny, 0).rollout
    gradients = []
    for recompute in (False, True):
        lora = moved(adapted(replace(LORA, gradient_checkpointing=recompute)))
        lora.network.train(recompute)
        loss = response_stats(lora, rollout, 1.0).logprob.sum()
        with start_policy(lora) as start:
            response_stats(start, rollout, 1.0)
        loss.backward()
        gradients.append([p.grad for p in lora.network.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_run_trains_and_a_resumed_one_is_the_same(
    trained: Path, tiny: TrainConfig, run: Run, tmp_path: Path
) -> None:
    metrics = rows(trained / "metrics.jsonl")
    assert metrics[0]["kl/reference"] == pytest.approx(0, abs=0.02)
    assert metrics[-1]["kl/reference"] > metrics[0]["kl/reference"]
    # A run of four steps has the checkpoint of step 4; six steps go on from there.
    out = tmp_path / "run"
    run(replace(lora_run(tiny), steps=4), out)
    recipe = out / "config.toml"
    recipe.write_text(recipe.read_text().replace("steps = 4\n", "steps = 6\n", 1))
    run(lora_run(tiny), out, resume=True)
    assert rows(out / "metrics.jsonl") == metrics
    final = [folder / "checkpoints" / "step-000006" for folder in (trained, out)]
    weights = [(folder / "adapter_model.safetensors").read_bytes() for folder in final]
    assert weights[0] == weights[1]


def test_a_checkpoint_loads_elsewhere(trained: Path) -> None:
    last, before = (trained / "checkpoints" / f"step-{step:06d}" for step in (6, 4))
    assert not (before / "merged").exists()
    assert not (last / "model.safetensors").exists()
    ours = adapted()
    load_adapters(ours, last)
    merged = AutoModelForCausalLM.from_pretrained(last / "merged")
    base = AutoModelForCausalLM.from_pretrained(json_of(last)["base_model_name_or_path"])
    with pytest.raises(ConfigError, match="folder `merged`"):
        load_model(ModelConfig(path=str(last)))
    tokens = torch.arange(12).view(2, 6)
    with torch.no_grad():
        expected = ours.network(input_ids=tokens).logits
        start = base(input_ids=tokens).logits
        assert not torch.allclose(start, expected, atol=1e-3)
        for other in (
            merged,
            adapted_elsewhere(base, last),
            load_model(ModelConfig(path=str(last / "merged"))).network,
        ):
            assert torch.allclose(other(input_ids=tokens).logits, expected, atol=1e-5)
    for name, value in merged_weights(ours).items():
        assert torch.allclose(merged.state_dict()[name], value, atol=1e-6)
    assert not any(isinstance(module, peft.tuners.lora.Linear) for module in merged.modules())


def adapted_elsewhere(base: PreTrainedModel, folder: Path) -> torch.nn.Module:
    with quiet():
        return peft.PeftModel.from_pretrained(base, folder).get_base_model()


def json_of(checkpoint: Path) -> dict[str, str]:
    return json.loads((checkpoint / "adapter_config.json").read_text())


def test_adapters_of_a_bfloat16_model_keep_full_precision(tmp_path: Path) -> None:
    config = replace(LORA, dtype="bfloat16")
    one, other = moved(adapted(config)), adapted(config, seed=1)
    assert {p.dtype for p in adapters_of(one).values()} == {torch.float32}
    assert one.network.dtype == torch.bfloat16
    assert one.adapters is not None
    one.adapters.save_pretrained(str(tmp_path))
    load_adapters(other, tmp_path)
    for name, value in adapters_of(one).items():
        assert torch.equal(adapters_of(other)[name], value)


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(ConfigError, match="lora_rank is 0"):
        ModelConfig(lora_targets="q_proj")
    with pytest.raises(ConfigError, match=r"k_prj.*all-linear"):
        adapted(replace(LORA, lora_targets="k_prj"))
