"""Entropy control in TRL: `EntropyGRPOTrainer` in place of `GRPOTrainer`, two lines of change.

    args = EntropyGRPOConfig(..., entropy_control="clip_cov")
    trainer = EntropyGRPOTrainer(model=..., reward_funcs=..., args=args, train_dataset=...)

Tokens are selected over all responses of an optimizer step: all micro-batches of the accumulation
window, all ranks. TRL's loss is not copied. Clip-Cov and the isentropic budget hand it an advantage
of 0 at the selected tokens; KL-Cov adds its penalty, reduced as TRL reduces the rest. With `entropy_control="none"`
the trainer computes what GRPOTrainer computes, to the last bit.
"""

import inspect
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isentrope.errors import ConfigError, require
from isentrope.integrations.selection import (
    Choice,
    Select,
    Tokens,
    choose,
    draws,
    row_keys,
    selector,
)
from isentrope.integrations.trl_control import BudgetController
from isentrope.integrations.trl_law import LawCallback
from isentrope.integrations.trl_probe import AfterUpdate, Probe
from isentrope.integrations.trl_release import check_release
from isentrope.objective.control import EntropyBudget, Target
from isentrope.objective.losses import kl_estimate, log_ratio
from isentrope.objective.masking import masked_sum, reduce_loss, sequence_means

__all__ = ["EntropyGRPOConfig", "EntropyGRPOTrainer", "LawCallback"]

trl = require("trl", "trl")
trl_models = require("trl.models.utils", "trl")
check_release(trl)

logger = logging.getLogger(__name__)

CONTROLS = {"none": "ppo_clip", "clip_cov": "clip_cov", "kl_cov": "kl_cov", "budget": "budget"}
"""Name of each control, and the loss of isentrope.objective whose selection it uses."""

CLIPPED = ("none", "budget")
"""Controls beside which the PPO clip stays."""

CUTTING = ("clip_cov", "budget")
"""Controls that cut the gradient of the selected tokens."""

BUDGET = (
    *("target", "target_end", "target_steps", "measure"),
    *("gain", "integral_gain", "integral_limit"),
)
"""Settings of the budget; in the arguments each has `entropy_` in front."""

CLIP = 0.2
"""TRL's own default of `epsilon`."""

NO_CLIP = 1e9
"""A clip range that no ratio reaches; infinity would not survive every tracker's JSON."""

TOKEN_LOSSES = ("dapo", "bnpo", "cispo")
"""Loss types that average over tokens, in which rows without tokens weigh nothing."""

REDUCIBLE = (*TOKEN_LOSSES, "grpo", "dr_grpo")
"""Loss types in which a penalty is a term of each token."""


@dataclass
class EntropyGRPOConfig(trl.GRPOConfig):
    """GRPOConfig, and the settings of the entropy control. A knob left out has its default; one
    that the chosen control does not use is refused."""

    entropy_control: str = field(
        default="none",
        metadata={"help": "none, clip_cov, kl_cov (arXiv 2505.22617) or budget (isentropic)"},
    )
    clip_fraction: float | None = field(
        default=None, metadata={"help": "Clip-Cov: fraction of tokens whose gradient is cut (2e-4)"}
    )
    covariance_low: float | None = field(
        default=None, metadata={"help": "Clip-Cov: lower bound of the covariance (1)"}
    )
    covariance_high: float | None = field(
        default=None, metadata={"help": "Clip-Cov: upper bound of the covariance (5)"}
    )
    kl_fraction: float | None = field(
        default=None, metadata={"help": "KL-Cov: fraction of tokens that are penalised (2e-3)"}
    )
    kl_coefficient: float | None = field(
        default=None, metadata={"help": "KL-Cov: weight of the penalty (1)"}
    )
    kl_estimator: str | None = field(
        default=None, metadata={"help": "KL-Cov: abs (the paper's code), k1, k2 or k3"}
    )
    entropy_target: float | None = field(
        default=None,
        metadata={"help": "Budget: entropy to hold, in nats (that of the first rollout)"},
    )
    entropy_target_end: float | None = field(
        default=None, metadata={"help": "Budget: the target moves linearly to this (it is held)"}
    )
    entropy_target_steps: int | None = field(
        default=None, metadata={"help": "Budget: rollouts until entropy_target_end"}
    )
    entropy_measure: str | None = field(
        default=None, metadata={"help": "Budget: token_mean (default) or sequence_mean"}
    )
    entropy_gain: float | None = field(
        default=None,
        metadata={"help": "Budget: mean covariance that may remain, a nat above the target (1)"},
    )
    entropy_integral_gain: float | None = field(
        default=None, metadata={"help": "Budget: what each rollout adds to it, a nat above (0)"}
    )
    entropy_integral_limit: float | None = field(
        default=None, metadata={"help": "Budget: largest size of what rollouts have added (0.1)"}
    )
    covariance_policy: str = field(
        default="behaviour",
        metadata={
            "help": "Log-probabilities in the covariance: behaviour (old_per_token_logps: no cost "
            "where TRL has them) or current (one no-grad forward an update)"
        },
    )
    covariance_metrics: bool = field(
        default=False,
        metadata={"help": "Log the covariance without a control too; with one it always is"},
    )
    drop_zero_signal: bool = field(
        default=False,
        metadata={"help": "Leave out responses of advantage 0: groups whose rewards are all equal"},
    )
    probe_tokens: int = field(
        default=0,
        metadata={
            "help": "Tokens a rank on which the entropy change of each update is predicted and "
            "measured; 0 turns it off"
        },
    )
    epsilon: float | None = field(
        default=None,
        metadata={"help": "PPO clip range: 0.2, or off with clip_cov and kl_cov, as in the paper"},
    )

    def __post_init__(self) -> None:
        if self.epsilon is None:
            self.epsilon = CLIP if self.entropy_control in CLIPPED else NO_CLIP
        super().__post_init__()
        check_control(self)

    @property
    def knobs(self) -> dict[str, float | None]:
        """The settings of the selection."""
        names = ("clip_fraction", "covariance_low", "covariance_high", "kl_fraction")
        return {name: getattr(self, name) for name in names}

    def controller(self) -> BudgetController | None:
        """The controller of the budget; None without one."""
        if self.entropy_control != "budget":
            return None
        target = Target(
            value=self.entropy_target,
            end=self.entropy_target_end,
            steps=self.entropy_target_steps or 1,
        )
        defaults = {"gain": 1.0, "integral_gain": 0.0, "integral_limit": 0.1}
        given = {name: getattr(self, f"entropy_{name}") for name in defaults}
        settings = defaults | {name: value for name, value in given.items() if value is not None}
        budget = EntropyBudget(target=target, **settings)  # pyright: ignore[reportArgumentType]
        return BudgetController(budget, self.entropy_measure or "token_mean")

    @property
    def measures(self) -> bool:
        """Whether the covariance is computed at all."""
        return self.entropy_control != "none" or self.covariance_metrics


def check_control(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError for settings that do not fit together."""
    if args.entropy_control not in CONTROLS:
        raise ConfigError(
            f"entropy_control is {args.entropy_control!r}; choose one of {', '.join(CONTROLS)}"
        )
    check_budget(args)
    selection(args, 0.0)
    for name in ("kl_coefficient", "kl_estimator"):
        if getattr(args, name) is not None and args.entropy_control != "kl_cov":
            raise ConfigError(
                f"{name} is {getattr(args, name)!r}, but {args.entropy_control} does not use it"
            )
    if args.kl_estimator not in (None, "abs", "k1", "k2", "k3"):
        raise ConfigError(f"kl_estimator is {args.kl_estimator!r}; choose abs, k1, k2 or k3")
    if args.covariance_policy not in ("behaviour", "current"):
        raise ConfigError(
            f"covariance_policy is {args.covariance_policy!r}; choose behaviour or current"
        )
    if args.entropy_control == "kl_cov" and args.loss_type not in REDUCIBLE:
        raise ConfigError(
            f"loss_type is {args.loss_type!r}; KL-Cov needs one of {', '.join(REDUCIBLE)}"
        )
    if args.drop_zero_signal and args.loss_type not in TOKEN_LOSSES:
        raise ConfigError(
            f"drop_zero_signal needs a loss_type that averages over tokens "
            f"({', '.join(TOKEN_LOSSES)}), not {args.loss_type!r}"
        )
    if args.entropy_control != "none" and args.importance_sampling_level != "token":
        raise ConfigError(
            "importance_sampling_level is 'sequence': a token's gradient cannot be cut in a ratio "
            "that belongs to the whole sequence; set it to 'token'"
        )
    check_window(args)


def check_budget(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError for settings of the budget that are wrong, or have no budget."""
    given = [name for name in BUDGET if getattr(args, f"entropy_{name}") is not None]
    if given and args.entropy_control != "budget":
        name = f"entropy_{given[0]}"
        raise ConfigError(
            f"{name} is {getattr(args, name)!r}, but entropy_control {args.entropy_control!r} does "
            "not use it; set entropy_control to 'budget', or leave it out"
        )
    if args.entropy_measure not in (None, "token_mean", "sequence_mean"):
        raise ConfigError(
            f"entropy_measure is {args.entropy_measure!r}; choose token_mean or sequence_mean"
        )
    if (args.entropy_target_end is None) != (args.entropy_target_steps is None):
        raise ConfigError(
            f"entropy_target_end is {args.entropy_target_end} and entropy_target_steps "
            f"{args.entropy_target_steps}; give both, or neither"
        )


def selection(args: EntropyGRPOConfig, budget: float) -> Select | None:
    """How the control selects tokens; the budget matters to the control of that name."""
    of_budget = {"budget": budget} if args.entropy_control == "budget" else {}
    return selector(CONTROLS[args.entropy_control], {**args.knobs, **of_budget})


def check_window(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError where an update spans more than one generation."""
    generated, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    if args.measures and generated % accumulated:
        raise ConfigError(
            f"steps_per_generation is {generated}, which is no multiple of "
            f"gradient_accumulation_steps ({accumulated}): an update would span two generations, "
            "and its tokens would not be known when it begins"
        )
    if args.entropy_control == "kl_cov" and generated == accumulated and args.num_iterations == 1:
        logger.warning(
            "KL-Cov does nothing while the policy that trains is the one that sampled: with one "
            "update a generation the penalty and its gradient are zero. Set steps_per_generation "
            "to a multiple of gradient_accumulation_steps, or num_iterations above 1."
        )


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
        self._entropies: list[Tensor] = []
        self._logprob: Tensor | None = None
        self._window: list[Tensor] = []
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

    def _without_zero_signal(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The rollout with responses of advantage 0 masked out, and out of the denominator."""
        kept = batch["completion_mask"] * (batch["advantages"] != 0).unsqueeze(-1)
        tokens = kept if batch.get("tool_mask") is None else kept * batch["tool_mask"]
        count = self.accelerator.gather(tokens.sum()).sum()
        return {
            **batch,
            "completion_mask": kept,
            "num_items_in_batch": count,
            "unfiltered_mask": batch["completion_mask"],
        }

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's log-probabilities, kept for the penalty, and entropies where a rollout is scored."""
        if self._scoring:
            kwargs["compute_entropy"] = True
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._scoring:
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
        selected = self._window[place]
        changed = {**inputs, "selected": selected}
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
        self._window = list(choice.selected.split([len(part["advantages"]) for part in slices]))

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
        return choose(tokens, select, draws(self.args.seed, self.state.global_step))

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
        entropy = entropy.detach().double()
        parts = [masked_sum(entropy, mask), mask.sum(), sequence_means(entropy, mask).sum()]
        parts.append(torch.tensor(len(mask), device=mask.device))
        sums = self.accelerator.reduce(torch.stack([p.double() for p in parts]), reduction="sum")
        tokens, count, means, rows = sums.tolist()
        found = {"token_mean": tokens / max(count, 1.0), "sequence_mean": means / rows}
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
