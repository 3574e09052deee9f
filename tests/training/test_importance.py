"""The importance cap in a step: what it changes, and what it leaves alone."""

from dataclasses import replace

import pytest
import torch

from isentrope.config import ObjectiveConfig, TrainConfig
from isentrope.policy.model import ModelConfig, load_model
from isentrope.policy.sampler import Rollout
from isentrope.tasks.countdown import Countdown
from isentrope.training.experience import Experience, collect
from isentrope.training.objective import make_objective
from isentrope.training.update import Learner


@pytest.fixture
def learner(tiny: TrainConfig) -> Learner:
    """A fresh model and one mini-batch a step; plain gradient descent shows the gradient's size."""
    model = load_model(ModelConfig())
    optimizer = torch.optim.SGD(model.network.parameters(), lr=0.1)
    settings = replace(tiny.optimizer, mini_batches=1, gradient_clip=1e6)
    config = replace(tiny, optimizer=settings)
    return Learner(config, make_objective(config.objective), model, None, optimizer)


@pytest.fixture
def experience(learner: Learner) -> Experience:
    return collect(learner.model, Countdown(seed=0), learner.config, 0).learnable(True)


def step(learner: Learner, experience: Experience, cap: float | None, gap: float) -> dict:
    """Metrics of an update on tokens that the sampler thinks exp(-gap) times as likely."""
    objective = ObjectiveConfig(importance_cap=cap)
    learner = replace(learner, config=replace(learner.config, objective=objective))
    rollout = experience.rollout
    rollout = replace(rollout, sampler_logprob=rollout.logprob - gap)
    advantage = learner.objective.credit(experience.rewards, experience.groups, rollout.mask)
    metrics, _, _ = learner.update(rollout, advantage, experience.groups, 0)
    return metrics


def test_the_mismatch_is_measured_before_the_update(
    learner: Learner, experience: Experience
) -> None:
    metrics = step(learner, experience, None, 0.5)
    assert metrics["mismatch/max"] == pytest.approx(0.5, abs=1e-3)
    assert metrics["mismatch/kl"] == pytest.approx(0.1487, abs=1e-3)  # e^0.5 - 1 - 0.5
    assert "mismatch/weight_mean" not in metrics


@pytest.mark.parametrize(
    ("cap", "gap", "weight", "cut"), [(10.0, 0.5, 1.6487, 0.0), (1.25, 0.5, 1.25, 1.0)]
)
def test_every_loss_has_its_weight(
    learner: Learner, experience: Experience, cap: float, gap: float, weight: float, cut: float
) -> None:
    start = {name: value.clone() for name, value in learner.model.network.state_dict().items()}
    plain = step(learner, experience, None, gap)
    learner.model.network.load_state_dict(start)
    weighted = step(learner, experience, cap, gap)
    assert weighted["mismatch/weight_mean"] == pytest.approx(weight, rel=1e-4)
    assert weighted["mismatch/weight_cut"] == cut
    assert weighted["grad_norm"] == pytest.approx(weight * plain["grad_norm"], rel=1e-3)


def test_ratios_start_from_the_trainer_where_there_is_a_cap(
    learner: Learner, experience: Experience
) -> None:
    rollout = experience.rollout
    wrong = replace(rollout, logprob=rollout.logprob - 1, sampler_logprob=rollout.logprob - 1)
    assert learner.rescored(wrong) is wrong  # off: the sampler's
    objective = ObjectiveConfig(importance_cap=2.0)
    capped = replace(learner, config=replace(learner.config, objective=objective))
    rescored: Rollout = capped.rescored(wrong)
    mask = rollout.mask
    assert torch.allclose(rescored.logprob[mask], rollout.logprob[mask], atol=1e-4)
    assert torch.equal(rescored.sampler_logprob, wrong.sampler_logprob)
