"""Numbers of unusual rollouts, and steps that must not be made."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from isentrope.cli import main
from isentrope.commands.display import notes
from isentrope.config import ModelConfig, ObjectiveConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_logits
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.sampler import sample
from isentrope.tasks.countdown import Countdown
from isentrope.training import evaluate as evaluation
from isentrope.training import update
from isentrope.training.experience import Experience, collect
from isentrope.training.optimizer import clipped_step
from isentrope.training.prime import ImplicitRewardModel, make_reward_model
from isentrope.training.probe import EntropyProbe
from isentrope.training.update import norm_metrics

NAN = math.nan

KINDS: tuple[Literal["abs", "k1"], ...] = ("abs", "k1")


@pytest.mark.parametrize(
    ("rewards", "right", "wrong"),
    [
        ([1.0, NAN, 1.0, NAN], 1.0, 0.0),
        ([0.0, NAN, 0.0, 0.0], 0.0, 1.0),
        ([NAN, NAN, NAN, NAN], 0.0, 0.0),
        ([1.0, NAN, 0.0, NAN], 0.0, 0.0),
    ],
)
def test_unjudged_responses_are_neither_right_nor_wrong(
    model: LanguageModel, tiny: TrainConfig, rewards: list[float], right: float, wrong: float
) -> None:
    four = collect(model, Countdown(seed=0), tiny, 0).first_groups(1)
    metrics = Experience(four.rollout, torch.tensor(rewards), four.groups, {}).metrics()
    assert (metrics["groups/all_right"], metrics["groups/all_wrong"]) == (right, wrong)


def test_an_unjudged_problem_is_not_a_failed_one(
    model: LanguageModel, tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 problems x 4 samples the first is unjudged; the second has 1 of 2 right, the others none."""
    rewards = torch.zeros(8, 4)
    rewards[0], rewards[1] = NAN, torch.tensor([1.0, 0.0, NAN, NAN])
    monkeypatch.setattr(evaluation, "score", lambda *_: rewards.flatten())
    row = evaluation.evaluate(model, Countdown(seed=0, num_test=8), tiny, 0)
    assert row["reward/pass"] == pytest.approx(1 / 7)
    assert row["reward/avg"] == pytest.approx(0.5 / 7)
    monkeypatch.setattr(evaluation, "score", lambda *_: torch.full((32,), NAN))
    assert math.isnan(float(evaluation.evaluate(model, Countdown(seed=0), tiny, 0)["reward/pass"]))


def test_a_gradient_that_is_not_finite_moves_no_weight() -> None:
    layer = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[1.0, torch.inf]])
    assert not math.isfinite(clipped_step(layer, optimizer, 1.0))
    assert torch.equal(layer.weight, before)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clipped_step(layer, optimizer, 1.0) == 5.0
    assert not torch.equal(layer.weight, before)
    assert norm_metrics([1.0, NAN, 3.0]) == {"grad_norm": 2.0, "updates/skipped": 1}
    assert norm_metrics([1.0, 3.0]) == {"grad_norm": 2.0}


def test_a_long_first_response_is_probed_as_far_as_it_may(model: LanguageModel) -> None:
    rollout = sample(
        model,
        [model.encode(Countdown(seed=0).train(i).prompt) for i in range(3)],
        samples=2,
        temperature=1.0,
        max_new_tokens=16,
        generator=stream(0, "probe"),
    )
    probe = EntropyProbe(model, rollout, 2, 5)
    assert len(probe.logits) == 5
    whole = response_logits(model, rollout)[0, :5]
    assert torch.allclose(probe.logits, whole, atol=1e-4)
    assert EntropyProbe(model, rollout, 2, 0).compare() == {}


def test_narrow_weights_share_prompts_too() -> None:
    narrow = load_model(ModelConfig(dtype="bfloat16"))
    assert narrow.network.dtype == torch.bfloat16
    assert narrow.shares_prompts


def test_the_reward_model_recomputes_activations_too(
    tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the gradient that it has without."""
    gradients, modes = [], []
    for recompute in (False, True):
        config = replace(
            tiny,
            model=replace(tiny.model, gradient_checkpointing=recompute),
            objective=ObjectiveConfig(advantage="prime"),
        )
        reward_model = make_reward_model(config)
        network = reward_model.model.network
        rollout = collect(reward_model.model, Countdown(seed=0), config, 0).rollout
        network.model.layers[0].register_forward_hook(lambda m, *_: modes.append(m.training))
        modes.clear()
        outcome = torch.arange(len(rollout.tokens)) % 2
        total = ImplicitRewardModel.add_up(
            reward_model, rollout, torch.zeros(rollout.mask.shape), outcome.float(), 16
        )
        assert set(modes) == {recompute}
        assert not network.training
        assert total > 0
        gradients.append(
            torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        )
    assert torch.allclose(*gradients, atol=1e-5 * float(gradients[0].abs().max()))


def test_a_reward_model_in_bfloat16_is_noted(tiny: TrainConfig) -> None:
    model = ModelConfig(dtype="bfloat16", lora_rank=4)
    prime = replace(tiny, model=model, objective=ObjectiveConfig(advantage="prime"))
    assert any("loses every update" in note for note in notes(prime))
    assert not any("loses every update" in note for note in notes(replace(tiny, model=model)))


def test_the_penalty_of_k1_acts_on_policy(tiny: TrainConfig) -> None:
    one = replace(tiny, optimizer=replace(tiny.optimizer, mini_batches=1))
    idle, acting = (
        replace(one, objective=ObjectiveConfig(loss="kl_cov", kl_estimator=name)) for name in KINDS
    )
    assert any("does nothing" in note for note in notes(idle))
    assert not any("does nothing" in note for note in notes(acting))


def test_narrow_products_beside_adapters_are_refused() -> None:
    with pytest.raises(ConfigError, match="adapters are float32: set dtype to 'bfloat16'"):
        ModelConfig(lora_rank=4, compute_dtype="bfloat16")


@pytest.mark.parametrize("every", [1, 4])
def test_a_policy_that_is_not_finite_ends_the_run_and_is_not_saved(
    every: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third update makes it NaN; with a checkpoint in each step the first two are there."""
    updates: list[int] = []

    def step(network: torch.nn.Module, *_: object) -> float:
        updates.append(1)
        if len(updates) == 3:
            torch.nn.init.constant_(next(network.parameters()), NAN)
        return 1.0

    monkeypatch.setattr(update, "clipped_step", step)
    small = ["--steps", "8", "--rollout.prompts", "8", "--evaluation.problems", "8"]
    small += ["--optimizer.mini-batches", "1", "--evaluation.every", "8"]
    out = ["--checkpoint.every", str(every), "--out", str(tmp_path / "run")]
    assert main(["train", "countdown", *small, *out]) == 2
    assert "is no longer finite after step 3: training diverged" in capsys.readouterr().err
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert saved == (["step-000001", "step-000002"] if every == 1 else [])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective.entropy-coefficient", "nan"], "entropy_coefficient is nan; it must be"),
        (["--optimizer.learning-rate", "inf"], "learning_rate is inf; it must be"),
        (["--optimizer.beta1", "1"], "beta1 is 1.0; it must be below 1"),
        (
            ["--objective.covariance-low", "5", "--objective.covariance-high", "1"],
            "covariance_low is 5.0 and covariance_high 1.0; the lower bound is above the upper",
        ),
        (["--prime.accuracy-low", "0.9"], "accuracy_low is 0.9 and accuracy_high 0.8"),
        (["--task.name", "countdwn"], "there is no task 'countdwn'; the tasks are"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        try:
            code = main(["train", "countdown", *out, *flags])
        except SystemExit as stop:
            code = stop.code
    printed = capsys.readouterr()
    assert code == 2
    assert message in " ".join((printed.err + printed.out).replace("│", " ").split())
    assert not (tmp_path / "run").exists()


def test_a_limit_may_be_infinite() -> None:
    assert ObjectiveConfig(clip_high=math.inf).clip_high == math.inf
    TrainConfig(objective=ObjectiveConfig(clip_high=math.inf))
