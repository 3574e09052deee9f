"""The TRL trainer: exact over micro-batches and ranks, and TRL's own where it is switched off."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")

# TRL and its dependencies warn about their own futures on every start.
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]

from isentrope.errors import ConfigError  # noqa: E402
from isentrope.integrations.trl.config import NO_CLIP, EntropyGRPOConfig  # noqa: E402

PROGRAM = Path(__file__).with_name("trl_program.py")

CONTROLS = {
    "clip_cov": {"clip_fraction": 0.05, "covariance_low": 0.3, "covariance_high": 50.0},
    "kl_cov": {"kl_fraction": 0.05, "kl_coefficient": 2.0},
    # So far below its target that as many tokens are cut as may be.
    "budget": {"clip_fraction": 0.05, "entropy_target": 50.0, "entropy_gain": 10.0},
}

ACTS = {name: {"entropy_gain": 2.0} for name in ("success", "decorrelation")}
"""Controls that reshape advantages. The first rollout is at its target, so its budget is 0."""

DIVISIONS = {
    "1 x 32": {"per_device_train_batch_size": 32},
    "4 x 8": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
    "2 ranks x 2 x 8": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
}

Run = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def program() -> Run:
    """`run` of the program beside this file."""
    spec = importlib.util.spec_from_file_location("trl_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


@pytest.fixture
def run(program: Run, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Trains with these settings; the record, with the weights under "weights"."""

    def train(*, plain: bool = False, peft: bool = False, **config: Any) -> dict[str, Any]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        config = {"per_device_train_batch_size": 16, **config}
        record = program({"out": str(out), "plain": plain, "peft": peft, "config": config})
        return {**record, "weights": torch.load(f"{out}.pt")}

    return train


@pytest.fixture(scope="session")
def divided(program: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the runs of every control in every division."""
    folder = tmp_path_factory.mktemp("divided")
    ranks = []
    for control, knobs in (CONTROLS | ACTS).items():
        for division, sizes in DIVISIONS.items():
            config = {"entropy_control": control, "num_iterations": 2, **knobs, **sizes}
            job = {"out": str(folder / f"{control} {division}"), "config": config}
            if "ranks" in division:
                ranks.append(job)
            else:
                program(job)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run([*command, str(PROGRAM), json.dumps(ranks)], check=True, timeout=900)
    return folder


def selected(folder: Path, name: str) -> dict[str, list[list[int]]]:
    """The tokens selected on all ranks in each update."""
    found: dict[str, list[list[int]]] = {}
    for file in sorted(folder.glob(f"{name}.*.json")):
        for step, tokens in json.loads(file.read_text())["chosen"].items():
            found.setdefault(step, []).extend(tokens)
    return {step: sorted(tokens) for step, tokens in found.items()}


@pytest.mark.parametrize("division", ["4 x 8", "2 ranks x 2 x 8"])
@pytest.mark.parametrize("control", CONTROLS)
def test_the_division_changes_neither_selection_nor_weights(
    divided: Path, control: str, division: str
) -> None:
    whole, parts = f"{control} 1 x 32", f"{control} {division}"
    tokens = selected(divided, whole)
    assert [len(chosen) for chosen in tokens.values()] == [17, 17]  # floor(0.05 x 355), 2 updates
    assert selected(divided, parts) == tokens
    expected, found = (torch.load(divided / f"{name}.pt") for name in (whole, parts))
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("division", ["4 x 8", "2 ranks x 2 x 8"])
@pytest.mark.parametrize("control", ACTS)
def test_the_division_changes_no_reshaped_advantage(
    divided: Path, control: str, division: str
) -> None:
    whole, parts = f"{control} 1 x 32", f"{control} {division}"
    for name in (whole, parts):
        log = json.loads((divided / f"{name}.0.json").read_text())["log"]
        rows = [row for row in log if "covariance/mean" in row]
        assert [row["control/budget"] for row in rows] == [0.0, 0.0]
        assert [row["covariance/mean"] for row in rows] == pytest.approx([0.0, 0.0], abs=1e-6)
        assert [row["selected/tokens"] for row in rows] == [0.0, 0.0]
    expected, found = (torch.load(divided / f"{name}.pt") for name in (whole, parts))
    plain = torch.load(divided / "kl_cov 1 x 32.pt")
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)
    assert max((plain[name] - expected[name]).abs().max().item() for name in plain) > 1e-4


def test_two_updates_of_a_control_are_not_those_of_the_other(divided: Path) -> None:
    clip, kl = (torch.load(divided / f"{control} 1 x 32.pt") for control in ("clip_cov", "kl_cov"))
    assert max((clip[name] - kl[name]).abs().max().item() for name in clip) > 1e-4


@pytest.mark.parametrize(("loss_type", "beta"), [("dapo", 0.0), ("grpo", 0.0), ("dapo", 0.1)])
def test_without_a_control_the_losses_are_those_of_grpo_trainer(
    run: Callable[..., dict[str, Any]], loss_type: str, beta: float
) -> None:
    """beta: with a reference model, whose forward pass gives no entropy."""
    config = {
        "loss_type": loss_type,
        "beta": beta,
        "gradient_accumulation_steps": 2,
        "num_iterations": 2,
    }
    ours = run(**config, covariance_metrics=True)
    theirs = run(**config, plain=True)
    for name in ("loss", "grad_norm", "entropy"):
        mine, yours = ([row[name] for row in r["log"] if name in row] for r in (ours, theirs))
        assert mine == yours
        assert len(mine) == 2
    for name, weight in theirs["weights"].items():
        assert torch.equal(ours["weights"][name], weight)
    assert "covariance/mean" in ours["log"][0]
    assert "covariance/mean" not in theirs["log"][0]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_works_beside_a_reference_kl(
    run: Callable[..., dict[str, Any]], control: str, updates: int
) -> None:
    knobs = {"num_iterations": updates, **CONTROLS[control]}
    rows = run(beta=0.1, entropy_control=control, **knobs)["log"][:2]
    assert [row["kl"] > 1e-9 for row in rows] == [False, True]  # the first policy is the reference
    for row in rows:
        assert row["selected/tokens"] > 0
    assert rows[0]["rollout/entropy_token_mean"] > 0


def test_it_works_with_peft_checkpointing_and_several_steps_per_generation(
    run: Callable[..., dict[str, Any]],
) -> None:
    record = run(
        peft=True,
        gradient_checkpointing=True,
        steps_per_generation=2,
        entropy_control="clip_cov",
        probe_tokens=64,
        learning_rate=1e-3,
        max_steps=3,
        **CONTROLS["clip_cov"],
    )
    rows = [row for row in record["log"] if "loss" in row]
    assert len(rows) == 3
    for row in rows:
        assert row["selected/tokens"] > 0
        # To first order; the error falls with the square of the step.
        assert row["entropy_change/predicted"] == pytest.approx(
            row["entropy_change/measured"], rel=0.1, abs=2e-6
        )
    moved = [name for name in record["weights"] if "lora_B" in name]
    assert any(record["weights"][name].abs().max() > 0 for name in moved)


@pytest.mark.parametrize("loss_type", ["dapo", "cispo", "bnpo", "grpo", "dr_grpo"])
def test_the_penalty_is_reduced_as_trl_reduces_its_loss(
    program: Run, tmp_path: Path, loss_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On policy (ratio 1) and with every advantage -1, TRL's loss of each token is 1, or logp for
    CISPO, whose log-probs are set to 1; a penalty of 1 at every token must reduce to the same."""
    from isentrope.integrations.trl import EntropyGRPOTrainer

    seen: list[tuple[float, float]] = []

    def compute_loss(self: Any, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        shape = inputs["completion_mask"].shape
        self._logprob = None
        ones = {
            **inputs,
            "advantages": -torch.ones(shape),
            "old_per_token_logps": torch.ones(shape),
        }
        theirs = super(EntropyGRPOTrainer, self)._compute_loss(model, ones)
        apart = {**inputs, "old_per_token_logps": torch.zeros(shape)}
        apart["selected"] = torch.ones(shape, dtype=torch.bool)
        ours = self._penalty(torch.ones(shape), apart)
        seen.append((theirs.item(), ours.item()))
        return theirs

    original = EntropyGRPOTrainer._get_per_token_logps_and_entropies

    def logps(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        return (result[0] * 0 + 1, *result[1:])

    monkeypatch.setattr(EntropyGRPOTrainer, "_compute_loss", compute_loss)
    monkeypatch.setattr(EntropyGRPOTrainer, "_get_per_token_logps_and_entropies", logps)
    config = {
        "loss_type": loss_type,
        "entropy_control": "kl_cov",
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "epsilon_high": 5.0,
        "max_steps": 1,
    }
    program({"out": str(tmp_path / "run"), "config": config})
    assert len(seen) == 2
    for theirs, ours in seen:
        assert ours == pytest.approx(theirs, rel=1e-6)


HELD = {"entropy_gain": 2.0, "entropy_integral_gain": 0.5}
"""A budget with a state: its target is the first entropy, and it remembers the errors."""


@pytest.mark.parametrize(
    ("control", "knobs"),
    [
        ("kl_cov", CONTROLS["kl_cov"]),
        ("budget", HELD),
        ("success", {name: HELD[name] for name in HELD if name != "clip_fraction"}),
    ],
    ids=["kl_cov", "budget", "success"],
)
def test_a_resumed_run_selects_and_logs_what_the_whole_run_does(
    program: Run, tmp_path: Path, control: str, knobs: dict[str, float]
) -> None:
    config = {
        "entropy_control": control,
        "per_device_train_batch_size": 16,
        "num_iterations": 2,
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        **knobs,
    }
    whole = program({"out": str(tmp_path / "run"), "config": config})
    checkpoint = str(tmp_path / "run.trl" / "checkpoint-2")
    again = program({"out": str(tmp_path / "run"), "config": config, "resume": checkpoint})
    for step in (2, 3):
        assert sorted(again["chosen"][step]) == sorted(whole["chosen"][step])
    for name in ("loss", "covariance/mean", "selected/tokens", "control/budget", "control/target"):
        lines = [{row["step"]: row.get(name) for row in run["log"]} for run in (whole, again)]
        assert lines[1][3] == lines[0][3]
        assert lines[1][4] == lines[0][4]


def test_the_budget_follows_the_entropy_of_each_rollout(run: Callable[..., dict[str, Any]]) -> None:
    log = run(entropy_control="budget", num_iterations=2, max_steps=4, **HELD)["log"]
    rows = [row for row in log if "control/budget" in row]
    entropies = [rows[0]["rollout/entropy_token_mean"], rows[2]["rollout/entropy_token_mean"]]
    error = entropies[1] - entropies[0]  # in the second rollout; in the first it is 0
    assert [row["control/target"] for row in rows] == pytest.approx([entropies[0]] * 4)
    budget = 2.0 * error + max(-0.1, min(0.1, 0.5 * error))  # gain, and the integral in its limit
    expected = [0.0, 0.0, budget, budget]  # two updates a rollout
    assert [row["control/budget"] for row in rows] == pytest.approx(expected, abs=1e-9)
    assert rows[0]["selected/tokens"] > 0  # a budget of 0 where the mean covariance is above 0


def test_the_adaptive_bonus_of_trl_stays_what_it_is(run: Callable[..., dict[str, Any]]) -> None:
    """The budget's settings share the name `entropy_target` with it, and its default is TRL's."""
    bonus = {"use_adaptive_entropy": True, "entropy_coef_delta": 0.5, "max_steps": 3}
    for target in ({}, {"entropy_target": 5.0}):
        ours, theirs = run(**bonus, **target), run(**bonus, **target, plain=True)
        for name, weight in theirs["weights"].items():
            assert torch.equal(ours["weights"][name], weight)
        coefficients = [row["entropy_coef"] for row in ours["log"] if "entropy_coef" in row]
        # The entropy is above 0.2 and below 5.
        assert coefficients == ([0.5, 1.0, 1.0] if target else [0.0, 0.0, 0.0])


def test_zero_signal_responses_can_be_left_out(run: Callable[..., dict[str, Any]]) -> None:
    kept = run(num_iterations=2, drop_zero_signal=True, covariance_metrics=True, max_steps=1)
    everything = run(num_iterations=2, covariance_metrics=True, max_steps=1)
    name = "rollout/entropy_token_mean"
    assert kept["log"][0][name] == everything["log"][0][name]  # the entropy is of all responses


def test_signal_is_a_matter_of_rewards_and_not_of_advantages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups of three: graded rewards whose mean is one of them; equal ones whose mean rounds, so
    that their advantages are not 0; one that could not be scored beside two that differ."""
    from isentrope.integrations.trl import trainer as adapter

    rewards = torch.tensor([0.0, 0.5, 1.0, 0.9, 0.9, 0.9, float("nan"), 0.0, 1.0]).unsqueeze(1)
    monkeypatch.setattr(adapter.trl.GRPOTrainer, "_calculate_rewards", lambda *_: rewards)
    trainer = adapter.EntropyGRPOTrainer.__new__(adapter.EntropyGRPOTrainer)
    trainer.reward_weights, trainer.num_generations = torch.ones(1), 3
    trainer.accelerator = SimpleNamespace(process_index=0, gather=lambda values: values)
    trainer._calculate_rewards()
    batch = {
        "advantages": torch.tensor([-1.0, 0.0, 1.0, 6e-4, 6e-4, 6e-4, 0.0, -1.0, 1.0]),
        "completion_mask": torch.ones(9, 2, dtype=torch.long),
    }
    kept = trainer._without_zero_signal(batch)
    assert kept["completion_mask"][:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert kept["num_items_in_batch"] == 10


def config(**settings: Any) -> EntropyGRPOConfig:
    return EntropyGRPOConfig(output_dir="unused", use_cpu=True, bf16=False, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entropy_control": "klcov"}, "entropy_control is 'klcov'; choose one of none, clip_cov"),
        ({"clip_fraction": 0.1}, "clip_fraction is 0.1, but ppo_clip does not use it"),
        ({"entropy_control": "clip_cov", "kl_estimator": "k3"}, "kl_estimator is 'k3'"),
        ({"entropy_control": "kl_cov", "loss_type": "sapo"}, "KL-Cov needs one of dapo"),
        (
            {"entropy_control": "clip_cov", "importance_sampling_level": "sequence"},
            "importance_sampling_level is 'sequence'",
        ),
        (
            {
                "entropy_control": "clip_cov",
                "gradient_accumulation_steps": 4,
                "steps_per_generation": 2,
            },
            "no multiple of gradient_accumulation_steps",
        ),
        ({"drop_zero_signal": True, "loss_type": "grpo"}, "averages over tokens"),
        ({"entropy_gain": 2.0}, "entropy_gain is 2.0, but entropy_control 'none' does not use it"),
        (
            {"entropy_control": "budget", "entropy_target_end": 0.1},
            "entropy_target_end is 0.1 and entropy_target_steps None; give both",
        ),
        ({"entropy_control": "budget", "entropy_measure": "mean"}, "choose token_mean or"),
        ({"entropy_control": "budget", "use_adaptive_entropy": True}, "would both steer"),
        ({"entropy_control": "budget", "entropy_gain": -1.0}, "gain is -1.0; it must be at least"),
        ({"entropy_control": "kl_cov", "kl_fraction": 20.0}, "a fraction between 0 and 1"),
        ({"entropy_control": "kl_cov", "kl_coefficient": -1.0}, "kl_coefficient is -1.0; it must"),
        (
            {"entropy_control": "clip_cov", "covariance_low": 5.0, "covariance_high": 1.0},
            "the lower bound is above",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**settings)


def test_the_ppo_clip_is_off_with_a_control_unless_asked_for() -> None:
    assert config().epsilon == 0.2
    assert config(entropy_control="budget").epsilon == 0.2  # it cuts, and the clip stays
    assert config(entropy_control="clip_cov").epsilon == NO_CLIP
    assert config(entropy_control="clip_cov", epsilon=0.2).epsilon == 0.2
    # one bound that is given asks for the other, and CISPO's cap is no PPO clip
    assert config(entropy_control="clip_cov", epsilon_high=0.28).epsilon == 0.2
    assert config(entropy_control="clip_cov", loss_type="cispo").epsilon == 0.2
