"""The updates of one step: mini-batches, whole-mini-batch selection, micro-batches, optimizer."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isentrope.config import TrainConfig
from isentrope.control.controllers import Control
from isentrope.objective.covariance import (
    rewarded_tokens,
    selection_metrics,
    token_covariance,
)
from isentrope.objective.losses import entropy_bonus, kl_estimate, log_ratio, reference_kl
from isentrope.objective.masking import loss_denominator, masked_sum, reduce_loss
from isentrope.objective.mismatch import importance_weight, mismatch_metrics
from isentrope.objective.streams import stream
from isentrope.policy.adapters import start_policy
from isentrope.policy.forward import response_logprob, response_stats
from isentrope.policy.model import LanguageModel
from isentrope.policy.packing import micro_batches
from isentrope.policy.sampler import Rollout
from isentrope.policy.samplers import Sampler
from isentrope.training.objective import Objective
from isentrope.training.optimizer import clipped_step
from isentrope.training.prime import ImplicitRewardModel

__all__ = ["Learner", "MiniBatch", "learning_rate"]


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The responses of one optimizer step, and what is known of each token before it."""

    rollout: Rollout
    advantage: Tensor
    covariance: Tensor
    selected: Tensor

    def rows(self, index: Tensor) -> "MiniBatch":
        """Some of the responses, without their surplus padding."""
        part = self.rollout.rows(index).trimmed()
        width = part.tokens.shape[1]
        per_token = (self.advantage, self.covariance, self.selected)
        return MiniBatch(part, *(values[index, :width] for values in per_token))


@dataclass(frozen=True, slots=True)
class Learner:
    """What an update works with."""

    config: TrainConfig
    objective: Objective
    model: LanguageModel
    reference: LanguageModel | None
    """For a reference KL: the start policy, or the model itself if it has adapters."""
    optimizer: torch.optim.Optimizer
    control: Control | None = None
    """What an entropy controller says of this step; None: as configured."""
    reward_model: ImplicitRewardModel | None = None
    """PRIME's."""
    sampler: Sampler | None = None
    """None: the model samples by itself."""

    @property
    def entropy_coefficient(self) -> float:
        """Weight of the entropy bonus in this step."""
        if self.control is None:
            return self.config.objective.entropy_coefficient
        return self.control.entropy_coefficient

    def update(
        self, rollout: Rollout, advantage: Tensor, groups: Tensor, step: int
    ) -> tuple[dict[str, float], Tensor, Tensor]:
        """Trains on a rollout; returns metrics, and each token's covariance and selection (B, T)."""
        covariance = torch.zeros_like(advantage)
        selected, rewarded = torch.zeros_like(rollout.mask), torch.zeros_like(rollout.mask)
        sums: dict[str, float] = defaultdict(float)
        norms: list[float] = []
        mismatch: dict[str, float] = {}
        order = stream(self.config.seed, "order", step)
        set_learning_rate(self.optimizer, learning_rate(self.config, step))
        # transformers recomputes activations in training mode only.
        self.model.network.train(self.config.model.gradient_checkpointing)
        for number, rows in enumerate(deal(groups, self.config.optimizer.mini_batches, order)):
            draws = stream(self.config.seed, f"selection {number}", step)
            batch = self.prepare(rollout.rows(rows), advantage[rows], draws)
            # The first mini-batch is on policy: its ratio is 1, not 1 plus rounding.
            selected[rows], logprob = self.accumulate(batch, sums, draws, on_policy=number == 0)
            if number == 0:
                drawn = batch.rollout
                mismatch = mismatch_metrics(logprob, drawn.sampler_logprob, drawn.mask)
            covariance[rows] = batch.covariance
            rewarded[rows] = rewarded_tokens(batch.advantage, batch.rollout.mask)
            norms.append(self.apply())
        self.model.network.eval()
        tokens = int(rollout.mask.sum())
        metrics = {name: total / tokens for name, total in sums.items()}
        metrics |= norm_metrics(norms)
        metrics["learning_rate"] = learning_rate(self.config, step)
        metrics |= {**mismatch, **selection_metrics(covariance, rewarded, selected, rollout.mask)}
        size = self.config.optimizer.micro_batch_size
        metrics |= self.model.training_rows.metric("micro_batch_size", size)
        return metrics, covariance, selected

    def rescored(self, rollout: Rollout) -> Rollout:
        """The rollout with the trainer's own log-probs, where the objective weighs them against
        the sampler's and the sampler has not had them computed."""
        if self.config.objective.importance_cap is None or self.config.rollout.sampler == "vllm":
            return rollout
        return replace(rollout, logprob=self.current_logprob(rollout))

    def current_logprob(self, rollout: Rollout) -> Tensor:
        """Log-probs (B, T) of the policy as it is."""
        temperature, size = self.config.rollout.temperature, self.micro_batch_size(rollout)
        return self.model.training_rows.fit(
            lambda size: response_logprob(self.model, rollout, temperature, size), size
        )

    def prepare(self, rollout: Rollout, advantage: Tensor, draws: torch.Generator) -> MiniBatch:
        """The mini-batch with its covariance and selection, both over all of its tokens."""
        logprob, mask = rollout.logprob, rollout.mask
        if self.config.objective.covariance_policy == "current":
            logprob = self.current_logprob(rollout)
        budget = self.control.budget if self.control else None
        advantage = self.objective.shape(advantage, mask, rollout.entropy, logprob, self.control)
        covariance = token_covariance(logprob, advantage, mask)
        selected = self.objective.select(covariance, mask, draws, rollout.entropy, budget)
        return MiniBatch(rollout, advantage, covariance, selected)

    def accumulate(
        self,
        batch: MiniBatch,
        sums: dict[str, float],
        draws: torch.Generator,
        *,
        on_policy: bool,
    ) -> tuple[Tensor, Tensor]:
        """Adds up the gradient over micro-batches; returns the tokens selected and the
        log-probs, both (B, T).

        Where a micro-batch does not fit in memory, the mini-batch is begun anew with half its
        size. The gradient that a failed backward pass has left is dropped with the rest: that
        costs the time of the micro-batches before it, and no memory.
        """
        before, state = dict(sums), draws.get_state()

        def from_the_start(size: int) -> tuple[Tensor, Tensor]:
            self.optimizer.zero_grad(set_to_none=True)
            sums.clear()
            sums.update(before)
            draws.set_state(state)
            return self.add_up(batch, size, sums, draws, on_policy=on_policy)

        size = self.micro_batch_size(batch.rollout)
        return self.model.training_rows.fit(from_the_start, size)

    def micro_batch_size(self, rollout: Rollout) -> int:
        """The configured one, or the size of the rollout where that is less."""
        return min(self.config.optimizer.micro_batch_size, len(rollout.tokens))

    def add_up(
        self,
        batch: MiniBatch,
        size: int,
        sums: dict[str, float],
        draws: torch.Generator,
        *,
        on_policy: bool,
    ) -> tuple[Tensor, Tensor]:
        """The same with micro-batches of that size."""
        settings = self.config.objective
        denominator = loss_denominator(
            batch.rollout.mask, settings.reducer, self.config.rollout.max_new_tokens
        ).to(self.model.device)
        selected, logprob = batch.selected.clone(), torch.zeros(batch.selected.shape)
        shared = not self.model.network.training
        for rows in micro_batches(batch.rollout, size, shared=shared):
            part = batch.rows(rows)
            loss, chosen, current = self.token_loss(part, sums, draws, on_policy=on_policy)
            mask = part.rollout.mask.to(loss.device)
            reduce_loss(loss, mask, settings.reducer, denominator).backward()
            place = rows, slice(mask.shape[1])
            selected[place], logprob[place] = chosen.cpu(), current.cpu()
        return selected, logprob

    def token_loss(
        self,
        part: MiniBatch,
        sums: dict[str, float],
        draws: torch.Generator,
        *,
        on_policy: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of each token of a micro-batch, with gradient, the tokens selected, and the
        log-probs without gradient, (B, T)."""
        settings, device = self.config.objective, self.model.device
        rollout, advantage = part.rollout, part.advantage.to(device)
        mask, selected = rollout.mask.to(device), part.selected.to(device)
        stats = response_stats(self.model, rollout, self.config.rollout.temperature)
        behaviour = rollout.logprob.to(device)
        old = stats.logprob.detach() if on_policy else behaviour
        (loss, metrics), selected = self.objective.token_loss(
            stats.logprob, old, advantage, mask, selected, draws
        )
        if settings.importance_cap is not None:
            drawn = rollout.sampler_logprob.to(device)
            weight, cut = importance_weight(behaviour, drawn, mask, settings.importance_cap)
            loss = loss * weight
            metrics = {**metrics, "mismatch/weight_mean": weight, "mismatch/weight_cut": cut}
        metrics = {**metrics, "loss/policy": loss}
        metrics["kl/behaviour"] = kl_estimate(log_ratio(stats.logprob, behaviour, mask), "k3")
        if self.entropy_coefficient:
            loss = loss + entropy_bonus(stats.entropy, self.entropy_coefficient)
        if settings.reference_kl_coefficient and settings.reference_kl_place == "loss":
            kl = self.reference_kl(rollout, stats.logprob, old, mask)
            loss = loss + settings.reference_kl_coefficient * kl
            metrics["kl/reference"] = kl
        for name, values in metrics.items():
            sums[name] += masked_sum(values.detach(), mask).item()
        return loss, selected, stats.logprob.detach()

    def reference_kl(
        self, rollout: Rollout, logprob: Tensor, old_logprob: Tensor, mask: Tensor
    ) -> Tensor:
        """Estimate (B, T) of KL(policy || start policy)."""
        assert self.reference is not None
        with start_policy(self.reference) as reference:
            start = response_stats(reference, rollout, self.config.rollout.temperature)
        estimator = self.config.objective.reference_kl_estimator
        return reference_kl(logprob, old_logprob, start.logprob, mask, estimator)

    def apply(self) -> float:
        """One optimizer step; returns the gradient's norm before clipping."""
        return clipped_step(self.model.network, self.optimizer, self.config.optimizer.gradient_clip)


def norm_metrics(norms: list[float]) -> dict[str, float]:
    """The mean of the gradients' norms; how many of them were not finite, where any was."""
    finite = [norm for norm in norms if math.isfinite(norm)]
    skipped = len(norms) - len(finite)
    mean = sum(finite) / len(finite) if finite else math.nan
    return {"grad_norm": mean} | ({"updates/skipped": skipped} if skipped else {})


def deal(groups: Tensor, parts: int, order: torch.Generator) -> list[Tensor]:
    """Rows of each mini-batch: whole groups, in random order, in nearly equal parts."""
    names = groups.unique()
    shuffled = names[torch.randperm(len(names), generator=order)]
    hands = torch.tensor_split(shuffled, min(parts, len(names)))
    return [torch.isin(groups, hand).nonzero().squeeze(-1) for hand in hands]


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of a step: a linear warm-up, then the schedule."""
    settings = config.optimizer
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, config.steps - settings.warmup_steps)
    shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    return settings.learning_rate * shape[settings.schedule]


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Sets it for all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = value
