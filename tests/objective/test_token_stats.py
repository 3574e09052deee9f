"""Token statistics from logits: hand-computed numbers, the reference, gradients."""

import math

import pytest
import torch

from isentrope.errors import ConfigError, DataError
from isentrope.objective.token_stats import (
    reference_token_stats,
    token_stats,
    token_stats_from_hidden,
)


def test_entropy_of_three_logits_at_three_temperatures():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    label = torch.tensor([0])
    for temperature, entropy in ((1.0, 0.832396), (0.5, 0.441057), (1.5, 0.965332)):
        stats = token_stats(logits, label, temperature=temperature)
        assert stats.entropy.item() == pytest.approx(entropy, abs=1e-6)
        expected = math.exp(2 / temperature) / sum(math.exp(v / temperature) for v in (2, 1, 0))
        assert stats.logprob.item() == pytest.approx(math.log(expected), abs=1e-6)


def test_forbidden_tokens():
    ninf = -torch.inf
    logits = torch.tensor([[0.0, 0.0, ninf], [5.0, ninf, ninf], [ninf] * 3], requires_grad=True)
    stats = token_stats(logits, torch.tensor([0, 0, 0]))
    assert stats.entropy[0].item() == pytest.approx(math.log(2), abs=1e-6)
    assert stats.entropy[1].item() == pytest.approx(0.0, abs=1e-6)
    assert torch.isnan(stats.entropy[2])
    assert torch.isnan(stats.logprob[2])
    (stats.logprob + stats.entropy)[:2].sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad[:2]).all()
    assert (logits.grad[:2][logits[:2] == ninf] == 0).all()


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("scale", [None, 0.25])
def test_gradcheck(softcap, scale):
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 7, (2, 3))
    mask = torch.tensor([[True, True, False], [True, False, True]])

    def both(x):
        stats = token_stats(x, labels, temperature=0.7, softcap=softcap, scale=scale, mask=mask)
        return stats.logprob, stats.entropy

    assert torch.autograd.gradcheck(both, (logits,))


def test_hidden_equals_reference():
    torch.manual_seed(0)
    hidden = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (2, 5))

    def both(h, w, b):
        stats = token_stats_from_hidden(h, w, labels, bias=b, temperature=1.3, softcap=4.0)
        return stats.logprob, stats.entropy

    ref = reference_token_stats(hidden @ weight.T + bias, labels, temperature=1.3, softcap=4.0)
    torch.testing.assert_close(both(hidden, weight, bias), (ref.logprob, ref.entropy))
    assert torch.autograd.gradcheck(both, (hidden, weight, bias))


def test_errors():
    logits, labels = torch.zeros(1, 3), torch.tensor([3])
    with pytest.raises(DataError, match="vocabulary from 0 to 2"):
        token_stats(logits, labels)
    with pytest.raises(ConfigError, match="temperature is 0"):
        token_stats(logits, torch.tensor([0]), temperature=0.0)
