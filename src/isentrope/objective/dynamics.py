"""How entropy changes in one update of a softmax policy, to first order (paper, section 3).

All take log-probabilities over the whole vocabulary, (..., V), and return one value per state,
in nats. A likely action with a high advantage lowers the entropy; an unlikely one raises it.
"""

from jaxtyping import Float
from torch import Tensor

__all__ = [
    "entropy",
    "natural_policy_gradient_change",
    "policy_covariance",
    "predicted_change",
    "vanilla_policy_gradient_change",
]

Logprobs = Float[Tensor, "*states V"]
PerState = Float[Tensor, "*states"]


def predicted_change(logprobs: Logprobs, logit_change: Logprobs) -> PerState:
    """-Cov_{a~pi}(log pi(a|s), z'(s,a) - z(s,a)): the entropy change of a given logit change.

    Lemma 1 of the paper. Adding a constant to the logits of a state changes nothing.
    """
    return -policy_covariance(logprobs, logprobs, logit_change)


def vanilla_policy_gradient_change(
    logprobs: Logprobs, advantage: Logprobs, step_size: float
) -> PerState:
    """-eta Cov_{a~pi}(log pi, pi A): tabular softmax policy gradient. Theorem 1 of the paper."""
    return predicted_change(logprobs, step_size * logprobs.exp() * advantage)


def natural_policy_gradient_change(
    logprobs: Logprobs, advantage: Logprobs, step_size: float
) -> PerState:
    """-eta Cov_{a~pi}(log pi, A): natural policy gradient. Theorem 2 of the paper."""
    return predicted_change(logprobs, step_size * advantage)


def policy_covariance(logprobs: Logprobs, x: Logprobs, y: Logprobs) -> PerState:
    """Cov_{a~pi}(x, y) in each state; actions of probability 0 count nothing."""
    probability = logprobs.exp()
    possible = probability > 0
    x, y = x.masked_fill(~possible, 0.0), y.masked_fill(~possible, 0.0)
    mean_x = (probability * x).sum(-1, keepdim=True)
    mean_y = (probability * y).sum(-1, keepdim=True)
    return (probability * (x - mean_x) * (y - mean_y)).sum(-1)


def entropy(logprobs: Logprobs) -> PerState:
    """-sum_a pi(a|s) log pi(a|s)."""
    return -(logprobs.exp() * logprobs.masked_fill(logprobs.isinf(), 0.0)).sum(-1)
