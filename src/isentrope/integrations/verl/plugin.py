"""Entropy control in verl, from its configuration alone: a plug-in module.

    export VERL_USE_EXTERNAL_MODULES=isentrope.integrations.verl
    python -m verl.trainer.main_ppo ... actor_rollout_ref.actor.policy_loss.loss_mode=isentrope_clip_cov

Every process of verl imports the module. It registers

- the policy losses `isentrope_clip_cov` and `isentrope_kl_cov`, with verl's own knobs
  (clip_cov_ratio, clip_cov_lb, clip_cov_ub; kl_cov_ratio, ppo_kl_coef; clip_ratio_low, _high), and
  `isentrope_budget`, `isentrope_success`, `isentrope_decorrelation`, which hold the entropy at a
  target: three ways to meet the isentropic budget;
- the advantage estimators `isentrope_grpo`, `isentrope_rloo`, `isentrope_opo` and so on;
- a worker that selects tokens over the whole mini-batch of all data-parallel ranks, from the old
  log-probabilities that verl has computed: no extra forward pass.

`compute_score` is a reward function for `reward.custom_reward_function`. What verl's frozen
configuration cannot hold is in the environment variable ISENTROPE_VERL: see `PluginOptions`.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isentrope.errors import ConfigError, require
from isentrope.integrations.refusal import check_release
from isentrope.integrations.selection import ACTS
from isentrope.integrations.verl.mini_batch import current_selection
from isentrope.integrations.verl.options import plugin_options
from isentrope.objective.advantages import ADVANTAGES
from isentrope.objective.losses import TokenLoss, budget, clip_cov, kl_cov
from isentrope.objective.micro_batch import micro_batch_clip_cov, micro_batch_kl_cov

if TYPE_CHECKING:
    from isentrope.tasks.problem import Task

__all__ = ["ADVANTAGE_PREFIX", "POLICY_LOSSES", "compute_score"]

require("verl", "verl")
check_release("verl", version("verl"), "0.9.1")
core_algos = require("verl.trainer.ppo.core_algos", "verl")
engine_workers = require("verl.workers.engine_workers", "verl")

ADVANTAGE_PREFIX = "isentrope_"

Result = tuple[Tensor, dict[str, Any]]


def clip_cov_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> Result:
    """Clip-Cov as a verl policy loss."""
    settings, mask, clip = config.policy_loss, response_mask.bool(), clip_range(config)
    tensors = (log_prob, old_log_prob, advantages, mask)
    if plugin_options().selection == "micro_batch":
        loss, selected = micro_batch_clip_cov(
            *tensors,
            generator=torch.default_generator,
            clip_fraction=settings.clip_cov_ratio,
            covariance_low=settings.clip_cov_lb,
            covariance_high=settings.clip_cov_ub,
            **clip,
        )
    else:
        selected = current_selection(mask)
        loss = clip_cov(*tensors, selected=selected, **clip)
    return reduced(loss, selected, mask, loss_agg_mode, config, rollout_is_weights)


def kl_cov_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> Result:
    """KL-Cov as a verl policy loss. Without a PPO clip, as verl's own."""
    settings, mask, options = config.policy_loss, response_mask.bool(), plugin_options()
    tensors = (log_prob, old_log_prob, advantages, mask)
    coefficient = {"kl_coefficient": settings.ppo_kl_coef}
    if options.selection == "micro_batch":
        fraction = settings.kl_cov_ratio
        loss, selected = micro_batch_kl_cov(*tensors, kl_fraction=fraction, **coefficient)
    else:
        selected = current_selection(mask)
        loss = kl_cov(*tensors, selected=selected, kl_estimator=options.kl_estimator, **coefficient)
    return reduced(loss, selected, mask, loss_agg_mode, config, rollout_is_weights)


def budget_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> Result:
    """The isentropic budget as a verl policy loss: PPO clip without the tokens that exceed it.

    By success and by decorrelation none are cut: the worker has reshaped the advantages.
    """
    mask = response_mask.bool()
    selected = current_selection(mask)
    tensors = (log_prob, old_log_prob, advantages, mask)
    loss = budget(*tensors, selected=selected, **clip_range(config))
    return reduced(loss, selected, mask, loss_agg_mode, config, rollout_is_weights)


def clip_range(config: Any) -> dict[str, float]:
    """The PPO clip of verl's configuration."""
    low, high = config.clip_ratio_low, config.clip_ratio_high
    return {
        "clip_low": config.clip_ratio if low is None else low,
        "clip_high": config.clip_ratio if high is None else high,
    }


def reduced(
    loss: TokenLoss,
    selected: Tensor,
    mask: Tensor,
    mode: str,
    config: Any,
    weights: Tensor | None,
) -> Result:
    """verl's aggregation of the tokens' losses, and the metrics of a micro-batch."""
    values = torch.where(mask, loss.per_token, 0.0)
    if weights is not None:
        values = values * weights
    total = core_algos.agg_loss(
        loss_mat=values, loss_mask=mask, loss_agg_mode=mode, **config.global_batch_info
    )
    tokens = mask.sum().clamp(min=1)
    clipped = torch.where(mask, loss.metrics["clip/fraction"], 0.0).sum() / tokens
    return total, {
        "actor/pg_clipfrac": clipped.item(),
        "actor/selected_fraction": ((selected & mask).sum() / tokens).item(),
    }


POLICY_LOSSES: Mapping[str, Callable[..., Result]] = {
    "isentrope_clip_cov": clip_cov_loss,
    "isentrope_kl_cov": kl_cov_loss,
    **{f"isentrope_{act}": budget_loss for act in ACTS},
}


def advantage(
    name: str,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,
    config: Any = None,
    **unused: Any,
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both (B, T), of the estimator of that name."""
    mask = response_mask.bool()
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(index))}
    groups = torch.tensor([numbers[uid] for uid in index], device=mask.device)
    values = ADVANTAGES[name](token_level_rewards.sum(-1), groups, mask)
    values = values.view(len(values), -1).expand(mask.shape) * mask
    return values, values


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, float]:
    """The verdict of an isentrope task, for reward.custom_reward_function.

    The task is extra_info["task"] with the options in extra_info["options"] (JSON), which the data
    sets of `isentrope train --engine verl` have; without it `data_source` with `options`. verl has
    no unjudged reward: such a response has score 0, and judged 0 beside it.
    """
    from isentrope.tasks.problem import Problem

    given = extra_info or {}
    prompt = given.get("prompt")
    if not isinstance(prompt, str):
        raise ConfigError(
            "extra_info has no prompt; write the data set with `isentrope train --engine verl`, or "
            "put the text of the problem in extra_info['prompt']"
        )
    if "task" in given:
        task = task_of(given["task"], given["options"], given.get("reward", "{}"))
    else:
        task = task_of(data_source, json.dumps(options, sort_keys=True))
    columns = json.loads(given.get("columns", "{}"))
    problem = Problem(prompt, ground_truth, data_source, columns)
    verdict = task.verify([problem], [solution_str])[0]
    return {"score": verdict.score or 0.0, "judged": float(verdict.score is not None)}


@cache
def task_of(name: str, options: str, reward: str = "{}") -> "Task":
    """The task of that name with options, and what there is of reward functions, in JSON; its data
    are read once in a process."""
    from isentrope.config import ModelConfig, TaskConfig, TrainConfig, build
    from isentrope.tasks import registry

    settings = json.loads(reward)
    model = ModelConfig(prompt="chat", system=settings.pop("system", None))
    table = {"name": name, "options": json.loads(options), **settings}
    return registry.task_of(TrainConfig(task=build(TaskConfig, table, "extra_info"), model=model))


def register() -> None:
    """Puts losses, estimators and the worker where verl looks for them."""
    from isentrope.integrations.verl.worker import EntropyTrainingWorker

    for name, loss in POLICY_LOSSES.items():
        core_algos.register_policy_loss(name)(loss)
    for name in ADVANTAGES:
        if name == "prime":
            continue  # verl has no reward model for it
        core_algos.register_adv_est(ADVANTAGE_PREFIX + name)(partial(advantage, name))
    engine_workers.ActorRolloutRefWorker.actor_worker_cls = EntropyTrainingWorker


register()
plugin_options()  # a wrong option is an error at the start, not at the first update
