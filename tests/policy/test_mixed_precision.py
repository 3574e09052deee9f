"""`model.compute_dtype`: products in bfloat16, weights and their updates in float32."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isentrope.config import ModelConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_stats
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.sampler import Rollout, sample

MIXED = ModelConfig(path="builtin:countdown", compute_dtype="bfloat16")


@pytest.fixture(scope="module")
def mixed() -> LanguageModel:
    return load_model(MIXED)


@pytest.fixture(scope="module")
def rollout(mixed: LanguageModel) -> Rollout:
    prompts = [mixed.encode(text) for text in ("3 5 7 9=22\n", "2 4 6=12\n")]
    draws = stream(0, "mixed")
    return sample(
        mixed, prompts, samples=8, temperature=1.0, max_new_tokens=12, generator=draws, rows=8
    )


def gradient(model: LanguageModel, rollout: Rollout) -> torch.Tensor:
    stats = response_stats(model, rollout, 1.0)
    parameters = list(model.network.parameters())
    gradients = torch.autograd.grad((stats.logprob * rollout.mask).sum(), parameters)
    assert {g.dtype for g in gradients} == {torch.float32}
    return torch.cat([g.flatten() for g in gradients])


def test_products_are_narrow_and_weights_wide(
    mixed: LanguageModel, model: LanguageModel, rollout: Rollout
) -> None:
    assert {p.dtype for p in mixed.network.parameters()} == {torch.float32}
    with torch.no_grad():
        narrow, wide = (response_stats(m, rollout, 1.0).logprob for m in (mixed, model))
        hidden = mixed.hidden(rollout.prompts, rollout.prompt_mask, last=1)
    difference = (narrow - wide)[rollout.mask].abs()
    # bfloat16 rounds to 1 part in 256, and a logit here is below 20.
    assert 1e-4 < difference.max() < 0.3
    assert difference.mean() < 0.03
    assert hidden.dtype == torch.bfloat16
    assert narrow.dtype == torch.float32


def test_sampler_and_trainer_agree(mixed: LanguageModel, rollout: Rollout) -> None:
    with torch.no_grad():
        stats = response_stats(mixed, rollout, 1.0)
    mask = rollout.mask
    assert (stats.logprob - rollout.logprob)[mask].abs().max() < 0.3
    assert (stats.entropy - rollout.entropy)[mask].abs().mean() < 0.03


def test_the_gradient_points_where_that_of_wide_products_does(
    mixed: LanguageModel, model: LanguageModel, rollout: Rollout
) -> None:
    one, other = gradient(mixed, rollout), gradient(model, rollout)
    assert torch.cosine_similarity(one, other, 0) > 0.99


def test_a_small_update_is_not_lost(
    tiny: TrainConfig, run: Callable[..., None], tmp_path: Path, model: LanguageModel
) -> None:
    """At the paper's learning rate, which moves no weight in bfloat16: AdamW's first step is of
    the size of the learning rate."""
    config = replace(
        tiny,
        steps=1,
        model=MIXED,
        optimizer=replace(tiny.optimizer, mini_batches=1, learning_rate=5e-7, weight_decay=0.0),
    )
    run(config, tmp_path / "run")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    trained = load_model(ModelConfig(path=str(checkpoint)))
    pairs = zip(trained.network.parameters(), model.network.parameters(), strict=True)
    change = torch.cat([(new - old).abs().flatten() for new, old in pairs])
    assert 4e-7 < change.max() < 6e-7
    assert (change > 2e-7).float().mean() > 0.9


def test_narrow_products_over_narrow_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="compute_dtype is 'bfloat16' and dtype 'bfloat16'"):
        ModelConfig(dtype="bfloat16", compute_dtype="bfloat16")
