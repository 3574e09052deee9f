"""A recipe as Hydra overrides of verl. Loads neither torch nor verl."""

import json
import sys
from pathlib import Path

from isentrope.config import TrainConfig
from isentrope.control.combination import BUDGET_SHAPINGS, budget_acts
from isentrope.control.controllers import BUDGET_SETTINGS
from isentrope.errors import ConfigError
from isentrope.integrations.refusal import refuse

__all__ = ["command", "environment", "overrides"]

GPUS_PER_NODE = 8

PROMPT_TOKENS = 2048
"""Longest prompt; the paper's, and longer ones are left out."""

LOSSES = {
    "ppo_clip": "vanilla",
    "clip_cov": "isentrope_clip_cov",
    "kl_cov": "isentrope_kl_cov",
    "budget": "isentrope_budget",
}

CLIPPED = ("ppo_clip", "budget")
"""Losses that are clipped by default."""

REDUCERS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "sequence_sum": "seq-mean-token-sum-norm",
}

KL_TYPES = {"k2": "mse", "k3": "low_var_kl+"}
"""Estimator of the reference KL: kl_loss_type; with + its gradient is that of the KL on policy."""

ACTOR = "actor_rollout_ref.actor"

Overrides = dict[str, object]

OBJECTIVE = (
    *("advantage", "loss", "shaping", "reducer", "selection"),
    *("clip_low", "clip_high", "dual_clip"),
    *("clip_fraction", "covariance_low", "covariance_high"),
    *("kl_fraction", "kl_coefficient", "kl_estimator"),
    *("entropy_coefficient", "reference_kl_coefficient", "reference_kl_estimator"),
    "drop_zero_signal",
)

TRANSLATED = {
    *("name", "seed", "steps", "threads", "probe_tokens", "save_samples_every"),
    *("model", "task", "optimizer", "checkpoint"),
    *(f"evaluation.{name}" for name in ("every", "problems", "samples", "temperature")),
    *("rollout.prompts", "rollout.samples", "rollout.temperature"),
    *("rollout.max_new_tokens", "rollout.rows"),
    *(f"objective.{name}" for name in OBJECTIVE),
    *("control.name", *(f"control.{name}" for name in BUDGET_SETTINGS)),
}
"""Settings, and whole sections, that have a meaning in verl; those of the local machine have none
and do no harm."""


def overrides(config: TrainConfig, out: Path, processes: int) -> Overrides:
    """Hydra key: value, or a ConfigError that names what verl cannot do."""
    check(config)
    return {
        **data(config, out),
        **actor(config),
        **optimizer(config),
        **policy_loss(config),
        **rollout(config),
        **trainer(config, out, processes),
    }


def check(config: TrainConfig) -> None:
    """Raises a ConfigError for what verl, or the plug-in, does not do."""
    objective = config.objective
    refuse(
        "verl",
        config,
        TRANSLATED,
        [
            (
                objective.loss not in LOSSES,
                f"objective.loss is {objective.loss!r}; choose one of {', '.join(LOSSES)}",
            ),
            (
                objective.shaping not in ("none", *BUDGET_SHAPINGS),
                f"objective.shaping is {objective.shaping!r}; the plug-in has "
                f"{' and '.join(BUDGET_SHAPINGS)}",
            ),
            (
                objective.shaping != "none" and objective.loss != "ppo_clip",
                f"objective.shaping {objective.shaping!r} beside loss {objective.loss!r}; the "
                "plug-in has it beside ppo_clip",
            ),
            (
                objective.advantage == "prime",
                "objective.advantage is 'prime'; the plug-in has no implicit reward model",
            ),
            (
                config.control.name == "budget" and config.rollout.temperature != 1,
                f"control.name is 'budget' and rollout.temperature {config.rollout.temperature:g}; "
                "the plug-in measures the entropy at that temperature, its target is at 1",
            ),
            (
                config.control.name not in ("none", "budget"),
                f"control.name is {config.control.name!r}; the plug-in has the budget's alone",
            ),
            (
                bool(budget_acts(objective)) and config.control.name != "budget",
                "objective.budget is fixed; the plug-in has the budget of the controller: set "
                "control.name",
            ),
            (
                config.rollout.prompts % config.optimizer.mini_batches != 0,
                f"rollout.prompts is {config.rollout.prompts}, no multiple of "
                f"optimizer.mini_batches ({config.optimizer.mini_batches})",
            ),
            (
                objective.dual_clip is not None
                and (objective.loss != "ppo_clip" or objective.shaping != "none"),
                f"objective.dual_clip with loss {objective.loss!r} and shaping "
                f"{objective.shaping!r}; verl has it for ppo_clip alone",
            ),
            (
                objective.loss == "kl_cov"
                and (objective.clip_low is not None or objective.clip_high is not None),
                "objective.clip_low and clip_high with kl_cov; the plug-in's KL-Cov has no clip",
            ),
            (
                config.optimizer.schedule == "linear",
                "optimizer.schedule is 'linear'; verl has constant and cosine",
            ),
            (
                config.model.prompt != "chat",
                f"model.prompt is {config.model.prompt!r}; verl puts every prompt into the model's "
                "chat template: set it to 'chat'",
            ),
            (
                config.model.dtype == "auto",
                "model.dtype is 'auto'; give float32 or bfloat16",
            ),
            (
                config.model.path.startswith("builtin:") or config.model.path.endswith(".gguf"),
                f"model.path is {config.model.path!r}; verl's rollout servers need a Hugging Face "
                "id or folder",
            ),
        ],
    )


def data(config: TrainConfig, out: Path) -> Overrides:
    """Data sets, lengths and the reward function."""
    return {
        "data.train_files": str(out / "data" / "train.parquet"),
        "data.val_files": str(out / "data" / "test.parquet"),
        "data.train_batch_size": config.rollout.prompts,
        "data.max_prompt_length": PROMPT_TOKENS,
        "data.max_response_length": config.rollout.max_new_tokens,
        "data.filter_overlong_prompts": True,
        "data.shuffle": False,
        "data.seed": config.seed,
        "reward.custom_reward_function.path": "pkg://isentrope.integrations.verl",
        "reward.custom_reward_function.name": "compute_score",
        "algorithm.adv_estimator": f"isentrope_{config.objective.advantage}",
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": config.objective.drop_zero_signal,
        "algorithm.filter_groups.metric": "reward",
    }


def actor(config: TrainConfig) -> Overrides:
    """Model, mini-batches and the terms beside the policy loss."""
    objective, updates = config.objective, config.optimizer.mini_batches
    low = config.model.compute_dtype
    products = config.model.dtype if low == "weights" else low
    kl = objective.reference_kl_coefficient
    length = config.rollout.max_new_tokens
    return {
        "actor_rollout_ref.model.path": config.model.path,
        f"{ACTOR}.strategy": "fsdp2",
        "actor_rollout_ref.model.enable_gradient_checkpointing": (
            config.model.gradient_checkpointing
        ),
        f"{ACTOR}.fsdp_config.model_dtype": config.model.dtype,
        f"{ACTOR}.fsdp_config.dtype": products,
        f"{ACTOR}.ppo_mini_batch_size": config.rollout.prompts // updates,
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": 2 * (PROMPT_TOKENS + length),
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.loss_agg_mode": REDUCERS[objective.reducer],
        f"{ACTOR}.loss_scale_factor": length if objective.reducer == "sequence_sum" else None,
        f"{ACTOR}.entropy_coeff": objective.entropy_coefficient,
        f"{ACTOR}.calculate_entropy": True,
        f"{ACTOR}.use_kl_loss": kl > 0,
        f"{ACTOR}.kl_loss_coef": kl,
        f"{ACTOR}.kl_loss_type": KL_TYPES[objective.reference_kl_estimator],
    }


def optimizer(config: TrainConfig) -> Overrides:
    """AdamW; verl counts warm-up in rollout steps, as a recipe does."""
    settings = config.optimizer
    return {
        f"{ACTOR}.optim.lr": settings.learning_rate,
        f"{ACTOR}.optim.betas": [settings.beta1, settings.beta2],
        f"{ACTOR}.optim.weight_decay": settings.weight_decay,
        f"{ACTOR}.optim.lr_warmup_steps": settings.warmup_steps,
        f"{ACTOR}.optim.lr_scheduler_type": settings.schedule,
        f"{ACTOR}.optim.clip_grad": settings.gradient_clip,
        f"{ACTOR}.grad_clip": settings.gradient_clip,
    }


def policy_loss(config: TrainConfig) -> Overrides:
    """The loss with its knobs. verl always clips: 1 below is no clip, since no ratio is below 0."""
    objective = config.objective
    clip_low, clip_high = objective.clip_low, objective.clip_high
    default = 0.2 if objective.loss in CLIPPED else None
    knobs = {
        "clip_cov_ratio": objective.clip_fraction if objective.loss == "clip_cov" else None,
        "clip_cov_lb": objective.covariance_low,
        "clip_cov_ub": objective.covariance_high,
        "kl_cov_ratio": 2e-3 if objective.kl_fraction is None else objective.kl_fraction,
        "ppo_kl_coef": 1.0 if objective.kl_coefficient is None else objective.kl_coefficient,
    }
    result: Overrides = {
        f"{ACTOR}.clip_ratio_low": first(clip_low, default, 1.0),
        f"{ACTOR}.clip_ratio_high": first(clip_high, default, 1e9),
        f"{ACTOR}.clip_ratio_c": first(objective.dual_clip, None, 1e9),
        f"{ACTOR}.policy_loss.loss_mode": (
            LOSSES[objective.loss]
            if objective.shaping == "none"
            else f"isentrope_{objective.shaping}"
        ),
    }
    for name, value in knobs.items():
        if value is not None:
            result[f"{ACTOR}.policy_loss.{name}"] = value
    return result


def budget(config: TrainConfig) -> dict[str, str]:
    """The plug-in's options of the isentropic budget, in TOML."""
    control = config.control
    values = {f"control.{name}": getattr(control, name) for name in BUDGET_SETTINGS}
    values["clip_fraction"] = config.objective.clip_fraction
    if control.target_end is not None:
        values["control.target_steps"] = control.steps_to_end(config.steps)
    given = {name: value for name, value in values.items() if value is not None}
    return {name: json.dumps(value) for name, value in given.items()}


def first(value: float | None, default: float | None, otherwise: float) -> float:
    """The first of the three that is given."""
    return next(x for x in (value, default, otherwise) if x is not None)


def rollout(config: TrainConfig) -> Overrides:
    """Sampling, and validation: avg@k and its entropy at the same temperature."""
    server = "actor_rollout_ref.rollout"
    tokens = 2 * (PROMPT_TOKENS + config.rollout.max_new_tokens)
    return {
        f"{server}.name": "vllm",
        f"{server}.n": config.rollout.samples,
        f"{server}.temperature": config.rollout.temperature,
        f"{server}.top_p": 1.0,
        f"{server}.top_k": -1,
        f"{server}.log_prob_use_dynamic_bsz": True,
        f"{server}.log_prob_max_token_len_per_gpu": tokens,
        f"{server}.val_kwargs.n": config.evaluation.samples,
        f"{server}.val_kwargs.do_sample": True,
        f"{server}.val_kwargs.temperature": config.evaluation.temperature,
    }


def trainer(config: TrainConfig, out: Path, processes: int) -> Overrides:
    """Machines, length of the run, files."""
    nodes, left = divmod(processes, GPUS_PER_NODE)
    if nodes and left:
        raise ConfigError(
            f"processes is {processes}; above {GPUS_PER_NODE} give a multiple of {GPUS_PER_NODE}, "
            "the GPUs of a node"
        )
    return {
        "trainer.nnodes": max(nodes, 1),
        "trainer.n_gpus_per_node": GPUS_PER_NODE if nodes else processes,
        "trainer.total_training_steps": config.steps,
        "trainer.test_freq": config.evaluation.every,
        "trainer.save_freq": config.checkpoint.every,
        "trainer.max_actor_ckpt_to_keep": config.checkpoint.keep,
        "trainer.default_local_dir": str(out / "checkpoints"),
        "trainer.project_name": "isentrope",
        "trainer.experiment_name": config.name,
        "trainer.logger": ["console", "file"],
    }


def command(settings: Overrides, *, resume: bool) -> list[str]:
    """The command that trains."""
    words = [f"{key}={hydra_value(value)}" for key, value in settings.items()]
    mode = "auto" if resume else "disable"
    return [sys.executable, "-m", "verl.trainer.main_ppo", *words, f"trainer.resume_mode={mode}"]


def hydra_value(value: object) -> str:
    """The value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    return str(value)


def environment(config: TrainConfig, out: Path) -> dict[str, str]:
    """What the command's environment has beside that of this process."""
    objective = config.objective
    options = f'selection = "{objective.selection}"; seed = {config.seed}'
    if objective.kl_estimator is not None:
        options += f'; kl_estimator = "{objective.kl_estimator}"'
    if config.control.name == "budget":
        options += "".join(f"; {name} = {value}" for name, value in budget(config).items())
    return {
        "VERL_USE_EXTERNAL_MODULES": "isentrope.integrations.verl",
        "ISENTROPE_VERL": options,
        "VERL_FILE_LOGGER_PATH": str(out / "metrics.jsonl"),
    }
