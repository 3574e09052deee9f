"""A whole training step beside TRL's GRPOTrainer: the same model, prompts, lengths and batch.

    make .venv-trl/.installed
    OMP_NUM_THREADS=1 .venv-trl/bin/python benchmarks/train_step.py MODEL [--prompt-length 200]

A step samples, judges, and updates once on everything (GRPO, one update a rollout, AdamW, fp32, no
recomputation of activations, micro-batches of the same size); every response has the full length.
Both trainers run in a process of their own and take turns, step by step. The local engine measures
entropy, covariance and the entropy change of the step as it always does. Processor and wall seconds
of a step are medians after the first; memory is the peak resident set of the process.
"""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from isentrope.config import ModelConfig, OptimizerConfig, RolloutConfig, TrainConfig
from isentrope.policy.model import LanguageModel, load_model, locate
from isentrope.tasks.problem import Problem
from isentrope.verifiers.verdict import Outcome, Verdict


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes."""

    model: tyro.conf.Positional[str]
    prompts: int = 16
    samples: int = 8
    prompt_length: int = 200
    length: int = 64
    micro_batch_size: int = 32
    steps: int = 4
    recompute: bool = False
    """TRL recomputes activations, its default."""


def reward(text: str) -> float:
    """Of no meaning, but different within a group and the same in both trainers."""
    return float(zlib.crc32(text.encode()) % 2)


def prompt_texts(model: LanguageModel, options: Options) -> list[str]:
    """Numbers, cut to the length in tokens."""
    draw = random.Random(0)
    texts = []
    for _ in range(options.prompts * options.steps):
        numbers = " ".join(str(draw.randrange(100)) for _ in range(options.prompt_length))
        texts.append(model.decode(model.encode(numbers)[: options.prompt_length]))
    return texts


@dataclass(frozen=True)
class Drill:
    """A task of the same prompts in the same order."""

    texts: Sequence[str]
    name: str = "drill"

    def train(self, index: int) -> Problem:
        """The prompt at `index`."""
        return Problem(self.texts[index], "", self.name)

    def test(self) -> list[Problem]:
        """None is needed."""
        return []

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The meaningless reward."""
        scores = [reward(text) for text in completions]
        return [Verdict(s, Outcome.RIGHT if s else Outcome.WRONG) for s in scores]


Turn = Callable[[], None]


def local_engine(options: Options, begin: Turn, end: Turn) -> None:
    """Steps of the local engine."""
    from isentrope.control.combination import make_controller
    from isentrope.training.objective import make_objective
    from isentrope.training.progress import Progress
    from isentrope.training.run_folder import RunFolder
    from isentrope.training.trainer import prepare, train_step

    config = TrainConfig(
        steps=options.steps,
        save_samples_every=1000,
        model=ModelConfig(path=options.model, device="cpu"),
        rollout=RolloutConfig(
            prompts=options.prompts, samples=options.samples, max_new_tokens=options.length
        ),
        optimizer=OptimizerConfig(
            mini_batches=1, micro_batch_size=options.micro_batch_size, learning_rate=1e-6
        ),
    )
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder.open(Path(path) / "run", config, resume=False)
        _, learner = prepare(config, make_objective(config.objective), folder)
        folder.begin(config, 0)
        endless = replace(learner.model, eos_ids=torch.tensor([], dtype=torch.long))
        learner = replace(learner, model=endless)
        task = Drill(prompt_texts(learner.model, options))
        progress = Progress(config, make_controller(config))
        for step in range(options.steps):
            begin()
            metrics = train_step(learner, task, folder, step, progress)
            progress = progress.after(metrics)
            end()


def trl_trainer(options: Options, begin: Turn, end: Turn) -> None:
    """Steps of TRL's GRPOTrainer."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    class Turns(TrainerCallback):
        """Waits before a step and reports after it."""

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            begin()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            end()

    source, keywords = locate(options.model)
    texts = prompt_texts(load_model(ModelConfig(path=options.model, device="cpu")), options)
    rows = options.prompts * options.samples
    with tempfile.TemporaryDirectory() as path:
        args = trl.GRPOConfig(
            output_dir=path,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
            max_steps=options.steps,
            learning_rate=1e-6,
            num_generations=options.samples,
            max_completion_length=options.length,
            per_device_train_batch_size=options.micro_batch_size,
            gradient_accumulation_steps=rows // options.micro_batch_size,
            generation_kwargs={"min_new_tokens": options.length, "top_k": 0},
            temperature=1.0,
            gradient_checkpointing=options.recompute,
            shuffle_dataset=False,
        )
        trainer = trl.GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **keywords),
            processing_class=AutoTokenizer.from_pretrained(source, **keywords),
            reward_funcs=lambda completions, **rest: [reward(text) for text in completions],
            args=args,
            train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
            callbacks=[Turns()],
        )
        trainer.train()


TRAINERS = {"isentrope": local_engine, "TRL": trl_trainer}


def work(name: str, options: Options) -> None:
    """Runs one trainer in this process; a line on stdin lets it take its next step."""
    answer = sys.stdout
    sys.stdout = sys.stderr
    started: list[float] = []

    def begin() -> None:
        sys.stdin.readline()
        started[:] = [time.process_time(), time.perf_counter()]

    def end() -> None:
        seconds = [time.process_time() - started[0], time.perf_counter() - started[1]]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([*seconds, peak]), file=answer, flush=True)

    TRAINERS[name](options, begin, end)


def main(options: Options) -> None:
    """Lets the trainers take turns, and prints the table."""
    command = [sys.executable, __file__]
    with tempfile.TemporaryFile() as log:
        processes = {
            name: subprocess.Popen(
                [*command, "--work", name, json.dumps(asdict(options))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for name in TRAINERS
        }
        measured: dict[str, list[list[float]]] = {name: [] for name in TRAINERS}
        for _ in range(options.steps):
            for name, process in processes.items():
                measured[name].append(turn(process, log))
        for process in processes.values():
            process.wait()
    report(options, measured)


def turn(process: "subprocess.Popen[str]", log: Any) -> list[float]:
    """Processor seconds, wall seconds and peak MiB of the next step of a trainer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        log.seek(0)
        raise SystemExit(log.read().decode()[-3000:])
    return json.loads(line)


def report(options: Options, measured: dict[str, list[list[float]]]) -> None:
    """The table."""
    rows = options.prompts * options.samples
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options}")
    print(f"{'':12}{'cpu s':>9}{'wall s':>9}{'samples/s':>11}{'peak MiB':>10}")
    medians = {}
    for name, steps in measured.items():
        cpu, wall, _ = (statistics.median(column) for column in zip(*steps[1:], strict=True))
        medians[name] = (cpu, wall)
        peak = max(step[2] for step in steps)
        print(f"{name:12}{cpu:9.2f}{wall:9.2f}{rows / wall:11.2f}{peak:10.0f}")
    (our_cpu, our_wall), (cpu, wall) = medians["isentrope"], medians["TRL"]
    print(f"{'ratio':12}{cpu / our_cpu:9.2f}{wall / our_wall:9.2f}")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], Options(**json.loads(sys.argv[3])))
    else:
        main(tyro.cli(Options))
