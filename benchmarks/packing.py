"""Micro-batches of responses of like length beside those in the order of sampling, in one run.

python benchmarks/packing.py MODEL [--prompts 16] [--samples 8] [--prompt-length 32] [--length 256]

Forward and backward pass of random responses whose lengths are drawn from an exponential
distribution with a mean of a quarter of the longest. Processor seconds and wall seconds, medians of
`--repeats` alternating rounds after a warm-up.
"""

from dataclasses import dataclass

import torch
import tyro
from sampling import alternate
from torch import Tensor

from isentrope.config import ModelConfig
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_stats
from isentrope.policy.model import load_model
from isentrope.policy.packing import micro_batches
from isentrope.policy.sampler import Rollout


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes."""

    model: tyro.conf.Positional[str]
    prompts: int = 16
    samples: int = 8
    prompt_length: int = 32
    length: int = 256
    micro_batch_size: int = 16
    repeats: int = 3


def main(options: Options) -> None:
    """Measures and prints."""
    model = load_model(ModelConfig(path=options.model, device="cpu"))
    rollout = responses(options, model.network.config.vocab_size)
    count = len(rollout.tokens)
    orders = {
        "by length": micro_batches(rollout, options.micro_batch_size),
        "as sampled": list(torch.arange(count).split(options.micro_batch_size)),
    }

    def train(parts: list[Tensor]) -> None:
        for rows in parts:
            part = rollout.rows(rows).trimmed()
            stats = response_stats(model, part, 1.0)
            (stats.logprob * part.mask).sum().backward()
        model.network.zero_grad()

    results = alternate(*(lambda p=parts: train(p) for parts in orders.values()), options.repeats)
    tokens = int(rollout.mask.sum())
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.model}")
    print(f"{count} responses of {tokens / count:.0f} tokens on average, {options.length} at most")
    print(f"{'':18}{'read':>10}{'cpu s':>10}{'wall s':>10}")
    for (name, parts), (cpu, wall) in zip(orders.items(), results, strict=True):
        read = sum(len(rows) * int(rollout.mask[rows].sum(-1).max()) for rows in parts)
        print(f"{name:18}{read:10,}{cpu:10.2f}{wall:10.2f}")
    (ours, ours_wall), (theirs, theirs_wall) = results
    print(f"{'ratio':28}{theirs / ours:10.2f}{theirs_wall / ours_wall:10.2f}")


def responses(options: Options, vocabulary: int) -> Rollout:
    """Random tokens."""
    draws = stream(0, "packing")
    count = options.prompts * options.samples
    shape = (options.prompts, options.prompt_length)
    prompts = torch.randint(5, vocabulary, shape, generator=draws)
    drawn = torch.empty(count).exponential_(4 / options.length, generator=draws)
    lengths = drawn.long().clamp(1, options.length)
    mask = torch.arange(options.length) < lengths[:, None]
    numbers = torch.zeros(mask.shape)
    return Rollout(
        prompts=prompts.repeat_interleave(options.samples, 0),
        prompt_mask=torch.ones(count, options.prompt_length, dtype=torch.bool),
        tokens=torch.randint(5, vocabulary, mask.shape, generator=draws),
        mask=mask,
        logprob=numbers,
        sampler_logprob=numbers,
        entropy=numbers,
        truncated=mask.all(-1),
    )


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
