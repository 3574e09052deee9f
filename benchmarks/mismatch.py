"""How far vLLM's log-probs are from the trainer's, before and after a change of the weights.

    python benchmarks/mismatch.py MODEL --dtype bfloat16

`stale` is measured after the weights have changed by 2 % and before vLLM has them.
"""

import sys
import time
from dataclasses import replace
from typing import Literal

import torch
import tyro

from isentrope.config import ModelConfig, RolloutConfig, TrainConfig, VllmConfig
from isentrope.objective.mismatch import mismatch_metrics
from isentrope.objective.streams import stream
from isentrope.policy.model import load_model
from isentrope.policy.vllm_sampler import start_vllm

QUESTIONS = (
    "What is 12 + 30?",
    "Name three colours.",
    "Write a sentence about the sea.",
    "Why is the sky blue?",
)


def main(
    model: tyro.conf.Positional[str],
    dtype: Literal["float32", "bfloat16"] = "float32",
    prompt: Literal["plain", "chat"] = "chat",
    samples: int = 8,
    max_new_tokens: int = 64,
    memory: float = 0.35,
) -> None:
    """Samples three times, and prints the distance of the log-probs in nats."""
    config = TrainConfig(
        model=ModelConfig(path=model, dtype=dtype, prompt=prompt),
        rollout=RolloutConfig(sampler="vllm", rows=64),
        vllm=VllmConfig(gpu_memory_utilization=memory, enforce_eager=True, max_model_len=512),
    )
    config = replace(config, optimizer=replace(config.optimizer, micro_batch_size=8))
    language_model = load_model(config.model)
    sampler = start_vllm(config, language_model)
    prompts = [language_model.encode(question) for question in QUESTIONS]

    def measure(name: str) -> None:
        rollout = sampler.sample(
            prompts,
            samples=samples,
            temperature=1.0,
            max_new_tokens=max_new_tokens,
            generator=stream(0, "benchmark"),
        )
        far = mismatch_metrics(rollout.logprob, rollout.sampler_logprob, rollout.mask)
        print(f"{name}: {int(rollout.mask.sum())} tokens, {far}")

    measure("as loaded")
    noise = stream(0, "noise")
    with torch.no_grad():
        for parameter in language_model.network.parameters():
            parameter *= 1 + 0.02 * torch.randn(parameter.shape, generator=noise).to(parameter)
    measure("stale")
    started = time.perf_counter()
    sampler.refresh()
    print(f"refresh: {time.perf_counter() - started:.2f} s")
    measure("refreshed")


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
