"""A recipe as settings of TRL's GRPO trainer. Loads neither torch nor TRL."""

import os
import sys
from pathlib import Path

from isentrope.config import ObjectiveConfig, TrainConfig
from isentrope.control.combination import BUDGET_SHAPINGS, budget_acts, tracking_controller
from isentrope.control.controllers import BUDGET_SETTINGS
from isentrope.errors import ConfigError
from isentrope.integrations.refusal import refuse

__all__ = ["command", "environment", "latest_update", "settings"]

NO_CLIP = 1e9
"""A clip range that no ratio reaches."""

ADVANTAGES = {"grpo": "group", "dr_grpo": "none"}
"""Advantage: scale_rewards."""

LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "sequence_sum": "dr_grpo"}
"""Reducer: loss_type."""

CONTROLS = {
    "ppo_clip": "none",
    "policy_gradient": "none",
    "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
    "budget": "budget",
}
"""Loss: entropy_control."""

CLIPPED = ("ppo_clip", "budget")
"""Losses that are clipped by default."""

BONUS = {
    "coefficient_low": "entropy_coef_min",
    "coefficient_high": "entropy_coef_max",
    "delta": "entropy_coef_delta",
}
"""Settings of the adaptive bonus, and TRL's names of them."""

KNOBS = (
    "clip_fraction",
    "covariance_low",
    "covariance_high",
    "kl_fraction",
    "kl_coefficient",
    "kl_estimator",
)
"""Settings of the control that have the same name in EntropyGRPOConfig."""


OBJECTIVE = (
    *KNOBS,
    "advantage",
    "loss",
    "reducer",
    "clip_low",
    "clip_high",
    "dual_clip",
    "shaping",
    "covariance_policy",
    "entropy_coefficient",
    "reference_kl_coefficient",
    "drop_zero_signal",
)

TRANSLATED = {
    *("name", "seed", "steps", "threads", "probe_tokens", "save_samples_every"),
    *("model", "task", "optimizer", "evaluation", "checkpoint"),
    *("rollout.prompts", "rollout.samples", "rollout.max_new_tokens", "rollout.rows"),
    *(f"objective.{name}" for name in OBJECTIVE),
    *("control.name", *(f"control.{name}" for name in (*BUDGET_SETTINGS, *BONUS))),
}
"""Settings, and whole sections, that have a meaning in TRL or in the worker."""


def settings(config: TrainConfig, out: Path, processes: int) -> dict[str, object]:
    """The arguments of EntropyGRPOConfig, or a ConfigError that names what TRL cannot do."""
    check(config)
    size, accumulated = batch_sizes(config, processes)
    optimizer, rollout, updates = config.optimizer, config.rollout, config.optimizer.mini_batches
    warmup = optimizer.warmup_steps * updates
    constant = "constant_with_warmup" if warmup else "constant"
    return {
        "output_dir": str(out / "checkpoints"),
        "seed": config.seed,
        "data_seed": config.seed,
        "max_steps": config.steps * updates,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulated,
        "steps_per_generation": accumulated * updates,
        "num_generations": rollout.samples,
        "max_completion_length": rollout.max_new_tokens,
        "temperature": rollout.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": optimizer.learning_rate,
        "lr_scheduler_type": constant if optimizer.schedule == "constant" else optimizer.schedule,
        "warmup_steps": warmup,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.beta1,
        "adam_beta2": optimizer.beta2,
        "max_grad_norm": optimizer.gradient_clip,
        "logging_steps": updates,
        "save_strategy": "steps",
        "save_steps": config.checkpoint.every * updates,
        "save_total_limit": config.checkpoint.keep,
        "bf16": config.model.compute_dtype == "bfloat16",
        "use_cpu": config.model.device == "cpu",
        "disable_dropout": True,
        "gradient_checkpointing": config.model.gradient_checkpointing,
        "shuffle_dataset": False,
        "report_to": "none",
        "disable_tqdm": True,
        "probe_tokens": -(-config.probe_tokens // processes),
        **reference_settings(config),
        **objective_settings(config.objective),
        **control_settings(config),
    }


def reference_settings(config: TrainConfig) -> dict[str, object]:
    """The part of the arguments with which TRL loads the model itself: where it has a reference."""
    if not config.objective.reference_kl_coefficient:
        return {}
    return {"model_init_kwargs": {"dtype": config.model.dtype}}


def control_settings(config: TrainConfig) -> dict[str, object]:
    """The part of the arguments that is the controller: the adapter's budget, or TRL's own
    adaptive bonus, which moves in each update and not in each rollout."""
    control = config.control
    if control.name == "adaptive":
        bonus = tracking_controller(control, config.steps)
        values = {theirs: getattr(bonus, ours) for ours, theirs in BONUS.items()}
        values["entropy_coef_delta"] /= config.optimizer.mini_batches
        return {"use_adaptive_entropy": True, "entropy_target": control.target, **values}
    if control.name != "budget":
        return {}
    values = {name: getattr(control, name) for name in BUDGET_SETTINGS}
    if control.target_end is not None:
        values["target_steps"] = control.steps_to_end(config.steps)
    return {f"entropy_{name}": value for name, value in values.items() if value is not None}


def objective_settings(objective: ObjectiveConfig) -> dict[str, object]:
    """The part of the arguments that is the objective."""
    clip = 0.2 if objective.loss in CLIPPED else NO_CLIP
    knobs = {name: getattr(objective, name) for name in KNOBS}
    result: dict[str, object] = {
        "entropy_control": (
            CONTROLS[objective.loss] if objective.shaping == "none" else objective.shaping
        ),
        "scale_rewards": ADVANTAGES[objective.advantage],
        "loss_type": LOSS_TYPES[objective.reducer],
        "epsilon": clip if objective.clip_low is None else objective.clip_low,
        "epsilon_high": clip if objective.clip_high is None else objective.clip_high,
        "covariance_policy": objective.covariance_policy,
        "covariance_metrics": True,
        "drop_zero_signal": objective.drop_zero_signal,
        "beta": objective.reference_kl_coefficient,
        "entropy_coef": objective.entropy_coefficient,
        **{name: value for name, value in knobs.items() if value is not None},
    }
    if objective.dual_clip is not None:
        result["delta"] = objective.dual_clip
    return result


def check(config: TrainConfig) -> None:
    """Raises a ConfigError for what TRL, or the adapter, does not do.

    The temperature must be 1: TRL measures entropy at the sampling temperature.
    """
    objective = config.objective
    unclipped = objective.loss not in CLIPPED and objective.clip_high is None
    refuse(
        "trl",
        config,
        TRANSLATED,
        [
            (
                objective.loss not in CONTROLS,
                f"objective.loss is {objective.loss!r}; choose one of {', '.join(CONTROLS)}",
            ),
            (
                objective.shaping not in ("none", *BUDGET_SHAPINGS),
                f"objective.shaping is {objective.shaping!r}; the adapter has "
                f"{' and '.join(BUDGET_SHAPINGS)}",
            ),
            (
                objective.shaping != "none" and objective.loss != "ppo_clip",
                f"objective.shaping {objective.shaping!r} beside loss {objective.loss!r}; the "
                "adapter has it beside ppo_clip",
            ),
            (
                objective.advantage not in ADVANTAGES,
                f"objective.advantage is {objective.advantage!r}; TRL's GRPO trainer has "
                f"{' and '.join(ADVANTAGES)}",
            ),
            (
                objective.drop_zero_signal and objective.reducer != "token_mean",
                f"objective.drop_zero_signal with reducer {objective.reducer!r}; use token_mean, "
                "or set drop_zero_signal = false",
            ),
            (
                objective.dual_clip is not None and unclipped,
                "objective.dual_clip without a PPO clip: TRL's delta would clip positive "
                "advantages too; set clip_low and clip_high",
            ),
            (
                config.control.name == "band",
                "control.name is 'band'; TRL does not have it: choose budget or adaptive",
            ),
            (
                config.control.name == "adaptive"
                and (
                    config.control.target is None
                    or config.control.target_end is not None
                    or config.control.measure != "token_mean"
                    or objective.reducer != "token_mean"
                ),
                "control.name is 'adaptive'; TRL's holds a control.target that is given, of measure "
                "token_mean, beside reducer token_mean",
            ),
            (
                bool(budget_acts(objective)) and config.control.name != "budget",
                "objective.budget is fixed; TRL has the budget of the controller: set control.name",
            ),
            (
                config.model.path.endswith(".gguf") or config.model.path == "builtin:smollm2",
                f"model.path is {config.model.path!r}, a .gguf file; give a folder",
            ),
        ],
    )


def batch_sizes(config: TrainConfig, processes: int) -> tuple[int, int]:
    """(responses of a process in one pass, passes in an update); the largest passes that fit."""
    responses = config.rollout.prompts * config.rollout.samples
    parts = processes * config.optimizer.mini_batches
    if responses % parts:
        raise ConfigError(
            f"rollout.prompts x rollout.samples is {responses}, which cannot be divided among "
            f"{processes} process(es) with optimizer.mini_batches = {config.optimizer.mini_batches}"
        )
    share = responses // parts
    largest = min(share, config.optimizer.micro_batch_size)
    size = next(size for size in range(largest, 0, -1) if share % size == 0)
    return size, share // size


def command(recipe: Path, out: Path, processes: int, *, resume: bool) -> list[str]:
    """The command that trains: torchrun, one process a device."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    worker = ["-m", "isentrope.integrations.trl.worker", str(recipe), str(out)]
    return [sys.executable, *torchrun, *worker, *(["--resume"] if resume else [])]


def environment(config: TrainConfig) -> dict[str, str]:
    """What the command's environment has beside that of this process."""
    return {"OMP_NUM_THREADS": str(config.threads or os.cpu_count() or 1)}


def latest_update(out: Path) -> int:
    """The optimizer step of TRL's newest checkpoint in a run folder; 0 where there is none."""
    found = (out / "checkpoints").glob("checkpoint-*")
    return max((int(path.name.rpartition("-")[2]) for path in found), default=0)
