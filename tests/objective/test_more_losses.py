"""CISPO, GSPO, GMPO, top-entropy updates and the budget: numbers worked out by hand."""

import math
from collections.abc import Callable

import pytest
import torch

from isentrope.objective.losses import (
    TokenLoss,
    budget,
    cispo,
    gmpo,
    gspo,
    policy_gradient,
    top_entropy,
)
from isentrope.objective.masking import Reducer, loss_denominator, reduce_loss

Loss = Callable[..., TokenLoss]

OLD = torch.tensor([[-1.0, -2.0, -0.5], [-0.3, -0.7, 9.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
ADVANTAGE = torch.tensor([[1.0, 1.0, 1.0], [-2.0, -2.0, -2.0]])
NONE = torch.zeros_like(MASK)
LOSSES: dict[str, Loss] = {
    "cispo": cispo,
    "gspo": gspo,
    "gmpo": gmpo,
    "top_entropy": lambda *tensors: top_entropy(*tensors, selected=NONE),
    "budget": lambda *tensors: budget(*tensors, selected=NONE),
}


def moved(*log_ratios: list[float]) -> torch.Tensor:
    """Log-probs with these log ratios to OLD, a leaf."""
    return (OLD + torch.tensor(log_ratios)).requires_grad_()


def mean_of_sequences(loss: TokenLoss, mask: torch.Tensor = MASK) -> torch.Tensor:
    return reduce_loss(
        loss.per_token, mask, "sequence_mean", loss_denominator(mask, "sequence_mean")
    )


def grad(scalar: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(scalar, leaf, retain_graph=True)[0]


def test_cispo_by_hand() -> None:
    # Ratios 2, 8, 1/2 at A = 1: the weights are 2, 5 (the cap), 1/2; the loss is -w A log pi.
    logprob = moved([math.log(2), math.log(8), -math.log(2)], [0, 0, 0])
    loss = cispo(logprob, OLD, ADVANTAGE, MASK)
    expected = [-2 * logprob[0, 0], -5 * logprob[0, 1], -0.5 * logprob[0, 2]]
    assert loss.per_token[0].tolist() == pytest.approx([value.item() for value in expected])
    assert loss.metrics["clip/fraction"][0].tolist() == [0, 1, 0]
    # The weight is clipped, not the update: the gradient is -w A at every token.
    slope = grad(loss.per_token[MASK].sum(), logprob)
    assert slope.flatten().tolist() == pytest.approx([-2, -5, -0.5, 2, 2, 0])
    tight = cispo(logprob, OLD, ADVANTAGE, MASK, clip_low=0.2, clip_high=0.0).per_token
    assert grad(tight[MASK].sum(), logprob)[0].tolist() == pytest.approx([-1, -1, -0.8])


def test_gspo_by_hand() -> None:
    # Row 1: mean log ratio (0.3 - 0.3 + 0.6) / 3 = 0.2; row 2: (0.1 - 0.3) / 2 = -0.1.
    logprob = moved([0.3, -0.3, 0.6], [0.1, -0.3, 7.0])
    loss = gspo(logprob, OLD, ADVANTAGE, MASK, clip_low=0.5, clip_high=0.5)
    up, down = math.exp(0.2), math.exp(-0.1)
    assert loss.per_token[MASK].tolist() == pytest.approx([-up] * 3 + [2 * down] * 2)
    assert mean_of_sequences(loss).item() == pytest.approx((-up + 2 * down) / 2)
    clipped = gspo(logprob, OLD, ADVANTAGE, MASK)  # 0.0003 and 0.0004
    assert clipped.per_token[MASK].tolist() == pytest.approx([-1.0004] * 3 + [2 * 0.9997] * 2)
    assert not grad(clipped.per_token[MASK].sum(), logprob).any()


def test_gspo_has_the_gradient_of_its_formula() -> None:
    logprob = moved([0.3, -0.3, 0.6], [0.1, -0.3, 7.0])
    loss = mean_of_sequences(gspo(logprob, OLD, ADVANTAGE, MASK, clip_low=9.0, clip_high=9.0))
    difference = torch.where(MASK, logprob - OLD, 0.0)
    ratio = (difference.sum(-1) / MASK.sum(-1)).exp()
    formula = (-ratio * ADVANTAGE[:, 0]).mean()
    assert loss.item() == pytest.approx(formula.item())
    assert torch.allclose(grad(loss, logprob), grad(formula, logprob))


def test_gmpo_by_hand() -> None:
    # Row 1, A > 0: log ratios 0.3, -0.9, 1.0 -> 0.3, -0.9, 0.4; mean -1/15.
    # Row 2, A < 0: log ratios 0.1, -0.8 -> 0.1, -0.4; mean -0.15.
    logprob = moved([0.3, -0.9, 1.0], [0.1, -0.8, 7.0])
    loss = gmpo(logprob, OLD, ADVANTAGE, MASK)
    first, second = math.exp(-1 / 15), math.exp(-0.15)
    assert loss.per_token[MASK].tolist() == pytest.approx([-first] * 3 + [2 * second] * 2)
    assert loss.metrics["clip/fraction"][MASK].tolist() == [0, 0, 1, 0, 1]
    # d/dlogp of -A exp(mean): a third (a half) of it at each token that is not clipped.
    slope = grad(2 * mean_of_sequences(loss), logprob)
    assert slope[0].tolist() == pytest.approx([-first / 3, -first / 3, 0])
    assert slope[1].tolist() == pytest.approx([second, 0, 0])


def test_cut_losses_keep_the_value_and_lose_the_gradient() -> None:
    selected = torch.tensor([[False, True, False], [True, False, False]])
    for loss in (top_entropy, budget):
        logprob = moved([0, 0, 0], [0, 0, 0])
        plain = policy_gradient(logprob, OLD, ADVANTAGE, MASK).per_token
        cut = loss(logprob, OLD, ADVANTAGE, MASK, selected=selected).per_token
        assert torch.equal(cut, plain)
        assert grad(cut[MASK].sum(), logprob).tolist() == [[-1, 0, -1], [0, 2, 0]]
    # 80/20 stands on DAPO's clip: 1 + 0.28 above.
    logprob = moved([1.0, 0, 0], [0, 0, 0])
    high = top_entropy(logprob, OLD, ADVANTAGE, MASK, selected=NONE)
    assert high.per_token[0, 0].item() == pytest.approx(-1.28)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_on_policy_the_gradient_is_reinforce(name: str) -> None:
    logprob = moved([0, 0, 0], [0, 0, 0])
    loss = LOSSES[name](logprob, OLD, ADVANTAGE, MASK).per_token
    assert torch.equal(
        grad(loss[MASK].sum(), logprob), torch.where(MASK, -ADVANTAGE, torch.zeros(()))
    )


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_padding_of_any_value_has_no_effect(name: str) -> None:
    logprob = moved([0.1, 0.2, -0.3], [0.4, 0.1, 0.0])
    whole = LOSSES[name](logprob, OLD, ADVANTAGE, MASK).per_token
    hole = LOSSES[name](torch.where(MASK, logprob, math.inf), OLD, ADVANTAGE, MASK).per_token
    assert torch.equal(whole[MASK], hole[MASK])
    slope = grad(torch.where(MASK, hole, 0.0).sum(), logprob)
    assert slope.isfinite().all()
    assert slope[1, 2] == 0


@pytest.mark.parametrize("name", ["cispo", "gspo", "gmpo"])
@pytest.mark.parametrize("reducer", ["token_mean", "sequence_mean"])
def test_parts_add_up_to_the_whole(name: str, reducer: Reducer) -> None:
    logprob = moved([0.1, 0.2, -0.3], [0.4, 0.1, 0.0])
    denominator = loss_denominator(MASK, reducer)

    def reduced(rows: slice) -> torch.Tensor:
        loss = LOSSES[name](logprob[rows], OLD[rows], ADVANTAGE[rows], MASK[rows])
        mask = MASK[rows]
        return reduce_loss(loss.per_token, mask, reducer, denominator)

    whole, parts = reduced(slice(0, 2)), reduced(slice(0, 1)) + reduced(slice(1, 2))
    assert parts.item() == pytest.approx(whole.item())
    assert torch.allclose(grad(parts, logprob), grad(whole, logprob))


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_huge_log_ratio_stays_finite(name: str, sign: float) -> None:
    logprob = moved([200.0, -200.0, 0.0], [-200.0, 100.0, 0.0])
    loss = LOSSES[name](logprob, OLD, sign * ADVANTAGE, MASK).per_token[MASK].sum()
    assert loss.isfinite()
    assert grad(loss, logprob).isfinite().all()
