import math
from collections.abc import Callable

import pytest
import torch

from isentrope.objective.covariance import select_window, token_covariance
from isentrope.objective.losses import (
    KLEstimator,
    ReferenceEstimator,
    TokenLoss,
    clip_cov,
    entropy_bonus,
    kl_cov,
    kl_estimate,
    policy_gradient,
    ppo_clip,
    reference_kl,
)
from isentrope.objective.micro_batch import micro_batch_clip_cov, micro_batch_kl_cov

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], TokenLoss]

ADVANTAGE = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
LOGPROB = torch.tensor([[-0.1, -0.2], [-2.0, -3.0]])
ALL = torch.ones(2, 2, dtype=torch.bool)
ONE = torch.tensor([[False, False], [False, True]])
OPTIONS = ["policy_gradient", "ppo_clip", "clip_cov", "kl_cov"]


def loss_named(name: str, selected: torch.Tensor) -> Loss:
    plain: dict[str, Loss] = {"policy_gradient": policy_gradient, "ppo_clip": ppo_clip}
    if name in plain:
        return plain[name]
    by_selection = {"clip_cov": clip_cov, "kl_cov": kl_cov}[name]
    return lambda *tensors: by_selection(*tensors, selected=selected)


def gradient(loss: Loss, logprob: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    leaf = logprob.clone().requires_grad_()
    loss(leaf, old, ADVANTAGE, ALL).per_token.sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def ratio_pair(*ratios: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprob = torch.tensor([ratios]).log()
    return logprob, torch.zeros_like(logprob), torch.ones(1, len(ratios), dtype=torch.bool)


def test_ppo_clip_by_hand() -> None:
    logprob, old, mask = ratio_pair(1.5, 0.5, 1.5, 0.5)
    advantage = torch.tensor([[2.0, 2.0, -2.0, -2.0]])
    loss = ppo_clip(logprob, old, advantage, mask)
    # Good tokens gain at most 1.2 A; bad tokens lose at least 0.8 A; the others are plain.
    assert loss.per_token.tolist()[0] == pytest.approx([-2.4, -1.0, 3.0, 1.6])
    assert loss.metrics["clip/fraction"].tolist() == [[1, 0, 0, 1]]


def test_clip_higher_moves_the_upper_bound_only() -> None:
    logprob, old, mask = ratio_pair(1.5, 0.5)
    advantage = torch.tensor([[1.0, -1.0]])
    loss = ppo_clip(logprob, old, advantage, mask, clip_low=0.2, clip_high=0.28)
    assert loss.per_token.tolist()[0] == pytest.approx([-1.28, 0.8])


def test_dual_clip_bounds_the_loss_of_bad_tokens() -> None:
    logprob, old, mask = ratio_pair(10.0, 10.0, 2.0)
    advantage = torch.tensor([[-1.0, 0.0, -1.0]])
    loss = ppo_clip(logprob, old, advantage, mask, dual_clip=3.0)
    assert loss.per_token.tolist()[0] == pytest.approx([3.0, 0.0, 2.0])
    assert loss.metrics["clip/fraction"].tolist() == [[1, 0, 0]]


def test_policy_gradient_on_policy_is_reinforce() -> None:
    assert gradient(policy_gradient, LOGPROB, LOGPROB).tolist() == (-ADVANTAGE).tolist()


def test_clip_cov_cuts_the_gradient_and_keeps_the_value() -> None:
    selected = select_window(
        token_covariance(LOGPROB, ADVANTAGE, ALL),
        ALL,
        generator=torch.Generator().manual_seed(0),
        at_least=1,
    )
    cut = gradient(loss_named("clip_cov", selected), LOGPROB, LOGPROB)
    whole = gradient(policy_gradient, LOGPROB, LOGPROB)
    assert int((cut == 0).sum()) == 1
    assert torch.equal(cut, torch.where(selected, 0.0, whole))
    value = clip_cov(LOGPROB, LOGPROB, ADVANTAGE, ALL, selected=selected).per_token
    assert torch.equal(value, policy_gradient(LOGPROB, LOGPROB, ADVANTAGE, ALL).per_token)


@pytest.mark.parametrize("estimator", ["abs", "k2", "k3"])
def test_kl_cov_does_nothing_on_policy(estimator: KLEstimator) -> None:
    def loss(*tensors: torch.Tensor) -> TokenLoss:
        return kl_cov(*tensors, selected=ONE, kl_estimator=estimator)

    assert torch.equal(
        gradient(loss, LOGPROB, LOGPROB), gradient(policy_gradient, LOGPROB, LOGPROB)
    )


def test_kl_cov_by_hand() -> None:
    old = LOGPROB.clone()
    old[1, 1] += 0.5  # log ratio -0.5 at the selected token
    loss = kl_cov(LOGPROB, old, ADVANTAGE, ALL, selected=ONE, kl_coefficient=2.0)
    ratio = math.exp(-0.5)
    assert loss.per_token.flatten().tolist() == pytest.approx([-1, -1, 1, ratio + 2 * 0.5])
    slope = gradient(loss_named("kl_cov", ONE), LOGPROB, old)[1, 1]
    assert float(slope) == pytest.approx(ratio - 1)  # -A ratio, and the sign of the log ratio


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", -0.5), ("abs", 0.5), ("k2", 0.125), ("k3", math.exp(0.5) - 1 - 0.5)],
)
def test_kl_estimates(estimator: KLEstimator, expected: float) -> None:
    assert float(kl_estimate(torch.tensor(0.5), estimator)) == pytest.approx(expected)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_unbiased_estimators_average_to_the_exact_kl(estimator: KLEstimator) -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    exact = (p * (p / q).log()).sum()
    assert float((p * kl_estimate((q / p).log(), estimator)).sum()) == pytest.approx(float(exact))


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("on_policy", [True, False])
def test_the_reference_kl_has_the_gradient_of_the_kl(
    estimator: ReferenceEstimator, on_policy: bool
) -> None:
    """Six actions, so that the expectation over samples of the old policy is a sum over them."""
    logits = torch.tensor([1.0, -0.5, 0.3, 2.0, -1.0, 0.0], dtype=torch.double, requires_grad=True)
    reference = torch.tensor([0.2, 0.1, -1.0, 0.5, 0.8, 1.5], dtype=torch.double).log_softmax(0)
    logprob = logits.log_softmax(0)
    away = torch.tensor([0.4, -0.3, 0.0, -0.6, 0.5, 0.2], dtype=torch.double)
    old = (logits.detach() if on_policy else logits.detach() + away).log_softmax(0)
    exact = (logprob.exp() * (logprob - reference)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    everything = torch.ones(1, 6, dtype=torch.bool)
    new, drawn, start = (values.unsqueeze(0) for values in (logprob, old, reference))
    estimate = reference_kl(new, drawn, start, everything, estimator)
    (found,) = torch.autograd.grad((old.exp() * estimate[0]).sum(), logits)
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-12)
    if estimator == "k3":
        value = (old.exp() * estimate[0]).sum().detach()
        assert float(value) == pytest.approx(float(exact.detach()))  # unbiased off policy too


def test_entropy_bonus_lowers_the_loss() -> None:
    assert entropy_bonus(torch.tensor([[2.0]]), 0.1).tolist()[0] == pytest.approx([-0.2])


@pytest.mark.parametrize("name", OPTIONS)
def test_padding_of_any_value_has_no_effect(name: str) -> None:
    mask = torch.tensor([[True, False], [True, True]])
    leaf = LOGPROB.clone().requires_grad_()
    hole = torch.where(mask, leaf, math.inf)
    loss = loss_named(name, ONE)(hole, LOGPROB - 0.1, ADVANTAGE, mask).per_token
    torch.where(mask, loss, 0.0).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert leaf.grad[0, 1] == 0


@pytest.mark.parametrize("name", OPTIONS)
def test_a_huge_log_ratio_stays_finite(name: str) -> None:
    leaf = torch.tensor([[0.0, -200.0]], requires_grad=True)
    selected, mask = torch.tensor([[True, True]]), torch.ones(1, 2, dtype=torch.bool)
    old = torch.tensor([[-100.0, 0.0]])
    loss = loss_named(name, selected)(leaf, old, -torch.ones(1, 2), mask).per_token.sum()
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


def test_the_micro_batch_mode_loses_the_value_of_a_cut_token() -> None:
    generator = torch.Generator().manual_seed(0)
    loss, cut = micro_batch_clip_cov(LOGPROB, LOGPROB, ADVANTAGE, ALL, generator=generator)
    assert int(cut.sum()) == 1
    assert torch.equal(loss.per_token, torch.where(cut, 0.0, -ADVANTAGE))


def test_the_micro_batch_mode_always_takes_a_token() -> None:
    # One response alone has a constant advantage: no covariance, and still one token is taken.
    loss, chosen = micro_batch_kl_cov(LOGPROB[:1], LOGPROB[:1] - 0.5, ADVANTAGE[:1], ALL[:1])
    assert chosen.tolist() == [[True, False]]
    ratio = math.exp(0.5)
    assert loss.per_token.tolist()[0] == pytest.approx([-ratio + 0.5, -ratio])
