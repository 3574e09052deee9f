import math

import pytest
import torch

from isentrope.objective.covariance import token_covariance
from isentrope.objective.masking import masked_mean
from isentrope.objective.rewards import kl_penalised, overlong_penalty
from isentrope.objective.shaping import (
    budget_by_decorrelation,
    budget_by_success,
    covariance_kernel,
    entropic,
    entropy_shaping,
    quadrants,
    repo_r,
)

MASK = torch.tensor([[True, True, True, False]])


def test_entropy_shaping_by_hand() -> None:
    # 0.4 x 1 = 0.4 < 2 / 2; 0.4 x 5 = 2 > |-1| / 2; no bonus without an advantage.
    advantage = torch.tensor([[2.0, -1.0, 0.0, 9.0]])
    entropy = torch.tensor([[1.0, 5.0, 3.0, math.inf]])
    shaped = entropy_shaping(advantage, MASK, entropy=entropy)
    assert shaped.tolist()[0] == pytest.approx([2.4, -0.5, 0.0, 0.0])
    strong = entropy_shaping(
        advantage, MASK, entropy=entropy, shaping_weight=1.0, shaping_bound=4.0
    )
    assert strong.tolist()[0] == pytest.approx([2.5, -0.75, 0.0, 0.0])


def test_the_covariance_kernel_by_hand() -> None:
    # log-probs -1, -2, -3 (mean -2), A 3, 0, 0 (mean 1): Cov = 2, 0, 1, variance 2/3.
    logprob = torch.tensor([[-1.0, -2.0, -3.0, 5.0]])
    advantage = torch.tensor([[3.0, 0.0, 0.0, 8.0]])
    weights = [math.exp(-4 / (4 / 3)), 1.0, math.exp(-1 / (4 / 3))]
    shaped = covariance_kernel(advantage, MASK, logprob=logprob)
    expected = 3 * weights[0] * 3 / sum(weights)
    assert shaped.tolist()[0] == pytest.approx([expected, 0, 0, 0])


def test_the_kernel_scales_to_a_mean_weight_of_one() -> None:
    torch.manual_seed(0)
    logprob, advantage = -torch.rand(5, 7), torch.randn(5, 7)
    mask = torch.rand(5, 7) > 0.3
    weight = covariance_kernel(advantage, mask, logprob=logprob) / advantage
    assert weight[mask].mean().item() == pytest.approx(1.0, rel=1e-5)
    assert (weight[mask] > 0).all()
    again = covariance_kernel(
        torch.where(mask, advantage, math.inf), mask, logprob=torch.where(mask, logprob, math.nan)
    )
    assert torch.allclose(again[mask], (weight * advantage)[mask])


def test_without_covariance_the_kernel_changes_nothing() -> None:
    advantage = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    shaped = covariance_kernel(advantage, MASK, logprob=torch.tensor([[-1.0, -2.0, -3.0, 0.0]]))
    assert shaped.tolist() == [[1, 1, 1, 0]]


def test_the_overlong_penalty_grows_over_the_buffer() -> None:
    # At most 10 tokens, buffer 4: free up to 6, half at 8, all at 10.
    lengths = torch.tensor([3, 6, 7, 8, 10])
    mask = torch.arange(10) < lengths[:, None]
    assert overlong_penalty(mask, 10, 4, 2.0).tolist() == pytest.approx([0, 0, 0.5, 1.0, 2.0])
    assert overlong_penalty(mask, 10, 0, 2.0).tolist() == [0] * 5


def test_a_kl_in_the_reward_is_summed_over_the_response() -> None:
    penalty = torch.tensor([[0.1, 0.2, -0.05, math.nan]])
    assert kl_penalised(torch.ones(1), penalty, MASK).tolist() == pytest.approx([0.75])


UNEVEN = torch.tensor([[True, False, False], [True, True, True]])
LOGPROB = torch.tensor([[-1.0, -math.inf, 9.0], [-3.0, -1.0, -3.0]])
"""Centred: 1; -1, 1, -1."""
ADVANTAGE = torch.tensor([[2.0, 7.0, 7.0], [1.0, -1.0, -3.0]])
"""Sum of A l: 2 - 1 of the successes, -1 + 3 of the mistakes; 3 over four tokens."""


@pytest.mark.parametrize(
    ("budget", "successes"),
    [
        (0.5, [4 / 3, 4 / 3]),  # 2 (1 - z) - (1 + z) + 2 = 2, z = 1/3
        (0.0, [0.0, 2.0]),  # = 0, z = 1, where the likely success has reached 0
        (-0.5, [0.0, 4.0]),  # beyond it -(1 + z) + 2 = -2, z = 3
        (-5.0, [0.0, 6.0]),  # z = 21, but at most 5
        (1.25, [10 / 3, 1 / 3]),  # above the covariance: 3 - 3 z = 5, z = -2/3
        (2.0, [6.0, 0.0]),  # 2 (1 - z) + 2 = 8, z = -2, where the unlikely one has reached 0
    ],
)
def test_budget_by_success_by_hand(budget: float, successes: list[float]) -> None:
    shaped = budget_by_success(ADVANTAGE, UNEVEN, logprob=LOGPROB, budget=budget)
    assert shaped[UNEVEN].tolist() == pytest.approx([*successes, -1, -3], abs=1e-6)
    assert shaped[~UNEVEN].tolist() == [0, 0]


def test_a_covariance_below_a_budget_that_is_not_positive_is_left_alone() -> None:
    advantage = torch.tensor([[2.0, 7.0, 7.0], [1.0, -3.0, -1.0]])  # sum of A l: -1
    for shape in (budget_by_success, budget_by_decorrelation):
        shaped = shape(advantage, UNEVEN, logprob=LOGPROB, budget=0.0)
        assert shaped[UNEVEN].tolist() == [2, 1, -3, -1]


def test_budget_by_decorrelation_by_hand() -> None:
    # Sum of A l is 3 and of l^2 is 4: z = (3 - 4 x 0.25) / 4 = 1/2.
    shaped = budget_by_decorrelation(ADVANTAGE, UNEVEN, logprob=LOGPROB, budget=0.25)
    assert shaped[UNEVEN].tolist() == pytest.approx([1.5, 1.5, -1.5, -2.5])
    weak = budget_by_decorrelation(
        ADVANTAGE, UNEVEN, logprob=LOGPROB, budget=0.25, strength_limit=0.1
    )
    assert weak[UNEVEN].tolist() == pytest.approx([1.9, 1.1, -1.1, -2.9])


@pytest.mark.parametrize("budget", [0.05, 0.0, -0.02, 0.4])
def test_what_remains_of_the_covariance_is_the_budget(budget: float) -> None:
    source = torch.Generator().manual_seed(5)
    mask = torch.arange(23) < torch.randint(1, 24, (40, 1), generator=source)
    logprob = -torch.rand(40, 23, generator=source) * 3
    advantage = torch.randn(40, 1, generator=source).expand(40, 23) - 0.3 * logprob.neg() + 0.5
    before = masked_mean(token_covariance(logprob, advantage, mask), mask).item()
    assert 0.1 < before < 0.4
    for shape in (budget_by_success, budget_by_decorrelation):
        shaped = shape(advantage, mask, logprob=logprob, budget=budget)
        after = masked_mean(token_covariance(logprob, shaped, mask), mask).item()
        assert after == pytest.approx(budget, abs=1e-5)
    success = budget_by_success(advantage, mask, logprob=logprob, budget=budget)
    assert (success[mask] * advantage[mask] >= 0).all()
    mistakes = mask & (advantage <= 0)
    assert torch.equal(success[mistakes], advantage[mistakes])


def test_without_a_success_nothing_is_reshaped() -> None:
    advantage = -ADVANTAGE.abs()
    advantage[1, 2] = -9.0  # sum of A l: -2 + 1 - 1 + 9 = 7
    shaped = budget_by_success(advantage, UNEVEN, logprob=LOGPROB, budget=0.0)
    assert shaped[UNEVEN].tolist() == [-2, -1, -1, -9]


def test_quadrants_by_hand() -> None:
    # The mean log-prob is -3: two likely tokens, two unlikely ones, a success and a mistake each.
    logprob = torch.tensor([[-1.0, -2.0, 0.0], [-4.0, -5.0, 0.0]])
    advantage = torch.tensor([[2.0, -1.0, 7.0], [3.0, -1.0, 7.0]])
    shaped = quadrants(
        advantage,
        torch.tensor([[True, True, False]] * 2),
        logprob=logprob,
        likely_success=0.5,
        unlikely_success=2.0,
        likely_mistake=3.0,
        unlikely_mistake=5.0,
    )
    assert shaped.tolist() == [[1, -3, 0], [6, -5, 0]]


def test_entropic_by_hand() -> None:
    """Likely are probabilities above 0.8: the first success and the first mistake."""
    logprob = torch.tensor([[0.9, 0.7, 0.5], [0.85, 0.79, 0.5]]).log()
    advantage = torch.tensor([[2.0, 1.0, 7.0], [-4.0, -3.0, 7.0]])
    mask = torch.tensor([[True, True, False]] * 2)
    for strength, likely in ((0.25, [2.5, -3.0]), (-0.25, [1.5, -5.0])):
        shaped = entropic(
            advantage, mask, logprob=logprob, strength=strength, likely_probability=0.8
        )
        assert shaped.flatten().tolist() == pytest.approx([likely[0], 1, 0, likely[1], -3, 0])


def test_repo_r_by_hand() -> None:
    logprob = torch.tensor([[-1.0, -4.0, 0.0], [-1.0, -4.0, -math.inf]])
    advantage = torch.tensor([[2.0, 2.0, 7.0], [-3.0, -3.0, 1.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    # success A (1 + z |log pi|), mistake A (1 - z |log pi|); none turns its sign
    for strength, expected in (
        (0.25, [2.5, 4.0, 0, -2.25, 0.0, 1]),
        (0.5, [3.0, 6.0, 0, -1.5, 0.0, 1]),
        (-0.5, [1.0, 0.0, 0, -4.5, -9.0, 1]),
    ):
        shaped = repo_r(advantage, mask, logprob=logprob, strength=strength)
        assert shaped.flatten().tolist() == pytest.approx(expected)
    assert not repo_r(0 * advantage, mask, logprob=logprob, strength=0.5).any()
