"""One process of a TRL run of a recipe: `torchrun -m isentrope.integrations.trl.worker RECIPE OUT`.

The first process writes metrics and evaluations, as the local engine's, into a run folder that
`isentrope train` has made.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from isentrope.config import TrainConfig, load_config
from isentrope.errors import require
from isentrope.integrations.trl import EntropyGRPOConfig, EntropyGRPOTrainer
from isentrope.integrations.trl.recipe import latest_update, settings
from isentrope.policy.model import (
    LanguageModel,
    find_head,
    load_model,
    locate,
    switch_off_dropout,
)
from isentrope.tasks.problem import Problem, Task, conversation
from isentrope.tasks.registry import task_of
from isentrope.training.evaluate import evaluate
from isentrope.training.run_folder import RunFolder

__all__ = ["main"]

datasets = require("datasets", "trl")

NAMES = {
    "rollout/entropy_token_mean": "entropy/token_mean",
    "rollout/entropy_sequence_mean": "entropy/sequence_mean",
    "reward": "reward/mean",
    "loss": "loss/policy",
    "clip_ratio/region_mean": "clip/fraction",
    "kl": "kl/reference",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "completions/mean_length": "length/mean",
    "completions/max_length": "length/max",
    "completions/clipped_ratio": "truncated",
}
"""Keys of TRL's log, and of a run folder."""

SUMMED = ("selected/tokens", "entropy_change/predicted", "entropy_change/measured")
"""Means over the updates of a step in TRL's log, sums in a run folder."""

KEPT = (
    *("covariance/", "rewarded/", "tokens/", "control/", "law/", "forecast/"),
    *("selected/fraction", "selected/rewarded"),
)
"""Beginnings of keys that are the same in both."""


@dataclass
class RunFolderCallback(TrainerCallback):
    """Writes the run folder from TRL's log."""

    config: TrainConfig
    folder: RunFolder
    task: Task
    model: LanguageModel
    started: float = field(default_factory=time.perf_counter)
    done: int = -1
    """Last step that was evaluated."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluates the policy before a step, as the local engine does."""
        step, update = divmod(state.global_step, self.config.optimizer.mini_batches)
        if update == 0 and step % self.config.evaluation.every == 0:
            self.evaluate(step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluates the trained policy."""
        self.evaluate(self.config.steps)

    def evaluate(self, step: int) -> None:
        """Once a step: reward and entropy of these weights."""
        if step > self.done:
            network = self.model.network
            training = network.training
            network.eval()
            self.folder.log_evaluation(evaluate(self.model, self.task, self.config, step))
            network.train(training)
            self.done = step

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """One line of metrics.jsonl."""
        if logs is None or "loss" not in logs:
            return
        now = time.perf_counter()
        updates = self.config.optimizer.mini_batches
        row: dict[str, object] = {"step": state.global_step // updates - 1}
        row |= {ours: logs.get(theirs) for theirs, ours in NAMES.items()}
        row |= {name: logs[name] * updates for name in SUMMED if name in logs}
        row |= {name: value for name, value in logs.items() if name.startswith(KEPT)}
        equal = logs.get("frac_reward_zero_std")
        row["groups/used"] = (
            None if equal is None else round(self.config.rollout.prompts * (1 - equal))
        )
        row["time/step_s"] = now - self.started
        self.started = now
        self.folder.log_step(row)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains in this process, as one of those that torchrun started."""
    parser = argparse.ArgumentParser(prog="isentrope.integrations.trl.worker")
    parser.add_argument("recipe", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    config = load_config(options.recipe)
    if config.threads:
        torch.set_num_threads(config.threads)
    task = task_of(config, lambda text: print(f"note: {text}", file=sys.stderr))  # noqa: T201
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if torch.cuda.is_available() and config.model.device != "cpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    model = load_model(config.model)
    switch_off_dropout(model.network)
    args = EntropyGRPOConfig(**settings(resolved(config, model), options.out, processes))
    trainer = EntropyGRPOTrainer(
        model=trained_model(config, model),
        processing_class=model.tokenizer,
        reward_funcs=reward_function(task),
        args=args,
        train_dataset=dataset(config, task),
    )
    network = trainer.accelerator.unwrap_model(trainer.model)
    model = replace(model, network=network, head=find_head(network))  # lets go of a second copy
    if trainer.accelerator.is_main_process:
        folder = RunFolder(options.out)
        trainer.add_callback(RunFolderCallback(config, folder, task, model))
    trainer.train(resume_from_checkpoint=options.resume and latest_update(options.out) > 0)
    trainer.save_model(str(options.out / "checkpoints" / "final"))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


def resolved(config: TrainConfig, model: LanguageModel) -> TrainConfig:
    """The configuration with the device that `auto` stands for."""
    return replace(config, model=replace(config.model, device=model.device.type))


def trained_model(config: TrainConfig, model: LanguageModel) -> Any:
    """The network; its path where TRL has to load it a second time, as the reference."""
    if not config.objective.reference_kl_coefficient:
        return model.network
    return locate(config.model.path)[0]


def dataset(config: TrainConfig, task: Task) -> Any:
    """Every problem of the run, in the order in which the local engine meets them."""
    count = config.steps * config.rollout.prompts
    problems = [task.train(index) for index in range(count)]
    chat, system = config.model.prompt == "chat", config.model.system
    return datasets.Dataset.from_list(
        [
            {
                "prompt": conversation(p.prompt, system) if chat else p.prompt,
                "problem": p.prompt,
                "answer": p.answer,
                "source": p.source,
                "columns": json.dumps(dict(p.columns), default=str),
            }
            for p in problems
        ]
    )


def reward_function(task: Task) -> Any:
    """The task's verdicts as TRL's reward function; None is no reward at all."""

    def verdict(
        completions: list[Any],
        problem: list[str],
        answer: list[str],
        source: list[str],
        columns: list[str],
        **unused: Any,
    ) -> list[float | None]:
        rows = zip(problem, answer, source, columns, strict=True)
        problems = [Problem(p, a, s, json.loads(c)) for p, a, s, c in rows]
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
        return [found.score for found in task.verify(problems, texts)]

    return verdict


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is written; Python's own end may abort a rank while library threads wait
