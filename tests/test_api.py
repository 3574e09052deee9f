"""isentrope from Python: the same files and numbers as the commands, and a light import."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isentrope
from isentrope import api
from isentrope.config import TrainConfig, recipe_of
from isentrope.errors import ConfigError
from isentrope.tasks.countdown import Countdown

PUBLIC = ["__version__", "compare", "fit", "load_run", "probe", "train", "write_report"]


def settings(tiny: TrainConfig) -> dict[str, Any]:
    """Those of the tiny run, over the recipe `countdown`."""
    return {
        "steps": 3,
        "threads": 1,
        "probe_tokens": 0,
        "rollout": {"prompts": 6, "samples": 4, "max_new_tokens": 16},
        "optimizer": {"mini_batches": 2, "micro_batch_size": 16},
        "evaluation": {"every": 1, "problems": 8, "samples": 4},
    }


def test_the_public_names_hold_still() -> None:
    assert sorted(isentrope.__all__) == PUBLIC
    assert set(api.__all__) == set(PUBLIC) - {"__version__"}
    assert dir(isentrope) == sorted(PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        _ = isentrope.tran  # pyright: ignore[reportAttributeAccessIssue]


def test_an_import_loads_neither_torch_nor_numpy() -> None:
    code = "import isentrope, sys; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_run_from_python_with_a_task_and_a_reward_of_its_own(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    seen: list[Mapping[str, float]] = []

    async def length(completions: list[str], **kwargs: Any) -> list[float]:
        return [len(text) / 20 for text in completions]

    run = isentrope.train(
        "countdown",
        out=tmp_path / "run",
        task=Countdown(seed=3, num_test=16),
        reward=length,
        on_step=seen.append,
        **settings(tiny),
    )
    assert [row["step"] for row in seen] == [0, 1, 2]
    rewards = run.get("reward/mean").values
    assert isinstance(rewards, np.ndarray)
    assert rewards.tolist() == [row["reward/mean"] for row in seen]
    assert 0.3 < rewards[0] < 0.9
    assert isentrope.fit(run).record is run.record
    assert "<iframe srcdoc=" in run._repr_html_()
    page = isentrope.write_report(run)
    assert page == tmp_path / "run" / "report.html"
    assert isentrope.load_run(tmp_path / "run").steps == run.steps


def test_two_arms_from_python(tiny: TrainConfig, tmp_path: Path) -> None:
    runs = isentrope.compare(
        ["countdown", "countdown-kl-cov"], out=tmp_path / "arms", jobs=2, **settings(tiny)
    )
    assert [run.arm for run in runs] == ["grpo", "kl_cov"]
    assert [run.planned_steps for run in runs] == [3, 3]
    assert isentrope.write_report(*runs, out=tmp_path / "x.html").stat().st_size > 10_000


def test_a_probe_from_python(tiny: TrainConfig) -> None:
    found = isentrope.probe("countdown", **settings(tiny))
    assert found["groups/used"] > 0
    assert np.isfinite(found["covariance/mean"])


def test_settings_go_over_a_recipe_and_wrong_ones_are_named() -> None:
    config = recipe_of("countdown", {"objective": {"loss": "kl_cov"}, "steps": 7})
    assert (config.objective.loss, config.steps, config.rollout.prompts) == ("kl_cov", 7, 64)
    assert recipe_of(config, {"seed": 4}).objective.loss == "kl_cov"
    with pytest.raises(ConfigError, match="did you mean 'objective'"):
        recipe_of("countdown", {"objektive": {}})
    with pytest.raises(ConfigError, match="there is no recipe contdown"):
        recipe_of("contdown", {})
