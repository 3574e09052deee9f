"""One recipe, three engines: the translations, what they refuse, and the dry run."""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.cli import main
from isentrope.config import (
    ControlConfig,
    EvaluationConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
    dump_toml,
    load_config,
)
from isentrope.control.controllers import EntropyBudget, Target
from isentrope.errors import ConfigError
from isentrope.integrations import launch
from isentrope.integrations.trl import recipe as trl
from isentrope.integrations.verl import recipe as verl
from isentrope.integrations.verl.options import read_options
from isentrope.tasks.countdown import Countdown

RECIPES = Path(__file__).parents[2] / "recipes"
PAPER = sorted(RECIPES.glob("paper-*.toml"))
# The paper's batches, in prompts: of a rollout, of an update (section 2; section 4, its script);
# and the longest response, which it gives for section 4 alone.
PAPER_BATCHES = {"paper-analysis": (512, 256, 4096)}
METHOD_BATCHES = (256, 32, 8192)
OUT = Path("runs/x")

CONFIG = TrainConfig(
    steps=5,
    rollout=RolloutConfig(prompts=64, samples=8),
    optimizer=OptimizerConfig(mini_batches=4, micro_batch_size=48, warmup_steps=2),
)


def test_trl_gets_the_batches_of_the_recipe() -> None:
    settings = trl.settings(CONFIG, OUT, 2)
    # 64 x 8 responses / 4 updates / 2 processes = 64 each; the largest divisor up to 48 is 32.
    assert settings["per_device_train_batch_size"] == 32
    assert settings["gradient_accumulation_steps"] == 2
    assert settings["steps_per_generation"] == 8
    assert settings["max_steps"] == 20
    assert settings["logging_steps"] == 4
    assert settings["warmup_steps"] == 8


def test_trl_gets_the_objective_of_the_recipe() -> None:
    config = load_config(RECIPES / "countdown-kl-cov.toml")
    settings = trl.settings(config, OUT, 1)
    assert settings["entropy_control"] == "kl_cov"
    assert settings["kl_fraction"] == 0.1
    assert settings["kl_coefficient"] == 2.0
    assert settings["epsilon"] == settings["epsilon_high"] == 1e9
    assert settings["loss_type"] == "dapo"
    plain = trl.settings(load_config(RECIPES / "countdown.toml"), OUT, 1)
    assert (plain["entropy_control"], plain["epsilon"]) == ("none", 0.2)
    assert "kl_fraction" not in plain


def test_trl_gets_the_budget_of_the_recipe() -> None:
    settings = trl.settings(load_config(RECIPES / "countdown-isentropic.toml"), OUT, 1)
    given = {name: settings[name] for name in settings if name.startswith("entropy_")}
    assert given == {
        "entropy_control": "budget",
        "entropy_coef": 0.0,  # TRL's own bonus
        "entropy_measure": "token_mean",
        "entropy_target_hold": 0,
        "entropy_target_shape": "linear",
        "entropy_target_relative": False,
        "entropy_gain": 2.0,
        "entropy_integral_gain": 0.1,
        "entropy_integral_limit": 0.1,
    }
    assert settings["epsilon"] == 0.2


def test_every_engine_gets_the_act_of_the_recipe() -> None:
    config = load_config(RECIPES / "countdown-success.toml")
    settings = trl.settings(config, OUT, 1)
    assert settings["entropy_control"] == "success"
    assert (settings["entropy_target_end"], settings["entropy_target_steps"]) == (0.05, 150)
    assert (settings["epsilon"], settings["epsilon_high"]) == (0.2, 0.2)
    chat = replace(
        config,
        model=ModelConfig(path="Qwen/Qwen2.5-7B", prompt="chat"),
        control=replace(config.control, target_hold=100, target_shape="cosine"),
    )
    found = verl.overrides(chat, OUT, 8)
    actor = "actor_rollout_ref.actor"
    assert found[f"{actor}.policy_loss.loss_mode"] == "isentrope_success"
    assert (found[f"{actor}.clip_ratio_low"], found[f"{actor}.clip_ratio_high"]) == (0.2, 0.2)
    target = Target(end=0.05, hold=100, steps=50, shape="cosine")
    assert read_options(verl.environment(chat, OUT)).controller() == EntropyBudget(
        target=target, gain=2.0, integral_gain=0.1, integral_limit=0.1
    )


def test_trl_gets_its_own_adaptive_bonus() -> None:
    control = ControlConfig(name="adaptive", target=0.3, delta=0.01, coefficient_high=0.5)
    settings = trl.settings(replace(CONFIG, control=control), OUT, 1)
    assert settings["use_adaptive_entropy"] is True
    assert settings["entropy_control"] == "none"
    assert settings["entropy_target"] == 0.3
    assert settings["entropy_coef_delta"] == 0.0025  # 4 updates a rollout, each a quarter
    assert (settings["entropy_coef_min"], settings["entropy_coef_max"]) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(CONFIG, objective=ObjectiveConfig(advantage="rloo")), "objective.advantage is"),
        (
            replace(CONFIG, control=ControlConfig(name="band")),
            "control.name is 'band'; TRL does not have it",
        ),
        (
            replace(CONFIG, control=ControlConfig(name="adaptive")),
            "TRL's holds a control.target that is given",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(loss="budget", budget=0.1)),
            "objective.budget is fixed",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(shaping="entropy")),
            "objective.shaping is 'entropy'; the adapter has success and decorrelation",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(shaping="success", loss="kl_cov")),
            "objective.shaping 'success' beside loss 'kl_cov'",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(selection="micro_batch")),
            "objective.selection is 'micro_batch'; this engine does not have it",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(reducer="sequence_mean")),
            "drop_zero_signal with reducer 'sequence_mean'",
        ),
        (
            replace(CONFIG, model=ModelConfig(lora_rank=8)),
            "model.lora_rank is 8; this engine does not have it",
        ),
        (replace(CONFIG, model=ModelConfig(path="builtin:smollm2")), "a .gguf file; give a folder"),
        (replace(CONFIG, rollout=RolloutConfig(temperature=0.7)), "rollout.temperature is 0.7"),
        (replace(CONFIG, rollout=RolloutConfig(prompts=3, samples=3)), "cannot be divided among"),
    ],
)
def test_trl_refuses_by_name(config: TrainConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trl.settings(config, OUT, 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG, "model.path is 'builtin:countdown'"),
        (
            replace(CONFIG, objective=ObjectiveConfig(covariance_policy="current")),
            "objective.covariance_policy is 'current'; this engine does not have it",
        ),
        (replace(CONFIG, optimizer=OptimizerConfig(schedule="linear")), "schedule is 'linear'"),
        (
            replace(CONFIG, objective=ObjectiveConfig(shaping="quadrants")),
            "objective.shaping is 'quadrants'; the plug-in has success and decorrelation",
        ),
        (
            replace(CONFIG, objective=ObjectiveConfig(shaping="success", loss="clip_cov")),
            "objective.shaping 'success' beside loss 'clip_cov'",
        ),
        (CONFIG, "model.prompt is 'plain'; verl puts every prompt into the model's chat template"),
        (replace(CONFIG, model=ModelConfig(dtype="auto")), "model.dtype is 'auto'"),
        (
            replace(CONFIG, objective=ObjectiveConfig(advantage="prime")),
            "has no implicit reward model",
        ),
        (
            replace(
                CONFIG,
                objective=ObjectiveConfig(loss="budget"),
                control=ControlConfig(name="budget"),
                rollout=RolloutConfig(temperature=0.7),
            ),
            "control.name is 'budget' and rollout.temperature 0.7",
        ),
        (replace(CONFIG, optimizer=OptimizerConfig(name="adamw_8bit")), "optimizer.name is"),
    ],
)
def test_verl_refuses_by_name(config: TrainConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verl.overrides(config, OUT, 8)


def test_verl_gets_the_paper_s_numbers() -> None:
    config = load_config(RECIPES / "paper-32b-kl-cov.toml")
    found = verl.overrides(config, OUT, 32)
    actor = "actor_rollout_ref.actor"
    assert found[f"{actor}.policy_loss.loss_mode"] == "isentrope_kl_cov"
    assert found[f"{actor}.policy_loss.kl_cov_ratio"] == 2e-4
    assert found[f"{actor}.policy_loss.ppo_kl_coef"] == 1.0
    assert found[f"{actor}.optim.lr"] == 1e-6
    assert found[f"{actor}.ppo_mini_batch_size"] == 32
    assert found[f"{actor}.fsdp_config.model_dtype"] == "float32"
    assert found[f"{actor}.fsdp_config.dtype"] == "bfloat16"
    assert found["actor_rollout_ref.model.enable_gradient_checkpointing"] is True
    assert found["data.train_batch_size"] == 256
    assert (found["trainer.nnodes"], found["trainer.n_gpus_per_node"]) == (4, 8)
    clip = verl.overrides(load_config(RECIPES / "paper-7b-clip-cov.toml"), OUT, 8)
    assert clip[f"{actor}.policy_loss.clip_cov_ratio"] == 2e-4
    assert clip[f"{actor}.clip_ratio_low"] == 1.0


def test_verl_gets_the_budget_of_the_recipe() -> None:
    config = replace(
        CONFIG,
        model=ModelConfig(path="Qwen/Qwen2.5-7B", prompt="chat"),
        objective=ObjectiveConfig(loss="budget", clip_fraction=0.2),
        control=ControlConfig(name="budget", gain=2.0, target=0.3, target_end=0.1),
    )
    found = verl.overrides(config, OUT, 8)
    actor = "actor_rollout_ref.actor"
    assert found[f"{actor}.policy_loss.loss_mode"] == "isentrope_budget"
    assert (found[f"{actor}.clip_ratio_low"], found[f"{actor}.clip_ratio_high"]) == (0.2, 0.2)
    assert f"{actor}.policy_loss.clip_cov_ratio" not in found
    options = read_options(verl.environment(config, OUT))
    assert options.clip_fraction == 0.2
    expected = EntropyBudget(
        target=Target(value=0.3, end=0.1, steps=5), gain=2.0, integral_limit=0.1
    )
    assert options.controller() == expected
    fixed = replace(CONFIG, objective=ObjectiveConfig(loss="budget", budget=0.1))
    with pytest.raises(ConfigError, match=r"objective\.budget is fixed"):
        verl.overrides(fixed, OUT, 8)


def test_processes_beyond_a_node_are_whole_nodes() -> None:
    config = replace(CONFIG, model=ModelConfig(path="Qwen/Qwen2.5-7B", prompt="chat"))
    with pytest.raises(ConfigError, match="give a multiple of 8"):
        verl.overrides(config, OUT, 12)


def test_a_dry_run_prints_the_command_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = RECIPES / "paper-7b-kl-cov.toml", tmp_path / "run"
    options = ["--engine", "verl", "--processes", "32", "--dry-run", "--out", str(out)]
    assert main(["train", str(recipe), *options]) == 0
    printed = capsys.readouterr().out
    words = shlex.split(printed.splitlines()[-1])
    assert words[:3] == [sys.executable, "-m", "verl.trainer.main_ppo"]
    assert "actor_rollout_ref.actor.policy_loss.loss_mode=isentrope_kl_cov" in words
    assert "export VERL_USE_EXTERNAL_MODULES=isentrope.integrations.verl" in printed
    assert not list(tmp_path.iterdir())


def test_verl_begins_its_log_anew_and_no_line_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    lines = [f'{{"step": {step}, "run": {run}}}\n' for run, step in ((1, 1), (1, 2), (1, 3))]
    log.write_text("".join(lines) + '{"step": 4, "ru')  # killed while it wrote
    launch.set_aside(tmp_path)
    assert not log.exists()
    launch.set_aside(tmp_path)  # killed before verl had a line
    resumed = ['{"step": 3, "run": 2}\n', '{"step": 4, "run": 2}\n']
    log.write_text("".join(resumed))
    launch.join_earlier(tmp_path)
    assert log.read_text() == "".join([*lines[:2], *resumed])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    launch.join_earlier(tmp_path)
    assert log.read_text() == "".join([*lines[:2], *resumed])


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective.clip-fraction", "0.5"], "clip_fraction is 0.5, but loss 'ppo_clip'"),
        (["--control.name", "budget"], "loss 'ppo_clip' takes no budget"),
        (["--control.gain", "3"], "control.gain is 3.0, but control.name = 'none'"),
    ],
)
def test_what_no_engine_could_do_is_refused(
    engine: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = str(RECIPES / "paper-7b.toml")
    assert main(["train", recipe, "--engine", engine, "--dry-run", *flags]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_local_engine_has_no_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(RECIPES / "countdown.toml"), "--dry-run"]) == 2
    assert "--dry-run and --processes belong to --engine trl and verl" in capsys.readouterr().err


@pytest.mark.extra
def test_trl_trains_a_recipe_on_two_ranks_into_a_run_folder(tmp_path: Path) -> None:
    """Its first evaluation is the local engine's to the last digit: the same weights and draws."""
    pytest.importorskip("trl")
    from isentrope.policy.model import load_model
    from isentrope.runs import read_run
    from isentrope.tasks.registry import make_task
    from isentrope.training.evaluate import evaluate

    config = TrainConfig(
        steps=2,
        threads=1,
        probe_tokens=64,
        rollout=RolloutConfig(prompts=8, samples=4, max_new_tokens=16),
        objective=ObjectiveConfig(loss="kl_cov", kl_fraction=0.1),
        optimizer=OptimizerConfig(mini_batches=2, micro_batch_size=4),
        evaluation=EvaluationConfig(every=2, problems=8, samples=2),
    )
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(dump_toml(config))
    options = ["--engine", "trl", "--processes", "2", "--out", str(out)]
    assert main(["train", str(recipe), *options]) == 0
    record = read_run(out)
    assert list(record.series["entropy/sequence_mean"].steps) == [0, 1]
    assert all(record.series["selected/tokens"].values > 0)
    rows = [json.loads(line) for line in (out / "evaluations.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2]
    task = make_task("countdown", seed=0, options={})
    assert rows[0] == evaluate(load_model(config.model), task, config, 0)
    assert main(["train", str(recipe), *options]) == 2  # a used folder is refused


TEMPLATE = (
    "{% for m in messages %}8:{{ m.content }}:{% endfor %}"
    "{% if add_generation_prompt %}9:{% endif %}"
)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_one_reward_file_in_trl_itself_and_in_the_trl_engine(tmp_path: Path) -> None:
    """A function of TRL's form, with a column of its own: here through the engine, there plainly."""
    trl_library = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from isentrope.policy.builtin import builtin_path
    from isentrope.runs import read_run
    from isentrope.tasks.custom import load

    (tmp_path / "mine.py").write_text(
        "def score(prompts, completions, goal, **kwargs):\n"
        "    assert all(str(g) in p for g, p in zip(goal, prompts))\n"
        "    return [len(text) % 3 / 2 for text in completions]\n"
    )
    problems = [Countdown().train(index).prompt for index in range(40)]
    rows = [{"prompt": p, "goal": int(p.split("=")[1].rstrip(":"))} for p in problems]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward, model = f"{tmp_path / 'mine.py'}:score", str(builtin_path("countdown"))
    config = TrainConfig(
        steps=1,
        threads=1,
        probe_tokens=0,
        task=TaskConfig(name=str(tmp_path / "mine.jsonl"), reward=(reward,)),
        rollout=RolloutConfig(prompts=4, samples=4, max_new_tokens=16),
        optimizer=OptimizerConfig(mini_batches=1, micro_batch_size=16),
        evaluation=EvaluationConfig(problems=4, samples=2),
    )
    (tmp_path / "recipe.toml").write_text(dump_toml(config))
    out = tmp_path / "run"
    assert main(["train", str(tmp_path / "recipe.toml"), "--engine", "trl", "--out", str(out)]) == 0
    assert 0 < read_run(out).series["reward/mean"].values[0] < 1
    trainer = trl_library.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=load(reward),
        train_dataset=Dataset.from_list(rows),
        args=trl_library.GRPOConfig(
            output_dir=str(tmp_path / "plain"),
            use_cpu=True,
            bf16=False,
            report_to="none",
            per_device_train_batch_size=16,
            num_generations=4,
            max_completion_length=16,
            max_steps=1,
        ),
    )
    trainer.train()
    assert any("reward" in row for row in trainer.state.log_history)


@pytest.mark.extra
def test_trl_trains_a_chat_model_in_mixed_precision(tmp_path: Path) -> None:
    """The prompts are the local engine's, token for token, and so are the verdicts."""
    pytest.importorskip("trl")
    from isentrope.integrations.trl.worker import dataset, reward_function
    from isentrope.policy.model import load_model
    from isentrope.runs import read_run
    from isentrope.tasks.registry import make_task

    start = load_model(ModelConfig())
    start.tokenizer.chat_template = TEMPLATE
    start.network.save_pretrained(tmp_path / "model")
    start.tokenizer.save_pretrained(tmp_path / "model")
    config = TrainConfig(
        steps=1,
        threads=1,
        model=ModelConfig(
            path=str(tmp_path / "model"),
            prompt="chat",
            system="5",
            compute_dtype="bfloat16",
            gradient_checkpointing=True,
        ),
        rollout=RolloutConfig(prompts=4, samples=4, max_new_tokens=8),
        objective=ObjectiveConfig(drop_zero_signal=False, reference_kl_coefficient=0.01),
        optimizer=OptimizerConfig(mini_batches=1, micro_batch_size=4),
        evaluation=EvaluationConfig(every=1, problems=4, samples=2),
    )
    task, model = make_task("countdown", seed=0, options={}), load_model(config.model)
    row, problem = dataset(config, task)[0], task.train(0)
    wrapped = model.tokenizer.apply_chat_template(
        row["prompt"], add_generation_prompt=True, tokenize=False
    )
    assert model.tokenizer(str(wrapped))["input_ids"] == model.encode(problem.prompt)
    assert model.decode(model.encode("7")) == "8:5:8:7:9:"
    texts = [problem.answer, "1+1"]
    score = reward_function(task)
    columns = {name: [row[name]] * 2 for name in ("problem", "answer", "source", "columns")}
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    verdicts = [found.score for found in task.verify([problem, problem], texts)]
    assert score(completions=chats, **columns) == score(completions=texts, **columns) == verdicts

    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(dump_toml(config))
    assert main(["train", str(recipe), "--engine", "trl", "--out", str(out)]) == 0
    record = read_run(out)
    assert list(record.series["reward/mean"].steps) == [0]
    assert record.series["kl/reference"].values[0] == pytest.approx(0, abs=1e-3)
    assert record.series["entropy/token_mean"].values[0] > 0


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")  # verl and its dependencies warn on every start
@pytest.mark.parametrize("recipe", PAPER, ids=lambda path: path.stem)
def test_verl_accepts_the_overrides(recipe: Path) -> None:
    """Hydra composes verl's own configuration with them, and verl's classes take the result."""
    package = pytest.importorskip("verl.trainer.config")
    from hydra import compose, initialize_config_dir
    from verl.utils.config import omega_conf_to_dataclass

    command = verl.command(verl.overrides(load_config(recipe), OUT, 32), resume=False)
    folder = str(Path(package.__file__).parent)
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose(config_name="ppo_trainer", overrides=command[3:])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.optim.lr == config.actor_rollout_ref.actor.optim.lr
    assert actor.policy_loss.kl_cov_ratio in (2e-3, 2e-4)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.n == 8
    batches = (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.response_length)
    assert batches == PAPER_BATCHES.get(recipe.stem, METHOD_BATCHES)
    assert omega_conf_to_dataclass(config.algorithm).filter_groups.enable
