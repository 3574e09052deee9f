"""AdamW with running means in 8 bits."""

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isentrope.config import OptimizerConfig, TrainConfig
from isentrope.errors import MissingExtraError
from isentrope.policy.model import LanguageModel
from isentrope.training import optimizer
from isentrope.training.optimizer import make_optimizer

Run = Callable[..., None]


def eight_bit(tiny: TrainConfig) -> TrainConfig:
    return replace(tiny, optimizer=replace(tiny.optimizer, name="adamw_8bit"))


def test_a_library_that_is_not_there(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'isentrope\[eight-bit\]'"):
        make_optimizer(model, OptimizerConfig(name="adamw_8bit"))


def test_the_table_has_every_name() -> None:
    named = OptimizerConfig.__annotations__["name"].__args__
    assert set(optimizer.OPTIMIZERS) == set(named)


@pytest.mark.extra
def test_a_constant_gradient_moves_a_weight_by_the_learning_rate_a_step(
    model: LanguageModel,
) -> None:
    pytest.importorskip("bitsandbytes")
    changed = replace(model, network=copy.deepcopy(model.network))
    eight_bit_adamw = make_optimizer(
        changed, OptimizerConfig(name="adamw_8bit", learning_rate=0.01)
    )
    before = [parameter.detach().clone() for parameter in changed.network.parameters()]
    for _ in range(3):
        for parameter in changed.network.parameters():
            parameter.grad = torch.full_like(parameter, -0.5)
        eight_bit_adamw.step()
    types = set()
    for old, new in zip(before, changed.network.parameters(), strict=True):
        assert torch.allclose(new - old, torch.tensor(0.03), rtol=0.02)
        types.add((new.numel() >= 4096, eight_bit_adamw.state[new]["state1"].dtype))
    assert types == {(True, torch.uint8), (False, torch.float32)}


@pytest.mark.extra
def test_a_resumed_run_is_the_same(tiny: TrainConfig, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = eight_bit(tiny)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(config, whole)
    run(replace(config, steps=4), parts)
    recipe = parts / "config.toml"
    recipe.write_text(recipe.read_text().replace("steps = 4\n", "steps = 6\n", 1))
    run(config, parts, resume=True)
    files = [out / "checkpoints" / "step-000006" / "model.safetensors" for out in (whole, parts)]
    assert files[0].read_bytes() == files[1].read_bytes()
