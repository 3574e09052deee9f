"""Entropy control in TRL: `EntropyGRPOTrainer` in place of `GRPOTrainer`, two lines of change.

    args = EntropyGRPOConfig(..., entropy_control="clip_cov")
    trainer = EntropyGRPOTrainer(model=..., reward_funcs=..., args=args, train_dataset=...)

Tokens are selected over all responses of an optimizer step: all micro-batches of the accumulation
window, all ranks. TRL's loss is not copied. Clip-Cov and the isentropic budget hand it an advantage
of 0 at the selected tokens, or the reshaped advantages of `success` and `decorrelation`; KL-Cov adds its penalty, reduced as TRL reduces the rest. With
`entropy_control="none"` the trainer computes what GRPOTrainer computes, to the last bit.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from isentrope.errors import ConfigError, require
from isentrope.integrations.rollout_entropy import entropy_means, entropy_sums
from isentrope.integrations.selection import Choice, Tokens, choose, draws, row_keys, shaper
from isentrope.integrations.trl.config import EntropyGRPOConfig, selection
from isentrope.integrations.trl.law import LawCallback
from isentrope.integrations.trl.probe import AfterUpdate, Probe
from isentrope.objective.advantages import zero_signal
from isentrope.objective.losses import kl_estimate, log_ratio
from isentrope.objective.masking import reduce_loss

__all__ = ["EntropyGRPOConfig", "EntropyGRPOTrainer", "LawCallback"]

trl = require("trl", "trl")
trl_models = require("trl.models.utils", "trl")

CUTTING = ("clip_cov", "budget")
"""Controls that cut the gradient of the selected tokens."""

RESHAPING = ("success", "decorrelation")
"""Controls that change advantages."""


class EntropyGRPOTrainer(trl.GRPOTrainer):
    """GRPOTrainer with an entropy control, its metrics, and the law's forecast in the log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.args, EntropyGRPOConfig):
            raise ConfigError(
                f"args is a {type(self.args).__name__}; give EntropyGRPOTrainer an "
                "EntropyGRPOConfig: it takes the same settings and the entropy control's"
            )
        self._budget = self.args.controller()
        if self._budget is not None:
            self.add_callback(self._budget)
        self._scoring = False
        self._signal = torch.empty(0, dtype=torch.bool)
        self._entropies: list[Tensor] = []
        self._logprob: Tensor | None = None
        self._window: list[tuple[Tensor, Tensor]] = []
        self._probe: Probe | None = None
        self.add_callback(AfterUpdate(self._finish_update))
        LawCallback().attach(self)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's rollout; its entropy before any filtering goes to the log."""
        self._scoring, self._entropies = self.model.training, []
        try:
            batch = super()._generate_and_score_completions(inputs)
        finally:
            self._scoring = False
        if not self.model.training:
            return batch
        if batch.get("old_per_token_logps") is not None:  # the first pass was the policy's
            self._log_entropy(self._entropies[0], response_mask(batch))
        self._entropies = []
        return self._without_zero_signal(batch) if self.args.drop_zero_signal else batch

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        """TRL's rewards of all ranks' responses; notes which of these teach something."""
        rewards = super()._calculate_rewards(*args, **kwargs)
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        total = total.masked_fill(rewards.isnan().all(1), math.nan)
        groups = torch.arange(len(total), device=total.device) // self.num_generations
        self._signal = ~zero_signal(total, groups) & ~total.isnan()
        return rewards

    def _without_zero_signal(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The rollout without groups of equal rewards and without what could not be scored, both
        masked out and out of the denominator.

        It goes by the rewards of all ranks: the advantage of equal ones need not be 0, since their
        mean may round, and that of others may be.
        """
        rows = len(batch["advantages"])
        first = self.accelerator.process_index * rows
        kept = self._signal[first : first + rows].unsqueeze(-1) * batch["completion_mask"]
        tokens = kept if batch.get("tool_mask") is None else kept * batch["tool_mask"]
        count = self.accelerator.gather(tokens.sum()).sum()
        return {
            **batch,
            "completion_mask": kept,
            "num_items_in_batch": count,
            "unfiltered_mask": batch["completion_mask"],
        }

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's log-probabilities, kept for the penalty, and entropies where a rollout is scored.

        A reference model has none: TRL gives the fused head with entropy to the policy alone.
        """
        wanted = self._scoring and model is not self.ref_model
        if wanted:
            kwargs["compute_entropy"] = True
        result = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        if wanted:
            self._entropies.append(result[1])
        self._logprob = result[0]
        return result

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's micro-batch, with its part of the selection of the whole accumulation window."""
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training:
            return inputs
        place = self._step % self.current_gradient_accumulation_steps
        if place == 0:
            self._begin_update()
        if self.args.entropy_control == "none":
            return inputs
        selected, advantage = self._window[place]
        changed = {**inputs, "selected": selected}
        if self.args.entropy_control in RESHAPING:
            changed["advantages"] = advantage
        if self.args.entropy_control in CUTTING:
            advantages = per_token(inputs["advantages"])
            changed["advantages"] = torch.where(selected, 0.0, advantages)
        return changed

    def _begin_update(self) -> None:
        """Selects the tokens of the accumulation window that begins here."""
        count, generated = self.current_gradient_accumulation_steps, self.args.steps_per_generation
        assert self._buffered_inputs is not None
        slices = [self._buffered_inputs[(self._step + i) % generated] for i in range(count)]
        if self.args.probe_tokens:
            self._probe = Probe(self.model, slices[0], self.args.probe_tokens)
        if not self.args.measures:
            return
        choice = self._choose(slices)
        self._log(choice.metrics)
        sizes = [len(part["advantages"]) for part in slices]
        parts = choice.selected.split(sizes), choice.advantage.split(sizes)
        self._window = list(zip(*parts, strict=True))

    def _choose(self, slices: list[dict[str, Any]]) -> Choice:
        """The selection over the window's slices on all ranks."""
        tokens = Tokens(
            keys=torch.cat([row_keys(*whole(part)) for part in slices]),
            logprob=self._window_logprob(slices),
            advantage=torch.cat([per_token(part["advantages"]) for part in slices]),
            mask=torch.cat([response_mask(part) for part in slices]),
        )
        budget = 0.0
        if self._budget is not None:
            self._log(self._budget.metrics())
            budget = self._budget.control.budget or 0.0
        select = selection(self.args, budget)
        generator = draws(self.args.seed, self.state.global_step)
        return choose(tokens, select, generator, shape=shaper(self.args.entropy_control, budget))

    def _window_logprob(self, slices: list[dict[str, Any]]) -> Tensor:
        """Log-probabilities (B, T): those of TRL where they will do, else one no-grad forward."""
        known = [part.get("old_per_token_logps") for part in slices]
        unknown = any(logprob is None for logprob in known)
        if self.args.covariance_policy == "behaviour" and not unknown:
            return torch.cat([logprob for logprob in known if logprob is not None])
        settings = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), trl_models.disable_gradient_checkpointing(self.model, settings):
            results = [self._score(part) for part in slices]
        self._logprob = None
        if unknown:  # on policy, so TRL has not scored the rollout
            mask = torch.cat([unfiltered_mask(part) for part in slices])
            self._log_entropy(torch.cat([result[1] for result in results]), mask)
        return torch.cat([result[0] for result in results])

    def _score(self, part: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of a slice."""
        method = super()._get_per_token_logps_and_entropies
        extra = inspect.signature(method).parameters
        vision = {name: part[name] for name in extra if part.get(name) is not None}
        tokens, attention = whole(part)
        width = part["completion_ids"].shape[1]
        result = method(self.model, tokens, attention, width, compute_entropy=True, **vision)
        return result[0], result[1]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss, and KL-Cov's penalty."""
        loss = super()._compute_loss(model, inputs)
        logprob, self._logprob = self._logprob, None
        if self.args.entropy_control != "kl_cov" or "selected" not in inputs:
            return loss
        assert logprob is not None
        return loss + self._penalty(logprob, inputs)

    def _penalty(self, logprob: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """kl_coefficient x KL(old || new) at the selected tokens, reduced as TRL's loss is."""
        args, mask = self.args, response_mask(inputs)
        old = inputs.get("old_per_token_logps")
        ratio = log_ratio(logprob, logprob.detach() if old is None else old, mask)
        kl = kl_estimate(ratio, args.kl_estimator or "abs")
        coefficient = 1.0 if args.kl_coefficient is None else args.kl_coefficient
        values = coefficient * torch.where(inputs["selected"], kl, 0.0)
        windows = self.current_gradient_accumulation_steps
        if args.loss_type in ("dapo", "cispo"):
            tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
            denominator = tokens * windows / args.steps_per_generation
        elif args.loss_type == "bnpo":
            denominator = mask.sum().clamp(min=1.0) * windows
        else:
            length = self.max_completion_length if args.loss_type == "dr_grpo" else 1
            denominator = torch.tensor(len(mask) * length * windows, device=mask.device)
        reducer = "sequence_mean" if args.loss_type == "grpo" else "token_mean"
        return reduce_loss(values, mask, reducer, denominator)

    def _finish_update(self) -> None:
        """Measures what the update did to the entropy."""
        if self._probe is not None:
            sums = self.accelerator.reduce(self._probe.change(), reduction="sum")
            predicted, measured, states = sums.tolist()
            self._log({"entropy_change/predicted": predicted / max(states, 1.0)})
            self._log({"entropy_change/measured": measured / max(states, 1.0)})
            self._probe = None

    def _log_entropy(self, entropy: Tensor, mask: Tensor) -> None:
        """Entropy of the policy that sampled, over all ranks, before any filtering."""
        sums = self.accelerator.reduce(entropy_sums(entropy, mask), reduction="sum")
        found = entropy_means(sums)
        self._log({f"rollout/entropy_{name}": value for name, value in found.items()})
        if self._budget is not None:
            self._budget.measured(found)

    def _log(self, metrics: Mapping[str, float]) -> None:
        """Into TRL's log, which averages over the updates between two of its lines."""
        for name, value in metrics.items():
            if math.isfinite(value):
                self._metrics["train"][name].append(value)


def whole(part: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask of prompts with their responses."""
    tokens = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
    mask = part.get("unfiltered_mask")
    mask = part["completion_mask"] if mask is None else mask
    return tokens, torch.cat([part["prompt_mask"], mask], 1)


def response_mask(part: Mapping[str, Any]) -> Tensor:
    """True at the tokens that the loss counts: of the response, and the model's own."""
    mask = part["completion_mask"]
    return (mask if part.get("tool_mask") is None else mask * part["tool_mask"]).bool()


def unfiltered_mask(part: Mapping[str, Any]) -> Tensor:
    """The same before groups without a signal were dropped."""
    mask = part.get("unfiltered_mask")
    return response_mask(part if mask is None else {**part, "completion_mask": mask})


def per_token(advantages: Tensor) -> Tensor:
    """(B, 1) or (B, T), as TRL's loss takes them."""
    return advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
