"""The verl plug-in: its losses against verl's own, and a real training worker."""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.errors import ConfigError
from isentrope.integrations.verl.options import PluginOptions, plugin_options, read_options

PROGRAM = Path(__file__).with_name("verl_program.py")

extra = pytest.mark.extra
# Ray, transformers and verl warn about their own futures on every start.
quiet = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="session")
def plugin() -> ModuleType:
    """The plug-in module, imported after verl."""
    pytest.importorskip("verl")
    return importlib.import_module("isentrope.integrations.verl.plugin")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the plug-in's environment variable."""

    def set_options(text: str) -> None:
        monkeypatch.setenv("ISENTROPE_VERL", text)
        plugin_options.cache_clear()

    yield set_options
    plugin_options.cache_clear()


def actor(**policy_loss: Any) -> Any:
    """verl's configuration of an actor."""
    from verl.workers import config

    return config.ActorConfig(
        strategy="fsdp2",
        rollout_n=4,
        ppo_micro_batch_size_per_gpu=4,
        policy_loss=config.PolicyLossConfig(**policy_loss),
    )


def tensors(seed: int) -> dict[str, Tensor]:
    """A micro-batch of random numbers in verl's names."""
    draw = torch.Generator().manual_seed(seed)
    shape = (8, 40)
    old = -3 * torch.rand(shape, generator=draw)
    lengths = torch.randint(5, 41, (8, 1), generator=draw)
    return {
        "old_log_prob": old,
        "log_prob": old + 0.3 * torch.randn(shape, generator=draw),
        "advantages": torch.randn(8, 1, generator=draw).expand(shape).contiguous(),
        "response_mask": (torch.arange(40) < lengths).float(),
        "rollout_is_weights": 0.5 + torch.rand(shape, generator=draw),
    }


@extra
@quiet
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_micro_batch_mode_equals_verl(
    plugin: ModuleType, options: Callable[[str], None], name: str, mode: str, seed: int
) -> None:
    """Loss and gradient; both draw from torch's global stream, so the same seed, the same tokens."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    options('selection = "micro_batch"')
    config = actor(clip_cov_ratio=0.05, clip_cov_lb=0.2, kl_cov_ratio=0.02, ppo_kl_coef=0.7)
    results = []
    for loss_name in (name, f"isentrope_{name}"):
        inputs = tensors(seed)
        logprob = inputs["log_prob"].requires_grad_()
        torch.manual_seed(seed)
        loss, metrics = get_policy_loss_fn(loss_name)(**inputs, loss_agg_mode=mode, config=config)
        loss.backward()
        results.append((loss.detach(), logprob.grad, metrics))
    (theirs, their_gradient, _), (ours, our_gradient, metrics) = results
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)
    assert metrics["actor/selected_fraction"] > 0


@extra
@quiet
@pytest.mark.parametrize(("name", "theirs"), [("grpo", "grpo"), ("rloo", "rloo"), ("opo", "opo")])
def test_estimators_equal_verl(plugin: ModuleType, name: str, theirs: str) -> None:
    import numpy as np
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    mask = tensors(0)["response_mask"]
    rewards = torch.zeros(mask.shape)
    last = mask.sum(-1).long() - 1
    rewards[torch.arange(8), last] = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 1])
    index = np.array(["a", "b", "a", "b", "a", "b", "a", "b"])
    given = {"token_level_rewards": rewards, "response_mask": mask, "index": index, "config": None}
    expected = get_adv_estimator_fn(theirs)(**given)[0]
    found = get_adv_estimator_fn(f"isentrope_{name}")(**given)[0]
    torch.testing.assert_close(found * mask, expected * mask)


@extra
@quiet
def test_a_loss_without_a_selection_says_what_to_set(
    plugin: ModuleType, options: Callable[[str], None]
) -> None:
    options("")
    with pytest.raises(ConfigError, match="VERL_USE_EXTERNAL_MODULES"):
        plugin.clip_cov_loss(**tensors(0), config=actor())


@extra
@quiet
def test_the_reward_function_gives_the_verdict(plugin: ModuleType) -> None:
    score = plugin.compute_score("countdown", "3*7=21,21-5=16", "", {"prompt": "3 7 5=16:"})
    assert score == {"score": 1.0, "judged": 1.0}
    with pytest.raises(ConfigError, match="extra_info has no prompt"):
        plugin.compute_score("countdown", "3*7=21", "", {})


@extra
@quiet
def test_the_reward_function_finds_the_task_of_a_recipe(plugin: ModuleType) -> None:
    """The rows of a data set may name another source: they say which task judges them."""
    from isentrope.config import TaskConfig, TrainConfig
    from isentrope.integrations.verl.data import row
    from isentrope.tasks.problem import Problem

    config = TrainConfig(task=TaskConfig(name="countdown", options={"numbers": 4, "num_test": 8}))
    problem = Problem(prompt="3 7 5=16:", answer="", source="elsewhere")
    data: dict[str, Any] = row(problem, config, "train", 0)
    assert data["data_source"] == "elsewhere"
    right = plugin.compute_score("elsewhere", "3*7=21,21-5=16", "", data["extra_info"])
    assert right == {"score": 1.0, "judged": 1.0}
    assert plugin.compute_score("elsewhere", "3*7=21", "", data["extra_info"])["score"] == 0.0
    task = plugin.task_of("countdown", data["extra_info"]["options"])
    assert task is plugin.task_of("countdown", data["extra_info"]["options"])  # its data once
    assert (task.numbers, len(task.test())) == (4, 8)


def trained(folder: Path, ranks: int, programs: list[dict[str, Any]]) -> None:
    """Runs the program beside this file."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    paths = [str(PROGRAM.parent), *sys.path]
    programs = [{**program, "out": str(folder / program["out"])} for program in programs]
    subprocess.run(
        [sys.executable, *command, str(PROGRAM), json.dumps(programs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=True,
        timeout=900,
    )


@extra
@quiet
def test_a_training_worker_updates_alike_in_every_division(
    plugin: ModuleType, tmp_path: Path
) -> None:
    """Three updates by verl's own worker: one micro-batch, micro-batches of 2, and two ranks."""
    losses = {"kl": "isentrope_kl_cov", "clip": "isentrope_clip_cov"}
    one = [
        {"out": f"{name} {micro}", "loss": loss, "micro": micro}
        for name, loss in losses.items()
        for micro in (16, 2)
    ]
    two = [{"out": f"{n} ranks", "loss": loss, "micro": 4} for n, loss in losses.items()]
    trained(tmp_path, 1, one)
    trained(tmp_path, 2, two)
    for name in losses:
        whole = torch.load(tmp_path / f"{name} 16.pt")
        log = json.loads((tmp_path / f"{name} 16.json").read_text())
        assert [row["selected/tokens"] for row in log] == [8, 8, 8]  # floor(0.05 x 168)
        for division in ("2", "ranks"):
            parts = torch.load(tmp_path / f"{name} {division}.pt")
            for key, weight in whole.items():
                torch.testing.assert_close(parts[key], weight, rtol=0, atol=1e-6)
    kl, clip = (torch.load(tmp_path / f"{name} 16.pt") for name in losses)
    assert max((kl[key] - clip[key]).abs().max().item() for key in kl) > 1e-4


@extra
@quiet
@pytest.mark.parametrize(("act", "cut"), [("budget", 16), ("success", 0), ("decorrelation", 0)])
def test_the_budget_follows_the_entropy_of_each_rollout(
    plugin: ModuleType, tmp_path: Path, options: Callable[[str], None], act: str, cut: int
) -> None:
    """The same rollout three times: whole, in micro-batches, on two ranks, and from a checkpoint.

    By cutting at most 0.1 x 168 tokens are cut, and the budget is not met; by reshaping it is.
    """
    options(
        "control.target = 0.5; control.gain = 2.0; control.integral_gain = 0.5;"
        'control.integral_limit = 0.3; control.measure = "sequence_mean"; clip_fraction = 0.1'
    )
    budget = {"loss": f"isentrope_{act}", "rollouts": True}
    one = [{"out": f"{micro}", "micro": micro, **budget} for micro in (16, 2)]
    trained(tmp_path, 1, [*one, {"out": "resumed", "micro": 16, "resume": True, **budget}])
    trained(tmp_path, 2, [{"out": "ranks", "micro": 4, **budget}])
    spec = importlib.util.spec_from_file_location("verl_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    error = program.entropy()[1] - 0.5
    assert abs(0.5 * error) < 0.3 < abs(1.5 * error)  # the third step reaches the limit
    integral = [0.5 * error, error, math.copysign(0.3, error)]
    expected = [2.0 * error + part for part in integral]
    whole = torch.load(tmp_path / "16.pt")
    for name in ("16", "2", "ranks", "resumed"):
        log = json.loads((tmp_path / f"{name}.json").read_text())
        budgets = [np.ravel(row["control/budget"])[0] for row in log]
        assert budgets == pytest.approx(expected, rel=1e-6)
        assert {float(np.ravel(row["control/target"])[0]) for row in log} == {0.5}
        assert [np.ravel(row["selected/tokens"])[0] for row in log] == [cut] * 3
        if act == "decorrelation":
            remaining = [np.ravel(row["covariance/mean"])[0] for row in log]
            assert remaining == pytest.approx(budgets, abs=1e-5)
        parts = torch.load(tmp_path / f"{name}.pt")
        for key, weight in whole.items():
            torch.testing.assert_close(parts[key], weight, rtol=0, atol=1e-6)


@extra
@quiet
def test_verl_loads_the_plugin_by_name() -> None:
    """In a process of its own, with nothing but the environment variable."""
    pytest.importorskip("verl")
    code = (
        "import verl; from verl.trainer.ppo.core_algos import get_policy_loss_fn as loss;"
        "from verl.workers.engine_workers import ActorRolloutRefWorker as worker;"
        "print(loss('isentrope_kl_cov').__name__, worker.actor_worker_cls.__name__)"
    )
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "isentrope.integrations.verl"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600
    )
    assert "kl_cov_loss EntropyTrainingWorker" in found.stdout
    environment["ISENTROPE_VERL"] = "sede = 3"
    wrong = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600
    )
    assert wrong.returncode != 0
    assert "unknown key 'sede'; did you mean 'seed'?" in wrong.stderr


def test_options_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    text = 'seed = 3; kl_estimator = "k3"'
    expected = PluginOptions(seed=3, kl_estimator="k3")
    assert read_options({"ISENTROPE_VERL": text}) == expected
    file = tmp_path / "options.toml"
    file.write_text(text.replace(";", "\n"))
    assert read_options({"ISENTROPE_VERL": str(file)}) == expected
    assert read_options({}) == PluginOptions()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = ", "is no TOML"),
        ("sede = 3", "did you mean 'seed'"),
        ('selection = "rank"', "choose one of mini_batch, micro_batch"),
        ("clip_fraction = 2", "clip_fraction is 2"),
        ("control.gian = 2.0", "did you mean 'gain'"),
        ('control.name = "band"', "verl has the controller of the budget alone"),
        ("control.target_end = 0.1", "without control.target_steps"),
        ("nowhere.toml", "No such file"),
    ],
)
def test_wrong_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options({"ISENTROPE_VERL": text})


def test_a_setting_that_the_budget_does_not_have_is_refused() -> None:
    options = read_options({"ISENTROPE_VERL": "control.width = 1.0"})
    with pytest.raises(ConfigError, match=r"control\.width is 1.0"):
        options.controller()


@extra
def test_the_entry_point_registers_the_losses() -> None:
    pytest.importorskip("verl", exc_type=ImportError)
    code = (
        "import verl\n"
        "from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as losses\n"
        "assert {'isentrope_clip_cov', 'isentrope_kl_cov'} <= set(losses), list(losses)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "VERL_USE_EXTERNAL_MODULES"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
