"""The training loop of the local engine: one process, one device."""

import time
from dataclasses import replace
from pathlib import Path

import torch

from isentrope.config import TrainConfig
from isentrope.tasks.problem import Task
from isentrope.tasks.registry import make_task
from isentrope.training.checkpoint import latest_checkpoint, load_optimizer, save_checkpoint
from isentrope.training.display import Display
from isentrope.training.evaluate import evaluate, held_out
from isentrope.training.experience import collect, scored_tokens
from isentrope.training.model import load_model
from isentrope.training.objective import Objective, make_objective
from isentrope.training.probe import EntropyProbe
from isentrope.training.run_dir import RunFolder
from isentrope.training.update import Learner

__all__ = ["train"]


def train(config: TrainConfig, out: Path, *, resume: bool, display: Display) -> None:
    """Trains the model of the configuration; all results are files in the folder `out`."""
    if config.threads:
        torch.set_num_threads(config.threads)
    objective = make_objective(config.objective)
    task = make_task(config.task.name, seed=config.seed, options=config.task.options)
    held_out(task, config.evaluation.problems)  # too few: say so now, not after hours
    folder = RunFolder.open(out, config, resume=resume)
    first, learner = prepare(config, objective, folder)
    folder.begin(config, first)
    display.start(config, out, first)
    for step in range(first, config.steps):
        if step % config.evaluation.every == 0:
            display.evaluation(evaluate_step(learner, task, folder, step))
        display.step(train_step(learner, task, folder, step))
        done = step + 1
        if done % config.checkpoint.every == 0 or done == config.steps:
            save_checkpoint(
                folder.checkpoints, done, learner.model, learner.optimizer, config.checkpoint.keep
            )
    display.evaluation(evaluate_step(learner, task, folder, config.steps))


def train_step(learner: Learner, task: Task, folder: RunFolder, step: int) -> dict[str, float]:
    """One rollout and its updates; logs and returns the metrics."""
    config = learner.config
    started = time.perf_counter()
    experience = collect(learner.model, task, config, step)
    kept = experience.learnable(config.objective.drop_zero_signal)
    metrics = {"step": step, **experience.metrics(), "groups/used": kept.group_count}
    probe = EntropyProbe(
        learner.model, experience.rollout, config.rollout.samples, config.probe_tokens
    )
    updating = time.perf_counter()
    if kept.group_count:
        advantage = learner.objective.advantage(kept.rewards, kept.groups, kept.rollout.mask)
        advantage = advantage.view(len(advantage), -1).expand(kept.rollout.mask.shape)
        result, covariance, selected = learner.update(kept.rollout, advantage, kept.groups, step)
        metrics |= result
        if step % config.save_samples_every == 0:
            rows = scored_tokens(learner.model, kept, advantage, covariance, selected)
            folder.save_samples(step, [{"step": step, **row} for row in rows])
    updated = time.perf_counter()
    metrics |= probe.compare()
    metrics |= experience.seconds
    metrics["time/update_s"] = updated - updating
    metrics["time/step_s"] = time.perf_counter() - started
    metrics["tokens_per_s"] = int(experience.rollout.mask.sum()) / metrics["time/step_s"]
    folder.log_step(metrics)
    return metrics


def evaluate_step(
    learner: Learner, task: Task, folder: RunFolder, step: int
) -> dict[str, float | str]:
    """Measures reward and entropy of the weights as they stand; logs and returns the row."""
    started = time.perf_counter()
    row = evaluate(learner.model, task, learner.config, step)
    row["time/evaluate_s"] = time.perf_counter() - started
    folder.log_evaluation(row)
    return row


def prepare(config: TrainConfig, objective: Objective, folder: RunFolder) -> tuple[int, Learner]:
    """The step to start at, and the model with its optimizer as they were there."""
    step, checkpoint = latest_checkpoint(folder.checkpoints)
    source = replace(config.model, path=str(checkpoint)) if checkpoint else config.model
    model = load_model(source)
    settings = config.optimizer
    optimizer = torch.optim.AdamW(
        model.network.parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
    )
    if checkpoint:
        load_optimizer(optimizer, checkpoint)
    reference = load_model(config.model) if config.objective.reference_kl_coefficient else None
    return step, Learner(config, objective, model, reference, optimizer)
