import itertools
import math

import pytest
import torch

from isentrope.objective.advantages import (
    ADVANTAGES,
    pass_at_k,
    pkpo,
    reinforce_pp,
    w_reinforce,
    whiten,
    zero_signal,
)

UNCENTRED = ("reinforce_pp", "w_reinforce")


def advantages(name: str, rewards: list[float], groups: list[int] | None = None) -> list[float]:
    reward = torch.tensor(rewards, dtype=torch.float32)
    group = torch.tensor(groups or [0] * len(rewards))
    mask = torch.ones(len(rewards), 1, dtype=torch.bool)
    return ADVANTAGES[name](reward, group, mask).flatten().tolist()


def test_grpo_uses_the_sample_standard_deviation() -> None:
    assert advantages("grpo", [1, 0, 0, 0]) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=5e-4)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1, 0, 0, 0], [1, -1 / 3, -1 / 3, -1 / 3]), ([1, 0.5, 0], [0.75, 0, -0.75])],
)
def test_rloo(rewards: list[float], expected: list[float]) -> None:
    assert advantages("rloo", rewards) == pytest.approx(expected)


def test_dr_grpo_centres_only() -> None:
    assert advantages("dr_grpo", [1, 0, 0, 0]) == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_opo_weighs_the_baseline_by_length() -> None:
    # Lengths 1 and 3, rewards 1 and 0: the baseline is 1/4.
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]], dtype=torch.bool)
    result = ADVANTAGES["opo"](torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), mask)
    assert result.tolist() == pytest.approx([0.75, -0.25])


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_equal_rewards_carry_no_signal(name: str) -> None:
    if name in UNCENTRED:
        pytest.skip("has no group baseline")
    assert advantages(name, [1, 1, 1, 1]) == pytest.approx([0.0] * 4)
    assert zero_signal(torch.ones(4), torch.zeros(4, dtype=torch.long)).all()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_the_order_of_the_rows_changes_no_value(name: str) -> None:
    rewards, groups = [1.0, 0.0, 0.0, 0.5, 1.0, 0.25], [7, 7, 7, 3, 3, 3]
    order = [4, 0, 5, 2, 3, 1]
    straight = advantages(name, rewards, groups)
    shuffled = advantages(name, [rewards[i] for i in order], [groups[i] for i in order])
    assert shuffled == pytest.approx([straight[i] for i in order])


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_an_unjudged_reward_is_left_out(name: str) -> None:
    with_hole = advantages(name, [1.0, math.nan, 0.0, 0.0])
    without = advantages(name, [1.0, 0.0, 0.0])
    assert with_hole[1] == 0.0
    assert [with_hole[i] for i in (0, 2, 3)] == pytest.approx(without)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"])
def test_a_group_of_one_has_no_advantage(name: str) -> None:
    assert advantages(name, [1.0]) == [0.0]


@pytest.mark.parametrize("value", [0.1, 0.7, 0.9, 0.98, 0.99])
@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - set(UNCENTRED)))
def test_equal_graded_rewards_have_an_advantage_of_exactly_0(name: str, value: float) -> None:
    """Their mean may round: 8 x 0.99 / 8 is not 0.99 in float32."""
    for size in (3, 8, 16):
        rewards = torch.full((size,), value)
        mask = torch.ones(size, 2, dtype=torch.bool)
        found = ADVANTAGES[name](rewards, torch.zeros(size, dtype=torch.long), mask)
        assert found.eq(0).all()


def test_whitening_by_hand() -> None:
    # 1, 2, 3: mean 2, sample variance 1.
    values = torch.tensor([[1.0, 2.0, 3.0, 99.0]])
    mask = torch.tensor([[True, True, True, False]])
    assert whiten(values, mask).tolist()[0] == pytest.approx([-1, 0, 1, 0])
    assert whiten(values, torch.tensor([[True, False, False, False]])).tolist() == [[0, 0, 0, 0]]


def test_reward_to_go_pays_the_penalty_of_later_tokens() -> None:
    # Reward 1, penalties 0.1, 0.2, 0.3: returns 0.4, 0.5, 0.7; whitened afterwards.
    mask = torch.ones(1, 3, dtype=torch.bool)
    result = reinforce_pp(
        torch.tensor([1.0]), torch.tensor([0]), mask, torch.tensor([[0.1, 0.2, 0.3]])
    )
    expected = whiten(torch.tensor([[0.4, 0.5, 0.7]]), mask)
    assert result.tolist()[0] == pytest.approx(expected.tolist()[0])


def test_zero_signal_is_by_group() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, math.nan, 1.0])
    groups = torch.tensor([5, 5, 9, 9, 9])
    assert zero_signal(rewards, groups).tolist() == [False, False, True, True, True]


def test_prime_by_hand() -> None:
    # Three responses of a group: outcomes 1, 0, 0, so RLOO gives 1, -1/2, -1/2.
    # Process rewards a token: 0.1, 0.3 (mean 0.2); 0.4 (mean 0.4); -0.2, 0.0, 0.2 (mean 0).
    rewards, groups = torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3, dtype=torch.long)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
    process = torch.tensor([[0.1, 0.3, 7.0], [0.4, 7.0, 7.0], [-0.2, 0.0, 0.2]])
    # Means of the others: 0.2, 0.1, 0.3. Centred: -0.1, 0.1; 0.3; -0.5, -0.3, -0.1.
    result = ADVANTAGES["prime"](rewards, groups, mask, process)
    assert result[mask].tolist() == pytest.approx(
        [1 + 0.0, 1 + 0.1, -0.5 + 0.3, -0.5 - 0.9, -0.5 - 0.4, -0.5 - 0.1]
    )


def test_prime_leaves_unjudged_responses_out_of_the_process_baseline() -> None:
    rewards, groups = torch.tensor([1.0, math.nan, 0.0]), torch.zeros(3, dtype=torch.long)
    mask = torch.ones(3, 1, dtype=torch.bool)
    process = torch.tensor([[0.1], [50.0], [0.3]])
    result = ADVANTAGES["prime"](rewards, groups, mask, process)
    assert result.flatten().tolist() == pytest.approx([1 + 0.1 - 0.3, 0, -1 + 0.3 - 0.1])


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("kind", [torch.long, torch.bool])
def test_rewards_may_be_integers_or_booleans(name: str, kind: torch.dtype) -> None:
    groups = torch.tensor([3, 8, 3, 8, 3])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
    knobs = {"pass_k": 2} if name in ("pass_at_k", "pkpo") else {}
    expected = ADVANTAGES[name](rewards, groups, mask, **knobs)
    found = ADVANTAGES[name](rewards.to(kind), groups, mask, **knobs)
    assert found.tolist() == expected.tolist()
    assert expected.abs().max() > 0


def test_a_million_equal_rewards_have_no_advantage() -> None:
    """Their mean in single precision is off by enough for whitening to magnify it."""
    rewards = torch.full((1_000_000,), 100.1)
    mask = torch.ones(1_000_000, 1, dtype=torch.bool)
    found = ADVANTAGES["reinforce_pp"](rewards, torch.arange(1_000_000), mask)
    assert found.abs().max() == 0


RAGGED = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
ONE_GROUP = torch.zeros(4, dtype=torch.long)
GRADED = torch.tensor([0.25, 1.0, 0.5, 0.0])


def test_pass_at_k_by_hand() -> None:
    # pass@2 = 1 - 3/6, deviation 1/2; a mistake is in 2 of 3 pairs with the right one.
    found = pass_at_k(torch.tensor([0.0, 1.0, 0.0, 0.0]), ONE_GROUP, RAGGED, pass_k=2)
    assert found.tolist() == pytest.approx([-1 / 3, 1, -1 / 3, -1 / 3])
    # pass@2 of three right ones is 1: every pair holds one.
    assert not pass_at_k(torch.tensor([0.0, 1.0, 1.0, 1.0]), ONE_GROUP, RAGGED, pass_k=2).any()
    # A set of all four is the only one.
    assert not pass_at_k(torch.tensor([0.0, 1.0, 0.0, 0.0]), ONE_GROUP, RAGGED).any()


@pytest.mark.parametrize("k", [2, 3])
def test_pass_at_k_of_graded_rewards_is_that_of_all_sets(k: int) -> None:
    rewards = torch.tensor([0.25, 1.0, 0.5, 0.5, 0.0])
    sets = list(itertools.combinations(range(5), k))
    best = torch.tensor([float(rewards[list(chosen)].max()) for chosen in sets])
    deviation = best.std(correction=0)
    expected = [
        (best[[i in chosen for chosen in sets]].mean() - best.mean()) / deviation for i in range(5)
    ]
    mask = torch.ones(5, 2, dtype=torch.bool)
    found = pass_at_k(rewards, torch.zeros(5, dtype=torch.long), mask, pass_k=k)
    assert found.tolist() == pytest.approx([float(x) for x in expected], abs=1e-6)


@pytest.mark.parametrize(
    ("k", "expected"), [(2, [1 / 6, 1.5, 0.5, 0.0]), (3, [0.0, 1.75, 0.25, 0.0])]
)
def test_pkpo_by_hand(k: int, expected: list[float]) -> None:
    # Pairs: the best of them gains 1, .75, .5 over the others, the second .5, .25; times 4/6.
    assert pkpo(GRADED, ONE_GROUP, RAGGED, pass_k=k).tolist() == pytest.approx(expected)


def test_pkpo_counts_each_group_by_its_own_size() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])
    groups = torch.tensor([5, 2, 2, 5, 2])
    mask = torch.ones(5, 1, dtype=torch.bool)
    # One right of two: 1 set, gain 1, times 2. One right of three: 2 of 3 sets, times 3.
    assert pkpo(rewards, groups, mask, pass_k=2).tolist() == pytest.approx([2, 0, 2, 0, 0])


def test_w_reinforce_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, math.nan, 0.5])
    weighted = w_reinforce(rewards, ONE_GROUP, RAGGED)
    assert weighted.tolist() == pytest.approx([0.1, -1, 0, 0.1])
    negative = w_reinforce(rewards, ONE_GROUP, RAGGED, success_weight=0.0)
    assert negative.tolist() == [0, -1, 0, 0]
