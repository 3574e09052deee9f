"""The training loop of the local engine: one process, one device."""

import math
import signal
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from isentrope.config import TrainConfig
from isentrope.control.combination import make_controller
from isentrope.errors import DataError
from isentrope.policy.adapters import add_adapters, load_adapters, save_merged
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.samplers import check_sampler, make_sampler
from isentrope.tasks.problem import Task
from isentrope.tasks.registry import task_of
from isentrope.training.checkpoint import (
    choose_checkpoint,
    load_extra,
    load_optimizer,
    save_checkpoint,
)
from isentrope.training.credit import credit
from isentrope.training.evaluate import check_held_out, evaluate
from isentrope.training.experience import Experience, collect, keep, scored_tokens
from isentrope.training.interruption import Interruption
from isentrope.training.mechanism import class_metrics, mechanism_metrics
from isentrope.training.objective import Objective, make_objective
from isentrope.training.optimizer import make_optimizer
from isentrope.training.prime import make_reward_model
from isentrope.training.probe import EntropyProbe
from isentrope.training.progress import Progress
from isentrope.training.run_folder import RunFolder
from isentrope.training.tracker import Tracking
from isentrope.training.update import Learner

__all__ = ["train"]


class Display(Protocol):
    """What is told of a run while it goes."""

    def start(self, config: TrainConfig, out: Path, first: int) -> None:
        """The run begins at step `first`."""
        ...

    def note(self, text: str) -> None:
        """Something that might surprise."""
        ...

    def step(self, metrics: Mapping[str, float]) -> None:
        """The metrics of a step that is done."""
        ...

    def evaluation(self, row: Mapping[str, float | str]) -> None:
        """What an evaluation measured."""
        ...


REWARD_MODEL = "reward_model"
"""Name of its state in a checkpoint."""


def train(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool,
    display: Display,
    from_step: int | None = None,
    task: Task | None = None,
) -> int:
    """Trains the model of the configuration; all results are files in the folder `out`.

    A resumed run goes on from its newest checkpoint, or from that of `from_step`; a `task` stands
    in place of the one that the configuration names. Returns the number of steps done: fewer than wanted where a SIGTERM ended the run early.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    objective = make_objective(config.objective)
    check_sampler(config)
    task = task or task_of(config, display.note)
    start = Progress(config, make_controller(config))
    check_held_out(task, config, display.note)
    tracking = Tracking(config, display.note)
    with closing(RunFolder.open(out, config, resume=resume)) as folder, closing(tracking):
        first, learner = prepare(config, objective, folder, from_step)
        folder.begin(config, first, tracking)
        progress = start.after_all(folder.logged_steps())
        display.start(config, out, first)
        return run_steps(learner, task, folder, first, progress, display)


def run_steps(
    learner: Learner,
    task: Task,
    folder: RunFolder,
    first: int,
    progress: Progress,
    display: Display,
) -> int:
    """The steps from `first` on, with evaluations and checkpoints; returns how many are done."""
    config = learner.config
    with Interruption() as interruption:
        for step in range(first, config.steps):
            if step % config.evaluation.every == 0:
                display.evaluation(evaluate_step(learner, task, folder, step))
            metrics = train_step(learner, task, folder, step, progress)
            progress = progress.after(metrics)
            display.step(metrics)
            done = step + 1
            last = done == config.steps or bool(interruption.requested)
            if last or done % config.checkpoint.every == 0:
                save(learner, folder, done)
            if interruption.requested == signal.SIGINT:
                raise KeyboardInterrupt(
                    f"stopped by Ctrl-C after step {done}; continue the same with --resume"
                )
            if interruption.requested:
                return done
        display.evaluation(evaluate_step(learner, task, folder, config.steps))
    return config.steps


def train_step(
    learner: Learner, task: Task, folder: RunFolder, step: int, progress: Progress
) -> dict[str, float]:
    """One rollout and its updates; logs and returns the metrics."""
    config = learner.config
    started = time.perf_counter()
    experience = collect(learner.model, task, config, step, progress.problem, learner.sampler)
    kept = keep(experience, config)
    metrics = {"step": step, **experience.metrics(), "groups/used": kept.group_count}
    if not math.isfinite(metrics["entropy/token_mean"]):
        raise diverged(step)
    metrics |= sampling_metrics(experience, config)
    metrics |= learner.model.sampling_rows.metric("sampling_rows", config.rollout.rows)
    learner = replace(learner, control=progress.control(metrics))
    metrics |= control_metrics(learner)
    probe = EntropyProbe(
        learner.model, experience.rollout, config.rollout.samples, config.probe_tokens
    )
    updating = time.perf_counter()
    if kept.group_count:
        kept = replace(kept, rollout=learner.rescored(kept.rollout))
        advantage, credited = credit(learner, kept, step)
        result, covariance, selected = learner.update(kept.rollout, advantage, kept.groups, step)
        metrics |= {**credited, **result}
        metrics |= mechanism_metrics(kept.rollout, advantage, kept.rewards, kept.groups)
        metrics |= class_metrics(learner.model, kept.rollout, covariance)
        if step % config.save_samples_every == 0:
            rows = scored_tokens(learner.model, kept, advantage, covariance, selected)
            folder.save_samples(step, [{"step": step, **row} for row in rows])
        if learner.sampler is not None:
            learner.sampler.refresh()
    updated = time.perf_counter()
    metrics |= probe.compare()
    metrics |= experience.seconds
    metrics["time/update_s"] = updated - updating
    metrics["time/step_s"] = time.perf_counter() - started
    metrics["tokens_per_s"] = int(experience.rollout.mask.sum()) / metrics["time/step_s"]
    folder.log_step(metrics)
    return metrics


def diverged(step: int) -> DataError:
    """What to say of a policy whose numbers are no longer finite."""
    return DataError(
        f"the policy is no longer finite after step {step}: training diverged, and this state is not "
        "saved; the last checkpoint is as it was. Lower optimizer.learning_rate or the "
        "coefficients of the loss, and start a new run"
    )


def sampling_metrics(experience: Experience, config: TrainConfig) -> dict[str, float]:
    """What dynamic sampling did in a step: problems drawn, and whether too few had signal."""
    if config.rollout.max_rounds == 1:
        return {}
    short = keep(experience, config).group_count < config.rollout.prompts
    return {"sampling/prompts": experience.group_count, "sampling/short": float(short)}


def control_metrics(learner: Learner) -> dict[str, float]:
    """What an entropy controller has decided for a step."""
    control = learner.control
    if control is None or control.target is None:
        return {}
    acts = {"control/budget": control.budget, "control/strength": control.strength}
    decided = {name: value for name, value in acts.items() if value is not None}
    bonus = {"control/coefficient": control.entropy_coefficient}
    return {"control/target": control.target, **(decided or bonus)}


def evaluate_step(
    learner: Learner, task: Task, folder: RunFolder, step: int
) -> dict[str, float | str]:
    """Measures reward and entropy of the weights as they stand; logs and returns the row."""
    started = time.perf_counter()
    row = evaluate(learner.model, task, learner.config, step, learner.sampler)
    row["time/evaluate_s"] = time.perf_counter() - started
    folder.log_evaluation(row)
    return row


def prepare(
    config: TrainConfig, objective: Objective, folder: RunFolder, from_step: int | None
) -> tuple[int, Learner]:
    """The step to start at, and the model with its optimizer as they were there."""
    step, checkpoint = choose_checkpoint(folder.checkpoints, from_step)
    folder.check_lines(step)
    model = load_policy(config, checkpoint)
    optimizer = make_optimizer(model, config.optimizer)
    if checkpoint:
        load_optimizer(optimizer, checkpoint)
    prime = config.objective.advantage == "prime"
    reward_model = make_reward_model(config) if prime else None
    if reward_model and checkpoint:
        reward_model.restore(load_extra(checkpoint, REWARD_MODEL))
    needed = prime or config.objective.reference_kl_coefficient
    reference = None
    if needed:
        reference = model if model.adapters is not None else load_model(config.model)
    return step, Learner(
        config,
        objective,
        model,
        reference,
        optimizer,
        reward_model=reward_model,
        sampler=make_sampler(config, model),
    )


def load_policy(config: TrainConfig, checkpoint: Path | None) -> LanguageModel:
    """The model to train, as it starts or as it is in the checkpoint."""
    if not config.model.lora_rank:
        source = replace(config.model, path=str(checkpoint)) if checkpoint else config.model
        return load_model(source)
    model = add_adapters(load_model(config.model), config.model, config.seed)
    if checkpoint:
        load_adapters(model, checkpoint)
    return model


def save(learner: Learner, folder: RunFolder, done: int) -> None:
    """Writes a checkpoint of the state after `done` steps; the last one has no need of adapters."""
    config, reward_model = learner.config, learner.reward_model
    if not all(parameter.isfinite().all() for parameter in learner.model.network.parameters()):
        raise diverged(done)
    merge = learner.model.adapters is not None and done == config.steps
    save_checkpoint(
        folder.checkpoints,
        done,
        learner.model,
        learner.optimizer,
        config.checkpoint.keep,
        {REWARD_MODEL: reward_model.state()} if reward_model else None,
        partial(save_merged, config.model) if merge else None,
    )
