from math import log

import pytest
import torch

from isentrope.objective.mismatch import importance_weight, mismatch_metrics

MASK = torch.tensor([[True, True, True, False]])
TRAINER = torch.tensor([[0.5, 0.3, 0.8, torch.nan]]).log()
SAMPLER = torch.tensor([[0.25, 0.6, 0.2, torch.nan]]).log()


def test_the_weight_is_the_ratio_up_to_the_cap() -> None:
    trainer = TRAINER.clone().requires_grad_()
    weight, cut = importance_weight(trainer, SAMPLER, MASK, 2.5)
    assert weight[0].tolist() == pytest.approx([2.0, 0.5, 2.5, 1.0])  # 0.8 / 0.2 = 4 is cut
    assert cut[0].tolist() == [0, 0, 1, 0]
    assert not weight.requires_grad


def test_a_generous_cap_cuts_nothing() -> None:
    weight, cut = importance_weight(TRAINER, SAMPLER, MASK, 100.0)
    assert weight[0].tolist() == pytest.approx([2.0, 0.5, 4.0, 1.0])
    assert not cut.any()


def test_the_weights_make_up_for_the_sampler() -> None:
    # Four tokens, each as often as the sampler gives it: the weighted mean is the trainer's.
    sampler, trainer = (
        torch.tensor([0.5, 0.25, 0.125, 0.125]),
        torch.tensor([0.25, 0.25, 0.25, 0.25]),
    )
    value = torch.tensor([3.0, -1.0, 2.0, 7.0])
    mask = torch.ones(1, 4, dtype=torch.bool)
    weight, _ = importance_weight(trainer.log()[None], sampler.log()[None], mask, 10.0)
    assert (sampler * weight[0] * value).sum() == pytest.approx((trainer * value).sum().item())


def test_the_distance_of_sampler_and_trainer() -> None:
    metrics = mismatch_metrics(TRAINER, SAMPLER, MASK)
    # k3 = r - 1 - log r at r = 2, 1/2, 4
    expected = ((1 - log(2)) + (log(2) - 0.5) + (3 - log(4))) / 3
    assert metrics["mismatch/kl"] == pytest.approx(expected)
    assert metrics["mismatch/max"] == pytest.approx(log(4))
    assert mismatch_metrics(TRAINER, TRAINER, MASK) == {"mismatch/kl": 0.0, "mismatch/max": 0.0}
