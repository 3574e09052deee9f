"""Every algorithm and control, resumed from an earlier checkpoint, goes on as if it had not ended."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.config import ControlConfig, ObjectiveConfig, PrimeConfig, TrainConfig, dump_toml

Run = Callable[..., None]

ADVANTAGES = ["grpo", "dr_grpo", "rloo", "opo", "reinforce_pp", "reinforce_pp_baseline"]
LOSSES = ["policy_gradient", "cispo", "gspo", "gmpo", "clip_cov", "kl_cov", "top_entropy"]

OBJECTIVES = {
    **{name: {"objective": ObjectiveConfig(advantage=name)} for name in ADVANTAGES},
    **{name: {"objective": ObjectiveConfig(loss=name)} for name in LOSSES},
    "bonus": {"objective": ObjectiveConfig(entropy_coefficient=0.01)},
    "reference KL": {"objective": ObjectiveConfig(reference_kl_coefficient=0.1)},
    "reference KL in reward": {
        "objective": ObjectiveConfig(reference_kl_coefficient=0.1, reference_kl_place="reward")
    },
    "reference KL in reward, token by token": {
        "objective": ObjectiveConfig(
            advantage="reinforce_pp", reference_kl_coefficient=0.1, reference_kl_place="reward"
        )
    },
    "entropy shaping": {"objective": ObjectiveConfig(shaping="entropy")},
    "covariance kernel": {"objective": ObjectiveConfig(shaping="covariance_kernel")},
    "fixed budget": {"objective": ObjectiveConfig(loss="budget", budget=0.0)},
    "adaptive": {"control": ControlConfig(name="adaptive", target=0.3)},
    "band": {"control": ControlConfig(name="band", target=0.1, width=0.01)},
    "budget": {
        "objective": ObjectiveConfig(loss="budget"),
        "control": ControlConfig(name="budget", gain=2.0, integral_gain=0.5, target_end=0.1),
    },
    "success": {
        "objective": ObjectiveConfig(shaping="success"),
        "control": ControlConfig(name="budget", gain=2.0, integral_gain=0.5, target_end=0.1),
    },
    "pi": {
        "objective": ObjectiveConfig(shaping="entropic"),
        "control": ControlConfig(name="pi", gain=2.0, integral_gain=0.5, target=0.1),
    },
    "doubling": {
        "objective": ObjectiveConfig(shaping="repo_r"),
        "control": ControlConfig(name="doubling", target=0.1),
    },
    "explore, then exploit": {
        "objective": ObjectiveConfig(
            advantage="pass_at_k", pass_k=2, advantage_then="grpo", advantage_steps=2
        )
    },
    "prime": {
        "objective": ObjectiveConfig(advantage="prime"),
        "prime": PrimeConfig(learning_rate=1e-3, mini_batches=2),
    },
}

QUICK = ["budget", "success", "band", "prime", "dynamic sampling"]
"""Those with a state beside the weights."""


@pytest.fixture(scope="module")
def short(tiny: TrainConfig) -> TrainConfig:
    return replace(
        tiny,
        steps=3,
        probe_tokens=0,
        rollout=replace(tiny.rollout, prompts=6),
        evaluation=replace(tiny.evaluation, every=3, problems=2),
        checkpoint=replace(tiny.checkpoint, every=1, keep=3),
    )


def configured(short: TrainConfig, name: str) -> TrainConfig:
    if name == "dynamic sampling":
        rollout = replace(short.rollout, max_rounds=3, overlong_buffer=8)
        return replace(short, rollout=rollout)
    return replace(short, **OBJECTIVES[name])


def rows(file: Path) -> list[dict[str, object]]:
    """The lines without what depends on the clock."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if not k.startswith("time/") and k != "tokens_per_s"}
        for line in lines
    ]


def cut_back(whole: Path, copy: Path, step: int) -> None:
    """A copy as a kill after the checkpoint of `step` leaves it, with more in its logs."""
    shutil.copytree(whole, copy)
    for checkpoint in (copy / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > step:
            shutil.rmtree(checkpoint)


def assert_resumes(config: TrainConfig, run: Run, folder: Path) -> list[dict[str, object]]:
    whole, copy = folder / "whole", folder / "copy"
    run(config, whole)
    cut_back(whole, copy, 1)
    run(config, copy, resume=True)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert rows(whole / name) == rows(copy / name)
    return rows(whole / "metrics.jsonl")


@pytest.mark.parametrize("name", QUICK)
def test_a_state_beside_the_weights_is_resumed(
    short: TrainConfig, run: Run, tmp_path: Path, name: str
) -> None:
    metrics = assert_resumes(configured(short, name), run, tmp_path)
    if name in ("budget", "success"):
        targets = [row["control/target"] for row in metrics]
        first = metrics[0]["entropy/token_mean"]
        assert isinstance(first, float)
        assert targets == pytest.approx([first + (0.1 - first) * step / 3 for step in range(3)])
        assert metrics[0]["control/budget"] == 0.0
    if name == "band":
        assert [row["control/coefficient"] for row in metrics] == pytest.approx(
            [-0.005, -0.01, -0.015]
        )
    if name == "prime":
        assert metrics[0]["prime/ranking"] == 0.5  # it starts as the start policy: all ties
        assert metrics[2]["prime/ranking"] != 0.5
    if name == "dynamic sampling":
        drawn = [row["sampling/prompts"] for row in metrics]
        assert all(count in (6, 12, 18) for count in drawn)
        assert all(row["groups/used"] == 6 or row["sampling/short"] for row in metrics)


def kill_after_a_checkpoint(config: TrainConfig, out: Path) -> None:
    """Trains in a process of its own, which SIGKILL ends once there is a checkpoint."""
    recipe = out.with_suffix(".toml")
    recipe.write_text(dump_toml(config))
    command = [sys.executable, "-m", "isentrope.cli", "train", str(recipe), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while not (out / "checkpoints" / "step-000001").exists():
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*OBJECTIVES, "dynamic sampling"}))
def test_every_algorithm_and_control_is_resumed_after_a_kill(
    short: TrainConfig, run: Run, tmp_path: Path, name: str
) -> None:
    config = configured(short, name)
    run(config, tmp_path / "whole")
    kill_after_a_checkpoint(config, tmp_path / "killed")
    run(config, tmp_path / "killed", resume=True)
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        assert rows(tmp_path / "whole" / file) == rows(tmp_path / "killed" / file)
