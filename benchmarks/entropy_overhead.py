"""Cost of covariance, selection and logging beside the training step that they belong to.

python benchmarks/entropy_overhead.py MODEL [--prompts 4] [--samples 8] [--length 64]

MODEL is anything that `model.path` takes. The step is one forward and backward pass over all
responses and one optimizer step; times are processor seconds, medians of `--repeats` rounds.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from isentrope.config import ModelConfig
from isentrope.objective.covariance import (
    select_top,
    select_window,
    selection_metrics,
    token_covariance,
)
from isentrope.objective.masking import loss_denominator, reduce_loss
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_stats
from isentrope.policy.model import load_model
from isentrope.policy.sampler import Rollout
from isentrope.training.run_folder import append_line


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes."""

    model: tyro.conf.Positional[str]
    prompts: int = 4
    samples: int = 8
    prompt_length: int = 100
    length: int = 64
    repeats: int = 3


def main(options: Options) -> None:
    """Measures and prints."""
    model = load_model(ModelConfig(path=options.model, device="cpu"))
    rows = options.prompts * options.samples
    draws = stream(0, "benchmark")
    vocabulary = model.network.config.vocab_size
    shape = (rows, options.length)
    rollout = Rollout(
        prompts=torch.randint(vocabulary, (rows, options.prompt_length), generator=draws),
        prompt_mask=torch.ones(rows, options.prompt_length, dtype=torch.bool),
        tokens=torch.randint(vocabulary, shape, generator=draws),
        mask=torch.ones(shape, dtype=torch.bool),
        logprob=-torch.rand(shape, generator=draws),
        sampler_logprob=-torch.rand(shape, generator=draws),
        entropy=torch.rand(shape, generator=draws),
        truncated=torch.zeros(rows, dtype=torch.bool),
    )
    advantage = torch.randn(rows, 1, generator=draws).expand(shape)
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=1e-6)
    denominator = loss_denominator(rollout.mask, "token_mean")

    def step() -> None:
        for start in range(0, rows, options.samples):
            part = rollout.rows(slice(start, start + options.samples))
            stats = response_stats(model, part, 1.0)
            loss = -stats.logprob * advantage[start : start + options.samples]
            reduce_loss(loss, part.mask, "token_mean", denominator).backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:

        def extra() -> None:
            covariance = token_covariance(rollout.logprob, advantage, rollout.mask)
            selected = select_top(covariance, rollout.mask)
            select_window(covariance, rollout.mask, generator=stream(0, "selection"))
            metrics = selection_metrics(covariance, selected, rollout.mask)
            append_line(Path(folder) / "metrics.jsonl", metrics)

        whole = median_cpu_s(step, options.repeats)
        added = median_cpu_s(extra, options.repeats)
    report = {
        "model": options.model,
        "tokens": rows * options.length,
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(report))
    print(f"training step          {whole:9.3f} s")
    print(f"covariance, selection, logging {1000 * added:9.3f} ms   {100 * added / whole:.3f} %")


def median_cpu_s(work: Callable[[], None], repeats: int) -> float:
    """Processor seconds of one call, after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main(tyro.cli(Options))
