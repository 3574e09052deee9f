"""Sampling in groups beside `model.generate`: the same model, prompts and lengths, in one run.

python benchmarks/sampling.py MODEL [--prompts 16] [--samples 8] [--prompt-length 200] [--length 64]

Both sample at temperature 1 from the whole vocabulary and to the full length. The group sampler
also returns the log-probability and the entropy of every token. Processor seconds and wall seconds,
medians of `--repeats` alternating rounds after a warm-up.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import tyro
from transformers import GenerationConfig

from isentrope.config import ModelConfig
from isentrope.objective.streams import stream
from isentrope.policy.model import load_model
from isentrope.policy.sampler import sample


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes."""

    model: tyro.conf.Positional[str]
    prompts: int = 16
    samples: int = 8
    prompt_length: int = 200
    length: int = 64
    repeats: int = 3


def main(options: Options) -> None:
    """Measures and prints."""
    model = replace(
        load_model(ModelConfig(path=options.model, device="cpu")),
        eos_ids=torch.tensor([], dtype=torch.long),  # no response ends early
    )
    vocabulary = model.network.config.vocab_size
    shape = (options.prompts, options.prompt_length)
    prompts = torch.randint(5, vocabulary, shape, generator=stream(0, "benchmark"))
    generation = full_sampling(model.pad_id)

    def groups() -> None:
        rollout = sample(
            model,
            prompts.tolist(),
            samples=options.samples,
            temperature=1.0,
            max_new_tokens=options.length,
            generator=stream(0, "draws"),
        )
        assert int(rollout.mask.sum()) == options.prompts * options.samples * options.length

    def generate() -> None:
        tokens = model.network.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            generation_config=generation,
            do_sample=True,
            num_return_sequences=options.samples,
            max_new_tokens=options.length,
        )
        assert tokens.shape[1] == options.prompt_length + options.length

    ours, theirs = alternate(groups, generate, options.repeats)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.model}")
    print(f"{'':18}{'cpu s':>10}{'wall s':>10}")
    for name, (cpu, wall) in (("group sampler", ours), ("model.generate", theirs)):
        print(f"{name:18}{cpu:10.2f}{wall:10.2f}")
    print(f"{'ratio':18}{theirs[0] / ours[0]:10.2f}{theirs[1] / ours[1]:10.2f}")


def full_sampling(pad_id: int) -> GenerationConfig:
    """A generation config without end of sequence, truncation of the vocabulary or penalties."""

    return GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=None, pad_token_id=pad_id
    )


def alternate(
    first: Callable[[], None], second: Callable[[], None], repeats: int
) -> list[tuple[float, float]]:
    """Median processor and wall seconds of both."""
    seconds: tuple[list[tuple[float, float]], ...] = ([], [])
    for round_number in range(repeats + 1):
        for kept, work in zip(seconds, (first, second), strict=True):
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            if round_number:
                kept.append((time.process_time() - cpu, time.perf_counter() - wall))
    return [
        (statistics.median(cpu for cpu, _ in kept), statistics.median(wall for _, wall in kept))
        for kept in seconds
    ]


if __name__ == "__main__":
    main(tyro.cli(Options))
