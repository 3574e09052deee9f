"""A tabular softmax policy: both sides of the paper's section 3 are computed exactly."""

from collections.abc import Callable

import pytest
import torch

from isentrope.objective.dynamics import (
    entropy,
    natural_policy_gradient_change,
    predicted_change,
    vanilla_policy_gradient_change,
)

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 0.0, 3.0]], dtype=torch.float64)
LOGPROBS = LOGITS.log_softmax(-1)
RETURNS = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
ADVANTAGE = RETURNS - (LOGPROBS.exp() * RETURNS).sum(-1, keepdim=True)


def measured(change: torch.Tensor) -> torch.Tensor:
    return entropy((LOGITS + change).log_softmax(-1)) - entropy(LOGPROBS)


def vanilla_step(step_size: float) -> torch.Tensor:
    """The step of gradient ascent on the expected return, by autograd."""
    logits = LOGITS.clone().requires_grad_()
    (logits.softmax(-1) * RETURNS).sum().backward()
    assert logits.grad is not None
    return step_size * logits.grad


def natural_step(step_size: float) -> torch.Tensor:
    return step_size * ADVANTAGE


@pytest.mark.parametrize(
    ("step", "prediction"),
    [
        (vanilla_step, vanilla_policy_gradient_change),
        (natural_step, natural_policy_gradient_change),
    ],
)
def test_the_error_shrinks_with_the_square_of_the_step(
    step: Callable[[float], torch.Tensor],
    prediction: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor],
) -> None:
    errors = [
        (measured(step(eta)) - prediction(LOGPROBS, ADVANTAGE, eta)).abs() for eta in (0.02, 0.01)
    ]
    assert (errors[0] / errors[1]).tolist() == pytest.approx([4, 4], rel=0.05)
    assert float(errors[1].max()) < 1e-4


def test_the_lemma_contains_both_theorems() -> None:
    for step, prediction in (
        (vanilla_step, vanilla_policy_gradient_change),
        (natural_step, natural_policy_gradient_change),
    ):
        lemma = predicted_change(LOGPROBS, step(0.01))
        assert torch.allclose(lemma, prediction(LOGPROBS, ADVANTAGE, 0.01), atol=1e-12)


def test_signs() -> None:
    likely = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    unlikely = torch.tensor([[0, 0, 0, 1.0]], dtype=torch.float64)
    assert float(natural_policy_gradient_change(LOGPROBS[:1], likely, 0.01)) < 0
    assert float(natural_policy_gradient_change(LOGPROBS[:1], unlikely, 0.01)) > 0


def test_a_two_armed_bandit_by_hand() -> None:
    # pi = (3/4, 1/4), A = (1, -3): Cov(log pi, A) = E[A log pi] = 3/4 ln 3/4 - 3/4 ln 1/4.
    logprobs = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log()
    advantage = torch.tensor([[1.0, -3.0]], dtype=torch.float64)
    change = natural_policy_gradient_change(logprobs, advantage, 1.0)
    assert float(change) == pytest.approx(-0.75 * 1.0986122886681098)


def test_a_shift_of_the_logits_and_impossible_actions_change_nothing() -> None:
    logprobs = torch.tensor([[0.0, 1.0, -torch.inf]]).log_softmax(-1)
    shift = torch.full((1, 3), 7.0)
    assert float(predicted_change(logprobs, shift)) == pytest.approx(0, abs=1e-6)
    assert entropy(logprobs).isfinite().all()
