"""Run folders made up from known formulas, as a training run would write them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

MakeRun = Callable[..., Path]

START, A, B = 0.25, 0.95, 1.74  # near a small model on Countdown: 0.52 correct at the start
PIECES = ["3", " *", " 4", " =", " 12", "\n", "12", " <", " 20", " &", "\n", "\\boxed{", "12", "}"]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that writes a run folder and returns its path."""

    def make(
        name: str = "grpo",
        seed: int = 0,
        *,
        steps: int = 120,
        floor: float = 0.08,
        noise: float = 1.0,
        samples: bool = True,
        selected: float = 0.0,
    ) -> Path:
        folder = tmp_path / f"{name}-{seed}"
        write_run(
            folder,
            name=name,
            seed=seed,
            steps=steps,
            floor=floor,
            noise=noise,
            samples=samples,
            selected=selected,
        )
        return folder

    return make


def write_run(
    folder: Path,
    *,
    name: str = "grpo",
    seed: int = 0,
    steps: int = 120,
    floor: float = 0.08,
    noise: float = 1.0,
    samples: bool = True,
    selected: float = 0.0,
) -> None:
    """A run whose entropy decays from 0.25 to `floor` with R = -0.95 e^H + 1.74."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    h = floor + (START - floor) * np.exp(-np.arange(steps + 1) / 40)
    metrics = [metrics_row(step, h, rng, noise, selected) for step in range(steps)]
    evaluations = [evaluation_row(step, h, rng, noise) for step in range(0, steps + 1, 5)]
    write_lines(folder / "metrics.jsonl", metrics)
    write_lines(folder / "evaluations.jsonl", evaluations)
    (folder / "config.toml").write_text(
        f'name = "{name}"\nseed = {seed}\nsteps = {steps}\n\n'
        f'[objective]\nloss = "{name}"\nlearning_rate = 1e-4\n\n[model]\npath = "builtin:countdown"\n'
    )
    (folder / "environment.json").write_text(
        json.dumps({"python": "3.11.9", "torch": "2.13.0", "git": "0123abc", "cpu": {"cores": 2}})
    )
    if samples:
        (folder / "samples").mkdir()
        for step in (0, steps // 2, steps - 1):
            rows = [sample_row(step, rng, h[step]) for _ in range(4)]
            write_lines(folder / "samples" / f"{step:06d}.jsonl", rows)


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def metrics_row(
    step: int, h: np.ndarray, rng: np.random.Generator, noise: float, selected: float
) -> dict[str, object]:
    """The row of one training step."""
    change = float(h[step + 1] - h[step])
    used = int(40 + rng.integers(0, 20))
    row: dict[str, object] = {
        "step": step,
        "entropy/token_mean": float(1.15 * h[step] + noise * rng.normal(0, 0.006)),
        "entropy/sequence_mean": float(h[step] + noise * rng.normal(0, 0.005)),
        "reward/mean": float(B - A * np.exp(h[step]) + noise * rng.normal(0, 0.02)),
        "groups/all_right": 0.15 + 0.2 * step / 120,
        "groups/all_wrong": 0.08,
        "groups/used": used,
        "covariance/mean": float(-2 * change + noise * rng.normal(0, 0.002)),
    }
    decay = 0.4 + 0.6 * float(np.exp(-step / 40))
    tops = {"0.0002": 5.6, "0.002": 3.1, "0.02": 1.4, "0.2": 0.35, "0.5": 0.15}
    for share, level in tops.items():
        row[f"covariance/top_{share}"] = level * decay * float(np.exp(noise * rng.normal(0, 0.1)))
    return row | {
        "selected/tokens": int(20_000 * selected),
        "selected/fraction": selected,
        "entropy_change/predicted": 0.9 * change + noise * float(rng.normal(0, 4e-4)),
        "entropy_change/measured": change + noise * float(rng.normal(0, 4e-4)),
        "loss/policy": float(rng.normal(0, 0.01)),
        "clip/fraction": abs(float(rng.normal(0.01, 0.003))),
        "kl/behaviour": abs(float(rng.normal(0.002, 5e-4))),
        "kl/reference": None,
        "grad_norm": float(np.exp(rng.normal(-1, 0.3))),
        "learning_rate": 1e-4,
        "length/mean": float(38 + 3 * rng.normal()),
        "length/max": 64,
        "truncated": abs(float(rng.normal(0.01, 0.004))),
        "time/rollout_s": 0.6,
        "time/verify_s": 0.05,
        "time/update_s": 0.5,
        "time/evaluate_s": 0.2 if step % 5 == 0 else 0.0,
        "time/step_s": 1.4,
        "tokens_per_s": 9_500.0,
    }


def evaluation_row(
    step: int, h: np.ndarray, rng: np.random.Generator, noise: float
) -> dict[str, object]:
    """The row of one evaluation."""
    right = float(B - A * np.exp(h[step]) + noise * rng.normal(0, 0.006))
    return {
        "step": step,
        "source": "countdown",
        "k": 8,
        "problems": 256,
        "samples": 2048,
        "reward/avg": right,
        "reward/pass": 0.94 - 0.45 * (START - float(h[step])),
        "reward/avg_low": right - 0.025,
        "reward/avg_high": right + 0.025,
        "entropy/token_mean": 1.15 * float(h[step]),
        "entropy/sequence_mean": float(h[step]),
        "length/mean": 38.0,
        "truncated": 0.01,
    }


def sample_row(step: int, rng: np.random.Generator, level: float) -> dict[str, object]:
    """The row of one saved completion, with characters that HTML must escape."""
    count = len(PIECES)
    entropy = rng.gamma(0.4, 2.5 * level, count)
    return {
        "step": step,
        "prompt": "Use 3, 4 and 8 to make 20 <script>alert(1)</script>",
        "completion": "".join(PIECES),
        "tokens": PIECES,
        "logprob": (-rng.exponential(level, count)).tolist(),
        "entropy": entropy.tolist(),
        "covariance": rng.standard_t(2, count).tolist(),
        "selected": (entropy > 2 * level).tolist(),
        "advantage": 0.5,
        "reward": 1.0,
    }
