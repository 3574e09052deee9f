"""Signs, bounds and seeds of a step: each value is known before, and another sign would change it."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isentrope.config import ObjectiveConfig, TrainConfig
from isentrope.control.combination import make_controller
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_logprob, response_stats
from isentrope.policy.model import LanguageModel
from isentrope.tasks.countdown import Countdown
from isentrope.training import trainer, update
from isentrope.training.credit import credit
from isentrope.training.evaluate import evaluate
from isentrope.training.experience import Experience, collect
from isentrope.training.objective import Objective, make_objective
from isentrope.training.optimizer import clipped_step
from isentrope.training.probe import EntropyProbe
from isentrope.training.progress import Progress
from isentrope.training.update import Learner


@pytest.fixture(scope="module")
def experience(model: LanguageModel, tiny: TrainConfig) -> Experience:
    """Responses of unequal lengths: row i is cut i % 4 tokens early."""
    whole = collect(model, Countdown(seed=0), tiny, 0)
    width = whole.rollout.mask.shape[1]
    cut = torch.arange(len(whole.rewards))[:, None] % 4
    lengths = whole.rollout.mask.sum(-1, keepdim=True) - cut
    mask = whole.rollout.mask & (torch.arange(width) < lengths)
    ragged = replace(whole, rollout=replace(whole.rollout, mask=mask)).learnable(True)
    assert len(ragged.rollout.mask.sum(-1).unique()) >= 4
    return ragged


def learner_of(
    model: LanguageModel, config: TrainConfig, *, reference: LanguageModel | None = None
) -> Learner:
    """With plain gradient descent, so that a step is the gradient."""
    network = copy.deepcopy(model.network)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.optimizer.learning_rate)
    moved = replace(model, network=network)
    return Learner(config, make_objective(config.objective), moved, reference, optimizer)


def weights(model: LanguageModel) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.network.parameters()])


def one_update(tiny: TrainConfig, rate: float, **objective: Any) -> TrainConfig:
    """A single mini-batch."""
    settings = replace(tiny.optimizer, mini_batches=1, learning_rate=rate)
    return replace(tiny, optimizer=settings, objective=ObjectiveConfig(**objective))


def test_the_overlong_penalty_is_taken_off(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    """Of at most 12 tokens, with a buffer of 4: 8 are free, 10 cost half of it and 12 all of it."""
    four = experience.rows(torch.arange(4))
    mask = torch.arange(12) < torch.tensor([6, 8, 10, 12])[:, None]
    rollout = replace(four.rollout, mask=mask)
    group = Experience(rollout, torch.tensor([1.0, 0, 1, 0]), torch.zeros(4, dtype=torch.long), {})
    sampling = replace(tiny.rollout, max_new_tokens=12, overlong_buffer=4, overlong_penalty=1.0)
    config = replace(tiny, rollout=sampling, objective=ObjectiveConfig(advantage="dr_grpo"))
    advantage, metrics = credit(learner_of(model, config), group, 0)
    # rewards 1, 0, 0.5 and -1, of mean 0.125
    assert advantage[:, 0].tolist() == pytest.approx([0.875, -0.125, 0.375, -1.125])
    assert metrics["reward/length_penalty"] == pytest.approx(0.375)


@pytest.mark.parametrize("coefficient", [0.2, -0.2])
def test_an_entropy_bonus_raises_the_entropy(
    model: LanguageModel, experience: Experience, tiny: TrainConfig, coefficient: float
) -> None:
    """Without an advantage it is all that the update follows; a negative one is a penalty."""
    learner = learner_of(model, one_update(tiny, 0.05, entropy_coefficient=coefficient))
    rollout = experience.rollout
    learner.update(rollout, torch.zeros(rollout.mask.shape), experience.groups, 0)
    means = [
        response_stats(one, rollout, 1.0).entropy[rollout.mask].mean().item()
        for one in (model, learner.model)
    ]
    assert (means[1] - means[0]) * coefficient > 0
    assert abs(means[1] - means[0]) > 1e-4


def test_the_reference_kl_is_from_the_policy_to_the_start(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    """k3 of log(start / policy) at the policy's tokens, whose ratio is 1 in the first update."""
    generator = torch.Generator().manual_seed(0)
    other = replace(model, network=copy.deepcopy(model.network))
    for parameter in other.network.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data += 0.02 * parameter.std() * noise
    config = one_update(tiny, 1e-6, reference_kl_coefficient=0.5, reference_kl_estimator="k3")
    rollout = experience.rollout
    learner = learner_of(model, config, reference=other)
    metrics, _, _ = learner.update(rollout, torch.zeros(rollout.mask.shape), experience.groups, 0)
    policy, start = (response_logprob(one, rollout, 1.0, 64) for one in (model, other))
    log = (start - policy)[rollout.mask].double()
    expected = (log.exp() - 1 - log).mean().item()
    turned = ((-log).exp() - 1 + log).mean().item()
    assert abs(expected - turned) > 1e-3 * expected
    assert metrics["kl/reference"] == pytest.approx(expected, rel=1e-4)


def test_a_resumed_run_goes_on_with_the_problem_after_those_that_were_drawn(
    tiny: TrainConfig,
) -> None:
    progress = Progress(tiny, make_controller(tiny))
    rows = [{"sampling/prompts": 36.0}, {"sampling/prompts": 24.0}, {}]
    assert progress.after_all(rows).problem == 36 + 24 + tiny.rollout.prompts


def test_an_evaluation_draws_the_same_at_every_step(
    model: LanguageModel, tiny: TrainConfig
) -> None:
    first, later = (evaluate(model, Countdown(seed=0), tiny, step) for step in (0, 5))
    assert {**first, "step": 5} == later
    other = evaluate(model, Countdown(seed=0), replace(tiny, seed=1), 0)
    assert other["entropy/token_mean"] != first["entropy/token_mean"]


def test_accuracy_on_a_bound_is_kept(model: LanguageModel, tiny: TrainConfig) -> None:
    """Four problems of which 0, 1, 3 and 4 of 4 responses are right; the bounds are 1/4 and 3/4."""
    four = collect(model, Countdown(seed=0), tiny, 0).first_groups(4)
    right = [0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]
    graded = replace(four, rewards=torch.tensor(right, dtype=torch.float32))
    kept = graded.learnable(False, (0.25, 0.75))
    assert kept.groups.unique().tolist() == [1, 2]


def test_each_mini_batch_has_its_own_draw_of_selected_tokens(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    seeds = []

    def select(covariance: Tensor, mask: Tensor, *, generator: torch.Generator) -> Tensor:
        seeds.append(generator.initial_seed())
        return torch.zeros_like(mask)

    config = replace(tiny, objective=ObjectiveConfig(loss="clip_cov"), seed=7)
    learner = learner_of(model, config)
    plain = learner.objective
    spied = Objective(plain.advantage, plain.loss, select, micro_batch=False)
    rollout = experience.rollout
    replace(learner, objective=spied).update(
        rollout, torch.zeros(rollout.mask.shape), experience.groups, 3
    )
    assert seeds == [stream(7, f"selection {number}", 3).initial_seed() for number in (0, 1)]


def test_groups_are_dealt_anew_in_each_step(
    model: LanguageModel,
    experience: Experience,
    tiny: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds, deal = [], update.deal

    def spied(groups: Tensor, parts: int, order: torch.Generator) -> list[Tensor]:
        seeds.append(order.initial_seed())
        return deal(groups, parts, order)

    monkeypatch.setattr(update, "deal", spied)
    rollout = experience.rollout
    for step in (0, 4):
        learner_of(model, tiny).update(
            rollout, torch.zeros(rollout.mask.shape), experience.groups, step
        )
    assert seeds == [stream(tiny.seed, "order", step).initial_seed() for step in (0, 4)]


def test_the_probe_has_one_response_of_each_prompt(
    model: LanguageModel,
    experience: Experience,
    tiny: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    three = collect(model, Countdown(seed=0), tiny, 0).first_groups(3).rollout
    probe = EntropyProbe(model, three, tiny.rollout.samples, 1000)
    assert probe.states is not None
    assert torch.equal(probe.states.prompts, three.rows(torch.tensor([0, 4, 8])).prompts)
    given = []

    class Spied(EntropyProbe):
        def __init__(self, *arguments: Any) -> None:
            given.append(arguments[2:])
            super().__init__(*arguments)

    monkeypatch.setattr(trainer, "EntropyProbe", Spied)
    folder = trainer.RunFolder(tmp_path)
    progress = Progress(tiny, make_controller(tiny))
    (tmp_path / "samples").mkdir()
    trainer.train_step(learner_of(model, tiny), Countdown(seed=0), folder, 0, progress)
    assert given == [(tiny.rollout.samples, tiny.probe_tokens)]


def test_the_gradient_is_clipped_to_its_limit(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    layer = torch.nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    clipped_step(layer, torch.optim.SGD(layer.parameters(), lr=1.0), 0.5)
    moved = (layer.weight - before).detach().flatten().tolist()
    assert moved == pytest.approx([-0.3, -0.4], rel=1e-4)

    config = one_update(tiny, 0.1)
    config = replace(config, optimizer=replace(config.optimizer, gradient_clip=1e-3))
    learner = learner_of(model, config)
    rollout = experience.rollout
    advantage = learner.objective.credit(experience.rewards, experience.groups, rollout.mask)
    metrics, _, _ = learner.update(rollout, advantage, experience.groups, 0)
    assert metrics["grad_norm"] > 1e-2
    step = (weights(learner.model) - weights(model)).norm().item()
    assert step == pytest.approx(0.1 * 1e-3, rel=1e-2)
