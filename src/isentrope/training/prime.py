"""PRIME's implicit process reward model (arXiv 2502.01456): rewards for tokens, from outcomes.

A language model phi, started from the policy, scores a response by how much likelier it finds the
response than the start policy does:

    reward of token t    p_t = beta (log phi(y_t | ...) - log pi_start(y_t | ...))
    outcome              P(right) = sigmoid(sum of p_t)

It is trained on the outcomes of each rollout by cross-entropy, after its rewards for the rollout
are taken: the accuracy that is logged is that on responses which it has not been trained on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from isentrope.config import TrainConfig
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_logprob, response_stats
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.packing import micro_batches
from isentrope.policy.sampler import Rollout
from isentrope.training.optimizer import clipped_step

__all__ = ["ImplicitRewardModel", "make_reward_model", "outcome_metrics"]


@dataclass(frozen=True, slots=True)
class ImplicitRewardModel:
    """The reward model with its optimizer."""

    config: TrainConfig
    model: LanguageModel
    optimizer: torch.optim.Optimizer

    def step(
        self, rollout: Rollout, reference: Tensor, outcome: Tensor, groups: Tensor, step: int
    ) -> tuple[Tensor, dict[str, float]]:
        """The rewards (B, T) of the tokens, and metrics; then trains on the outcomes (B,).

        `reference` holds the log-probs (B, T) of the start policy.
        """
        temperature = self.config.rollout.temperature
        size = min(self.config.optimizer.micro_batch_size, len(outcome))
        logprob = self.model.training_rows.fit(
            lambda size: response_logprob(self.model, rollout, temperature, size), size
        )
        rewards = self.config.prime.beta * torch.where(rollout.mask, logprob - reference, 0.0)
        metrics = outcome_metrics(rewards.sum(-1), outcome, groups)
        order = torch.randperm(len(outcome), generator=stream(self.config.seed, "prime", step))
        parts = order.tensor_split(min(len(order), self.config.prime.mini_batches))
        losses = [self.learn(rollout.rows(p), reference[p], outcome[p]) for p in parts]
        return rewards, {**metrics, "prime/loss": sum(losses) / len(losses)}

    def learn(self, rollout: Rollout, reference: Tensor, outcome: Tensor) -> float:
        """One update; returns the mean cross-entropy before it, in nats a response."""
        size = min(self.config.optimizer.micro_batch_size, len(outcome))
        total = self.model.training_rows.fit(
            lambda size: self.add_up(rollout, reference, outcome, size), size
        )
        clipped_step(self.model.network, self.optimizer, self.config.prime.gradient_clip)
        return total

    def add_up(self, rollout: Rollout, reference: Tensor, outcome: Tensor, size: int) -> float:
        """Adds up the gradient over micro-batches of that size; returns the mean cross-entropy."""
        settings, device = self.config.prime, self.model.device
        recomputes = self.config.model.gradient_checkpointing
        self.model.network.train(recomputes)
        self.optimizer.zero_grad(set_to_none=True)  # what a call that ran out of memory left
        total = 0.0
        for rows in micro_batches(rollout, size, shared=not recomputes):
            part = rollout.rows(rows).trimmed()
            stats = response_stats(self.model, part, self.config.rollout.temperature)
            mask = part.mask.to(device)
            start_logprob = reference[rows, : mask.shape[1]].to(device)
            score = torch.where(mask, stats.logprob - start_logprob, 0.0).sum(-1) * settings.beta
            target = outcome[rows].to(device, score.dtype)
            loss = binary_cross_entropy_with_logits(score, target, reduction="sum") / len(outcome)
            loss.backward()
            total += loss.item()
        self.model.network.eval()
        return total

    def state(self) -> dict[str, object]:
        """What a checkpoint keeps of it."""
        return {
            "network": self.model.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Sets what `state` gave."""
        self.model.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


def make_reward_model(config: TrainConfig) -> ImplicitRewardModel:
    """The reward model as it starts: the start policy."""
    model = load_model(config.model)
    optimizer = torch.optim.AdamW(
        model.network.parameters(), lr=config.prime.learning_rate, weight_decay=0.0
    )
    return ImplicitRewardModel(config, model, optimizer)


def outcome_metrics(score: Tensor, outcome: Tensor, groups: Tensor) -> dict[str, float]:
    """How well scores (B,) tell right responses from wrong ones.

    `prime/accuracy` of P(right) > 1/2 beside `prime/chance`, that of always naming the commoner
    outcome; `prime/ranking`, the share of right-wrong pairs within a group in which the right one
    scores higher (ties count half), which is 1/2 by chance and NaN without such pairs.
    """
    right = outcome > 0.5
    share = right.float().mean().item()
    pairs = (groups[:, None] == groups) & right[:, None] & ~right
    higher = (score[:, None] > score).float() + 0.5 * (score[:, None] == score)
    return {
        "prime/accuracy": ((score > 0) == right).float().mean().item(),
        "prime/chance": max(share, 1 - share),
        "prime/ranking": higher[pairs].mean().item(),
    }
