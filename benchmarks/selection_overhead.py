"""What the exact selection costs in TRL: its share of the time of an update, in one run.

    python benchmarks/selection_overhead.py [--updates 12]
    python benchmarks/selection_overhead.py --scale
    python benchmarks/selection_overhead.py --cluster

Without --scale: three short TRL runs with the built-in model. Each times the selection, with its
no-grad forward where it needs one, and the whole update (selection, forward, backward, optimizer;
no sampling) in the same run, and counts the forwards. With --scale: seconds and memory of the
selection itself for mini-batches of up to 16 million tokens. With --cluster: arithmetic for 8 to
1,024 GPUs, from the assumptions that it prints; nothing is measured.
"""

import argparse
import resource
import time
from collections import defaultdict
from typing import Any

import torch

from isentrope.integrations.selection import Tokens, choose, draws, selector

CLIP_COV = {"entropy_control": "clip_cov", "clip_fraction": 0.02, "covariance_low": 0.3}

SITUATIONS: dict[str, dict[str, Any]] = {
    "on policy: TRL has no old log-probs": {**CLIP_COV},
    "4 updates a generation: TRL has them": {**CLIP_COV, "steps_per_generation": 8},
    "the same, covariance_policy='current'": {
        **CLIP_COV,
        "steps_per_generation": 8,
        "covariance_policy": "current",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cluster:
        cluster()
        return
    if options.scale:
        scale()
        return
    print(f"{'situation':<40} {'no-grad forwards an update':>27} {'share of update time':>21}")
    for name, settings in SITUATIONS.items():
        forwards, share = measure(settings, options.updates)
        print(f"{name:<40} {forwards:>27.2f} {100 * share:>19.1f} %")


def measure(settings: dict[str, Any], updates: int) -> tuple[float, float]:
    """(passes over the whole window an update, share of its time) in a run of so many updates."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from isentrope.integrations.trl import EntropyGRPOConfig, EntropyGRPOTrainer
    from isentrope.policy.builtin import builtin_path
    from isentrope.tasks.countdown import Countdown

    spent: dict[str, float] = defaultdict(float)

    class Timed(EntropyGRPOTrainer):
        def _begin_update(self) -> None:
            started = time.perf_counter()
            super()._begin_update()
            spent["selection"] += time.perf_counter() - started

        def _score(self, part: Any) -> Any:
            spent["forwards"] += len(part["advantages"])
            return super()._score(part)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            started = time.perf_counter()
            try:
                return super()._generate_and_score_completions(inputs)
            finally:
                spent["sampling"] += time.perf_counter() - started

    path, task = str(builtin_path("countdown")), Countdown()
    trainer = Timed(
        model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(path),
        reward_funcs=lambda completions, **unused: [len(text) % 3 / 2 for text in completions],
        args=EntropyGRPOConfig(
            output_dir="/tmp/isentrope-overhead",
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
            gradient_checkpointing=False,
            per_device_train_batch_size=64,
            gradient_accumulation_steps=2,
            num_generations=8,
            max_completion_length=16,
            max_steps=updates,
            **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": task.train(i).prompt} for i in range(512)]),
    )
    started = time.perf_counter()
    trainer.train()
    update = time.perf_counter() - started - spent["sampling"]
    return spent["forwards"] / (128 * updates), spent["selection"] / update


def scale() -> None:
    """Seconds and extra memory of `choose` on one thread, by tokens in the mini-batch."""
    select = selector("clip_cov", {})
    print(f"{'tokens':>12} {'seconds':>9} {'extra memory, bytes a token':>28}")
    for rows in (8, 32, 128, 512, 2048):
        draw = torch.Generator().manual_seed(0)
        shape = (rows, 8192)
        tokens = Tokens(
            keys=torch.randint(1 << 60, (rows,), generator=draw),
            logprob=-torch.rand(shape, generator=draw),
            advantage=torch.randn(rows, 1, generator=draw).expand(shape).contiguous(),
            mask=torch.ones(shape, dtype=torch.bool),
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        choose(tokens, select, draws(0, 0))
        seconds = time.perf_counter() - started
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(f"{rows * 8192:>12,} {seconds:>9.3f} {grown / (rows * 8192):>28.0f}")


WIRE_BYTES = 9
"""A token on its way: log-probability and advantage in float32, a byte of mask."""
MEMORY_BYTES = 45
"""A token while it is selected, from --scale."""
TOKENS_PER_GPU = 65_536
PARAMETERS = 7e9
NETWORK_BYTES_PER_S = 25e9
SORTED_PER_S = 1e9
FLOPS_PER_S = 4e14


def cluster() -> None:
    """Bytes, seconds and memory of the selection when the mini-batch grows with the cluster."""
    print(
        f"{TOKENS_PER_GPU:,} tokens a GPU and update (the paper's 256 x 8,192 on 32 GPUs), "
        f"{PARAMETERS:.0e} parameters;\n{NETWORK_BYTES_PER_S:.1e} bytes/s into a GPU, "
        f"{SORTED_PER_S:.0e} keys/s sorted (2 sorts), {FLOPS_PER_S:.0e} FLOP/s, 8 x parameters x "
        "tokens FLOP an update"
    )
    update = 8 * PARAMETERS * TOKENS_PER_GPU / FLOPS_PER_S
    print(
        f"{'GPUs':>6} {'tokens':>12} {'MB in':>7} {'move s':>7} {'sort s':>7} {'MB held':>8} {'of update':>9}"
    )
    for gpus in (8, 32, 128, 512, 1024):
        tokens = gpus * TOKENS_PER_GPU
        moved = WIRE_BYTES * tokens * (gpus - 1) / gpus
        seconds = moved / NETWORK_BYTES_PER_S, 2 * tokens / SORTED_PER_S
        print(
            f"{gpus:>6,} {tokens:>12,} {moved / 1e6:>7.0f} {seconds[0]:>7.4f} {seconds[1]:>7.4f} "
            f"{MEMORY_BYTES * tokens / 1e6:>8.0f} {100 * sum(seconds) / update:>7.2f} %"
        )


if __name__ == "__main__":
    main()
