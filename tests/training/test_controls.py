"""What the controls do in the trainer, and what is refused."""

import copy
from dataclasses import replace

import pytest
import torch

from isentrope.commands.display import notes
from isentrope.config import (
    ControlConfig,
    ObjectiveConfig,
    PrimeConfig,
    RolloutConfig,
    TrainConfig,
)
from isentrope.control.combination import make_controller
from isentrope.control.controllers import Control
from isentrope.errors import ConfigError
from isentrope.policy.forward import response_logprob
from isentrope.policy.model import LanguageModel
from isentrope.tasks.countdown import Countdown
from isentrope.training.credit import credit
from isentrope.training.experience import Experience, collect, join_rollouts, keep
from isentrope.training.mechanism import mechanism_metrics
from isentrope.training.objective import make_objective
from isentrope.training.prime import ImplicitRewardModel, outcome_metrics
from isentrope.training.update import Learner

ARMS = {
    "cispo": ObjectiveConfig(loss="cispo"),
    "gspo": ObjectiveConfig(loss="gspo", reducer="sequence_mean"),
    "gmpo": ObjectiveConfig(loss="gmpo", reducer="sequence_mean"),
    "top_entropy": ObjectiveConfig(loss="top_entropy"),
    "budget": ObjectiveConfig(loss="budget", budget=0.0),
    "entropy shaping": ObjectiveConfig(shaping="entropy"),
    "covariance kernel": ObjectiveConfig(shaping="covariance_kernel"),
    "success": ObjectiveConfig(shaping="success", budget=0.0),
    "entropic": ObjectiveConfig(shaping="entropic", strength=-0.5),
    "repo_r": ObjectiveConfig(shaping="repo_r", strength=0.05),
    "decorrelation": ObjectiveConfig(shaping="decorrelation", budget=0.0),
}


@pytest.fixture(scope="module")
def experience(model: LanguageModel, tiny: TrainConfig) -> Experience:
    return collect(model, Countdown(seed=0), tiny, 0).learnable(True)


def learner_of(
    model: LanguageModel, config: TrainConfig, control: Control | None = None
) -> Learner:
    network = copy.deepcopy(model.network)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.optimizer.learning_rate)
    objective = make_objective(config.objective)
    moved = replace(model, network=network)
    return Learner(config, objective, moved, model, optimizer, control=control)


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.model.network.parameters()])


@pytest.mark.parametrize("arm", sorted(ARMS))
def test_the_micro_batch_size_changes_nothing(
    model: LanguageModel, experience: Experience, tiny: TrainConfig, arm: str
) -> None:
    ends = []
    for size in (1000, 7):
        optimizer = replace(tiny.optimizer, learning_rate=0.1, micro_batch_size=size)
        learner = learner_of(model, replace(tiny, objective=ARMS[arm], optimizer=optimizer))
        advantage, _ = credit(learner, experience, 0)
        _, _, selected = learner.update(experience.rollout, advantage, experience.groups, 0)
        ends.append((weights(learner), selected))
    start = torch.cat([p.detach().flatten() for p in model.network.parameters()])
    moved = (ends[0][0] - start).abs().max()
    assert moved > 1e-4
    assert (ends[0][0] - ends[1][0]).abs().max() < 1e-3 * moved
    assert torch.equal(ends[0][1], ends[1][1])


def test_the_controller_s_bonus_is_the_configured_one(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    bonus = replace(tiny, objective=ObjectiveConfig(entropy_coefficient=0.5))
    ends = []
    for config, control in (
        (tiny, None),
        (bonus, None),
        (tiny, Control(entropy_coefficient=0.5)),
    ):
        learner = learner_of(model, config, control)
        advantage, _ = credit(learner, experience, 0)
        learner.update(experience.rollout, advantage, experience.groups, 0)
        ends.append(weights(learner))
    assert torch.equal(ends[1], ends[2])
    assert not torch.equal(ends[0], ends[1])


def test_the_budget_of_the_controller_decides_the_cut(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    config = replace(tiny, objective=ObjectiveConfig(loss="budget"))
    remaining = []
    for budget in (10.0, 0.0, -10.0):
        learner = learner_of(model, config, Control(budget=budget))
        advantage, _ = credit(learner, experience, 0)
        one = learner.prepare(experience.rollout, advantage, torch.Generator())
        kept = torch.where(one.selected, 0.0, one.covariance).sum() / one.rollout.mask.sum()
        remaining.append(kept.item())
    positive = one.covariance.clamp(min=0).sum() / one.rollout.mask.sum()
    negative = one.covariance.clamp(max=0).sum() / one.rollout.mask.sum()
    assert remaining[0] == pytest.approx(positive.item(), rel=1e-4)
    assert -0.02 < remaining[1] <= 1e-6
    assert remaining[2] == pytest.approx(negative.item(), rel=1e-4)


def test_prime_s_rewards_are_log_ratios_and_its_model_learns(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    prime = PrimeConfig(beta=0.5, learning_rate=1e-3)
    config = replace(tiny, objective=ObjectiveConfig(advantage="prime"), prime=prime)
    moved = replace(model, network=copy.deepcopy(model.network))
    optimizer = torch.optim.AdamW(moved.network.parameters(), lr=1e-3, weight_decay=0.0)
    judge = ImplicitRewardModel(config, moved, optimizer)
    reference = response_logprob(model, experience.rollout, 1.0, 64)
    args = (experience.rollout, reference, experience.rewards, experience.groups)
    first, before = judge.step(*args, 0)
    assert first.abs().max() < 1e-5
    assert before["prime/loss"] == pytest.approx(0.6931, abs=1e-3)
    for step in range(1, 9):
        judge.step(*args, step)
    now = response_logprob(moved, experience.rollout, 1.0, 64)
    rewards, after = judge.step(*args, 9)
    mask = experience.rollout.mask
    assert torch.allclose(rewards[mask], 0.5 * (now - reference)[mask])
    assert not rewards[~mask].any()
    assert after["prime/loss"] < 0.6
    assert after["prime/ranking"] > 0.7
    assert after["prime/accuracy"] > after["prime/chance"]


def test_outcome_metrics_by_hand() -> None:
    # Group 0: right ones score 2 and -1, the wrong one 0: one pair of two is in order. Group 1 has
    # a tie. Signs are right for 2, 0 (not above 0) and the tie's wrong one.
    score = torch.tensor([2.0, -1.0, 0.0, 0.0, 0.0])
    outcome = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])
    metrics = outcome_metrics(score, outcome, torch.tensor([0, 0, 0, 1, 1]))
    assert metrics["prime/accuracy"] == pytest.approx(3 / 5)
    assert metrics["prime/chance"] == pytest.approx(3 / 5)
    assert metrics["prime/ranking"] == pytest.approx((1 + 0 + 0.5) / 3)


def test_prime_keeps_prompts_of_middling_accuracy(
    experience: Experience, tiny: TrainConfig
) -> None:
    rewards = torch.ones(len(experience.rewards))
    rewards[::4] = 0  # three of four right in every group
    config = replace(
        tiny,
        objective=ObjectiveConfig(advantage="prime"),
        prime=PrimeConfig(accuracy_high=0.7),
    )
    assert keep(replace(experience, rewards=rewards), config).group_count == 0
    rewards[:4] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert keep(replace(experience, rewards=rewards), config).group_count == 1


def test_a_kl_in_the_reward_is_zero_at_the_start(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    plain, _ = credit(learner_of(model, tiny), experience, 0)
    for advantage in ("grpo", "reinforce_pp"):
        settings = ObjectiveConfig(
            advantage=advantage, reference_kl_coefficient=0.5, reference_kl_place="reward"
        )
        learner = learner_of(model, replace(tiny, objective=settings))
        result, metrics = credit(learner, experience, 0)
        assert abs(metrics["kl/reference"]) < 1e-5
        if advantage == "grpo":
            assert torch.allclose(result, plain, atol=1e-3)


def test_a_long_response_has_a_lower_advantage(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    rollout = replace(tiny.rollout, overlong_buffer=8, overlong_penalty=1.0)
    config = replace(tiny, objective=ObjectiveConfig(advantage="dr_grpo"), rollout=rollout)
    advantage, metrics = credit(learner_of(model, config), experience, 0)
    plain, _ = credit(learner_of(model, replace(config, rollout=tiny.rollout)), experience, 0)
    lengths = experience.rollout.mask.sum(-1)
    cost = (lengths - 8) / 8  # a response has at most 16 tokens, the last 8 cost
    means = torch.stack([cost[experience.groups == g].mean() for g in experience.groups])
    assert torch.allclose((plain - advantage)[:, 0], cost - means, atol=1e-5)
    assert metrics["reward/length_penalty"] == pytest.approx(cost.mean().item())


def test_dynamic_sampling_draws_further_problems_and_stops_at_its_limit(
    model: LanguageModel, tiny: TrainConfig
) -> None:
    task = Countdown(seed=0)
    config = replace(tiny, rollout=replace(tiny.rollout, prompts=4, samples=2))
    once = collect(model, task, config, 0)
    more = replace(config, rollout=replace(config.rollout, max_rounds=3))
    several = collect(model, task, more, 0, first=0)
    assert torch.equal(
        several.rollout.tokens[:8] * several.rollout.mask[:8],
        once.rollout.tokens * once.rollout.mask,
    )
    assert several.group_count in (8, 12)  # four groups of two rarely all carry signal
    assert keep(several, more).group_count <= 4
    assert several.groups.tolist() == [i // 2 for i in range(2 * several.group_count)]


def test_joined_rollouts_have_the_responses_of_both(experience: Experience) -> None:
    one, other = experience.rollout.rows(slice(2)), experience.rollout.rows(slice(2, 5)).trimmed()
    both = join_rollouts([one, other])
    assert both.mask.sum() == one.mask.sum() + other.mask.sum()
    assert torch.equal(both.logprob[both.mask][: one.mask.sum()], one.logprob[one.mask])


def test_easy_and_hard_problems_are_told_apart(experience: Experience) -> None:
    rollout, groups = experience.rollout.rows(slice(8)), torch.arange(8) // 4
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0])
    advantage = (rewards - 0.25 - 0.5 * groups)[:, None].expand(rollout.mask.shape)
    metrics = mechanism_metrics(rollout, advantage, rewards, groups)
    score = (rollout.logprob * rollout.mask).sum(-1) / rollout.mask.sum(-1)
    hard = ((score[:4] - score[:4].mean()) * (rewards[:4] - 0.25)).mean().item()
    easy = ((score[4:] - score[4:].mean()) * (rewards[4:] - 0.75)).mean().item()
    assert metrics["covariance/sequence_hard"] == pytest.approx(hard, rel=1e-4)
    assert metrics["covariance/sequence_easy"] == pytest.approx(easy, rel=1e-4)
    assert metrics["covariance/sequence"] == pytest.approx((hard + easy) / 2, rel=1e-4)
    assert metrics["covariance/sequence_middle"] != metrics["covariance/sequence_middle"]


REFUSED = {
    "both set the entropy bonus": TrainConfig(
        objective=ObjectiveConfig(entropy_coefficient=0.1), control=ControlConfig(name="band")
    ),
    "takes no budget": TrainConfig(control=ControlConfig(name="budget")),
    "neither is there": TrainConfig(objective=ObjectiveConfig(loss="budget")),
    "both are there": TrainConfig(
        objective=ObjectiveConfig(loss="budget", budget=0.1), control=ControlConfig(name="budget")
    ),
    "would both meet the budget": TrainConfig(
        objective=ObjectiveConfig(loss="budget", shaping="success", budget=0.1)
    ),
    "shaping 'decorrelation' needs its budget": TrainConfig(
        objective=ObjectiveConfig(shaping="decorrelation")
    ),
    "shaping 'none' takes no strength": TrainConfig(control=ControlConfig(name="pi")),
    "'repo_r' needs its strength from one place": TrainConfig(
        objective=ObjectiveConfig(shaping="repo_r")
    ),
    "doubling'; both are there": TrainConfig(
        objective=ObjectiveConfig(shaping="repo_r", strength=0.1),
        control=ControlConfig(name="doubling"),
    ),
    "control.target is 0.3": TrainConfig(control=ControlConfig(target=0.3)),
    "control.gain is 3.0": TrainConfig(control=ControlConfig(name="band", gain=3.0)),
    "no control.target_end": TrainConfig(control=ControlConfig(name="band", target_steps=4)),
    "control.target_hold is 7": TrainConfig(control=ControlConfig(name="band", target_hold=7)),
    "control.target_shape is 'cosine'": TrainConfig(
        control=ControlConfig(name="band", target_shape="cosine")
    ),
    "control.target_relative is set": TrainConfig(
        control=ControlConfig(name="band", target_relative=True)
    ),
    "advantage_then is 'grpo' and objective.advantage_steps None": TrainConfig(
        objective=ObjectiveConfig(advantage_then="grpo")
    ),
    "advantage_then is None and objective.advantage_steps 3": TrainConfig(
        objective=ObjectiveConfig(advantage_steps=3)
    ),
    "it stands alone": TrainConfig(
        objective=ObjectiveConfig(advantage_then="prime", advantage_steps=3)
    ),
    "pkpo compares the sets": TrainConfig(
        objective=ObjectiveConfig(advantage_then="pkpo", advantage_steps=3, pass_k=8)
    ),
    "drop_zero_signal is off": TrainConfig(
        rollout=RolloutConfig(max_rounds=2), objective=ObjectiveConfig(drop_zero_signal=False)
    ),
}


@pytest.mark.parametrize("message", sorted(REFUSED))
def test_controls_that_cannot_act_together_are_refused(message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_controller(REFUSED[message])


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (ObjectiveConfig(shaping_weight=0.1), "shaping 'none' does not use it"),
        (ObjectiveConfig(entropy_fraction=0.1), "loss 'ppo_clip' does not use it"),
        (ObjectiveConfig(budget=0.1), "loss 'ppo_clip' does not use it"),
        (ObjectiveConfig(loss="gspo", dual_clip=3.0), "loss 'gspo' does not use it"),
    ],
)
def test_a_setting_without_a_user_is_refused(objective: ObjectiveConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_objective(objective)


def test_what_cannot_act_is_noted(tiny: TrainConfig) -> None:
    one = replace(tiny.optimizer, mini_batches=1)
    assert any(
        "never clips" in note
        for note in notes(replace(tiny, optimizer=one, objective=ObjectiveConfig(loss="gspo")))
    )
    assert any(
        "sequence_mean" in note
        for note in notes(replace(tiny, objective=ObjectiveConfig(loss="gmpo")))
    )
    assert any("[prime]" in note for note in notes(replace(tiny, prime=PrimeConfig(beta=0.1))))
    assert any(
        "every step" in note
        for note in notes(replace(tiny, control=ControlConfig(name="band", delta=0.0)))
    )
    short = replace(tiny, model=replace(tiny.model, dtype="bfloat16"))
    assert any("loses every update below 1/256" in note for note in notes(short))
    assert not notes(replace(short, model=replace(short.model, lora_rank=4)))
    assert not notes(tiny)


@pytest.mark.parametrize(("dtype", "moves"), [(torch.float32, True), (torch.bfloat16, False)])
def test_a_weight_in_bfloat16_loses_a_small_update(dtype: torch.dtype, moves: bool) -> None:
    weight = torch.full((4,), 0.02, dtype=dtype, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    before = weight.detach().clone()
    torch.optim.AdamW([weight], lr=5e-7, weight_decay=0.0).step()  # the paper's learning rate
    assert (not torch.equal(weight, before)) == moves


def test_a_best_of_all_samples_is_refused(tiny: TrainConfig) -> None:
    rollout = replace(tiny.rollout, samples=4)
    objective = ObjectiveConfig(advantage="pass_at_k")
    with pytest.raises(ConfigError, match=r"pass_k is 4 and rollout.samples 4"):
        make_controller(replace(tiny, rollout=rollout, objective=objective))
    smaller = replace(objective, pass_k=3)
    make_controller(replace(tiny, rollout=rollout, objective=smaller))


def test_the_advantage_changes_at_its_step(tiny: TrainConfig) -> None:
    """pass@2 of one right and four wrong responses, then GRPO's: the mean is taken off."""
    config = ObjectiveConfig(
        advantage="pass_at_k", pass_k=2, advantage_then="dr_grpo", advantage_steps=3
    )
    objective = make_objective(config)
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]), torch.zeros(5, dtype=torch.long)
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 0], [1, 0]], dtype=torch.bool)
    # 4 of 10 pairs hold the right one: deviation sqrt(0.24); a wrong one is in 1 of 4 such pairs
    early = [0.6 / 0.24**0.5, *[(0.25 - 0.4) / 0.24**0.5] * 4]
    late = [0.8, *[-0.2] * 4]
    for step, expected in ((0, early), (2, early), (3, late), (9, late)):
        found = objective.credit(rewards, groups, mask, step)
        assert found[:, 0].tolist() == pytest.approx(expected)
    assert objective.credit(rewards, groups, mask)[:, 0].tolist() == pytest.approx(early)
