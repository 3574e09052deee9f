"""A stored run of 30 steps: no change to the code may change its numbers without a reason.

    python tests/training/test_golden.py     writes golden.json again

On the kind of machine that made it, and with the same torch, the numbers are equal to the last bit.
Elsewhere matrix products round differently, and after some steps another token is sampled: there
the first steps must agree closely, and the course of the run in the mean.
"""

import json
import platform
import tempfile
from pathlib import Path

import pytest
import torch
from rich.console import Console

from isentrope.commands.display import Display
from isentrope.config import (
    EvaluationConfig,
    ObjectiveConfig,
    OptimizerConfig,
    RolloutConfig,
    TrainConfig,
)
from isentrope.training.trainer import train

GOLDEN = Path(__file__).with_name("golden.json")

CONFIG = TrainConfig(
    steps=30,
    threads=1,
    probe_tokens=64,
    rollout=RolloutConfig(prompts=16, samples=4, max_new_tokens=16),
    objective=ObjectiveConfig(loss="kl_cov", kl_fraction=0.02),
    optimizer=OptimizerConfig(mini_batches=2, micro_batch_size=32, learning_rate=3e-4),
    evaluation=EvaluationConfig(every=30, problems=8, samples=4),
)

KEYS = (
    "step",
    "entropy/token_mean",
    "reward/mean",
    "covariance/mean",
    "selected/tokens",
    "entropy_change/predicted",
    "loss/policy",
    "grad_norm",
)


def machine() -> str:
    """What decides how matrix products round."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    parts = ("vendor_id", "cpu family", "model", "stepping")
    cpu = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    names = " ".join(cpu.get(part, "?") for part in parts)
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} {names} {capability} torch {torch.__version__}"


def golden_run() -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, Display(Console(quiet=True)) as display:
        train(CONFIG, Path(folder) / "run", resume=False, display=display)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    return [{key: row.get(key) for key in KEYS} for row in map(json.loads, lines)]


def test_the_golden_run() -> None:
    stored = json.loads(GOLDEN.read_text())
    run = golden_run()
    if stored["machine"] == machine():
        assert run == stored["rows"]
        return
    for row, expected in zip(run[:2], stored["rows"][:2], strict=True):
        assert row == pytest.approx(expected, rel=0.02, abs=2e-3)
    for key, tolerance in (("entropy/token_mean", 0.02), ("reward/mean", 0.05)):
        mean = sum(row[key] for row in run) / len(run)
        expected = sum(row[key] for row in stored["rows"]) / len(run)
        assert mean == pytest.approx(expected, abs=tolerance)


if __name__ == "__main__":
    GOLDEN.write_text(
        json.dumps({"machine": machine(), "rows": golden_run()}, indent=1) + "\n", encoding="utf-8"
    )
