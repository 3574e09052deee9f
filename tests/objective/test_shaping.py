import math

import pytest
import torch

from isentrope.objective.rewards import kl_penalised, overlong_penalty
from isentrope.objective.shaping import covariance_kernel, entropy_shaping

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
