"""From rewards to advantages: length penalty, KL in the reward, process rewards."""

import torch
from torch import Tensor

from isentrope.objective.losses import kl_estimate
from isentrope.objective.masking import masked_mean
from isentrope.objective.rewards import kl_penalised, overlong_penalty
from isentrope.policy.adapters import start_policy
from isentrope.policy.forward import response_logprob
from isentrope.training.experience import Experience
from isentrope.training.objective import takes
from isentrope.training.update import Learner

__all__ = ["credit"]


def credit(learner: Learner, kept: Experience, step: int) -> tuple[Tensor, dict[str, float]]:
    """The advantages (B, T) of the responses that a step learns from, and metrics.

    The reward model of PRIME, where there is one, is trained on the way.
    """
    settings, rollout = learner.config.rollout, kept.rollout
    mask, rewards, metrics = rollout.mask, kept.rewards, {}
    if settings.overlong_buffer:
        length_penalty = overlong_penalty(
            mask, settings.max_new_tokens, settings.overlong_buffer, settings.overlong_penalty
        )
        rewards = rewards - length_penalty
        metrics["reward/length_penalty"] = length_penalty.mean().item()
    penalty = process = None
    start = start_logprob(learner, kept)
    if start is not None and learner.config.objective.reference_kl_place == "reward":
        coefficient = learner.config.objective.reference_kl_coefficient
        kl = kl_estimate(start - rollout.logprob, "k1")
        metrics["kl/reference"] = masked_mean(kl, mask).item()
        penalty = coefficient * kl
        if not takes(learner.objective.advantage_at(step), "penalty"):
            rewards = kl_penalised(rewards, penalty, mask)
    if start is not None and learner.reward_model is not None:
        outcome = kept.rewards.clamp(0, 1)
        process, outcomes = learner.reward_model.step(rollout, start, outcome, kept.groups, step)
        metrics |= outcomes
    advantage = learner.objective.credit(
        rewards, kept.groups, mask, step, penalty=penalty, process=process
    )
    return advantage, metrics


def start_logprob(learner: Learner, kept: Experience) -> Tensor | None:
    """Log-probs (B, T) of the start policy, if a reward needs them."""
    objective = learner.config.objective
    in_reward = objective.reference_kl_coefficient and objective.reference_kl_place == "reward"
    if learner.reward_model is None and not in_reward:
        return None
    assert learner.reference is not None, "prepare loads the start policy where it is needed"
    temperature, size = learner.config.rollout.temperature, learner.micro_batch_size(kept.rollout)
    with start_policy(learner.reference) as reference:
        logprob = reference.training_rows.fit(
            lambda size: response_logprob(reference, kept.rollout, temperature, size), size
        )
    return torch.where(kept.rollout.mask, logprob, kept.rollout.logprob)
