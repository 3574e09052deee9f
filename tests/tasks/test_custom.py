"""Rewards and tasks of one's own: called as TRL calls them, and what goes wrong in them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.cli import main
from isentrope.config import ModelConfig, TaskConfig, TrainConfig, dump_toml, load_config
from isentrope.errors import ConfigError, DataError
from isentrope.policy.model import load_model
from isentrope.tasks.countdown import Countdown
from isentrope.tasks.custom import RewardTask, is_named, load
from isentrope.tasks.problem import Problem
from isentrope.tasks.registry import make_task, task_of
from isentrope.tasks.rows import read_rows
from isentrope.training.experience import collect
from isentrope.verifiers.verdict import Outcome, Verdict

REWARDS = """
import asyncio, time
from helper import BONUS  # beside this file

def length(completions, **kwargs):
    return [len(text) / 10 for text in completions]

def by_column(prompts, completions, level, answer, **kwargs):
    return [n + (a in c) + BONUS for c, n, a in zip(completions, level, answer)]

async def later(completions, **kwargs):
    await asyncio.sleep(0)
    return [1 for _ in completions]

def unsure(completions):
    return [None if "?" in text else True for text in completions]

def picky(completions, **kwargs):
    return [1 / (text != "bad") for text in completions]

def short(completions, **kwargs):
    return [1.0]

def nan(completions, **kwargs):
    return [float("nan") if text == "bad" else 0.5 for text in completions]

def slow(completions, **kwargs):
    time.sleep(0 if "slow" not in completions else 60)
    return [1.0 for _ in completions]

def chat(prompts, completions, **kwargs):
    asked = [p[-1]["content"] for p in prompts]
    return [float(c[0]["content"] == a.upper()) for a, c in zip(asked, completions)]

LIMIT = 3
"""

Make = Callable[..., RewardTask]


class Fixed:
    """A task of given problems."""

    name = "fixed"
    right_score = 1.0

    def train(self, index: int) -> Problem:
        return Problem("q", "a", "fixed")

    def test(self) -> list[Problem]:
        return [self.train(0)]

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        raise AssertionError("the reward functions judge")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A task with the reward functions of these names."""
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "helper.py").write_text("BONUS = 10\n")

    def task(*names: str, **options: Any) -> RewardTask:
        return RewardTask(
            Fixed(), [f"{tmp_path / 'rewards.py'}:{name}" for name in names], **options
        )

    return task


def problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", f"a{i}", "s", {"level": i, "answer": f"a{i}"}) for i in range(count)]


def scores(task: RewardTask, *texts: str) -> list[float | None]:
    return [verdict.score for verdict in task.verify(problems(len(texts)), texts)]


def test_columns_come_as_lists_by_name(make: Make) -> None:
    # level + (answer in completion) + 10
    assert scores(make("by_column"), "a0", "none", "xa2x") == [11.0, 11.0, 13.0]
    assert scores(make("later"), "x", "y") == [1.0, 1.0]


def test_a_sum_has_weights_and_leaves_out_what_cannot_be_judged(make: Make) -> None:
    task = make("length", "unsure", weights=(2.0, 0.5), right_score=0.8)
    verdicts = task.verify(problems(3), ["abc", "abcd?", ""])
    assert [one.score for one in verdicts] == pytest.approx([0.6 + 0.5, 1.0, 0.5])
    assert [one.outcome for one in verdicts] == [Outcome.RIGHT, Outcome.RIGHT, Outcome.WRONG]
    (unknown,) = make("unsure").verify(problems(1), ["?"])
    assert (unknown.score, unknown.outcome) == (None, Outcome.UNJUDGEABLE)
    with pytest.raises(ConfigError, match=r"reward_weights has 1 numbers for 2 functions"):
        make("length", "unsure", weights=(1.0,))


def test_one_bad_completion_costs_no_others_their_reward(make: Make) -> None:
    said: list[str] = []
    task = make("picky", note=said.append)
    verdicts = task.verify(problems(5), ["x", "y", "bad", "z", "w"])
    assert [one.score for one in verdicts] == [1.0, 1.0, None, 1.0, 1.0]
    assert verdicts[2].outcome is Outcome.ERROR
    assert "ZeroDivisionError" in verdicts[2].detail
    assert "line 19, in picky" in verdicts[2].detail
    assert "custom.py" not in verdicts[2].detail
    assert len(said) == 1
    assert "ZeroDivisionError" in said[0]
    task.verify(problems(1), ["bad"])
    assert len(said) == 1  # the first alone is shown


def test_wrong_results_are_faults(make: Make) -> None:
    verdicts = make("nan").verify(problems(2), ["good", "bad"])
    assert [one.score for one in verdicts] == [0.5, None]
    assert verdicts[1].detail.endswith("rewards.py:nan: returned nan")
    short = make("short")
    answer = short.answer(short.rewards[0], problems(2), ["x", "y"])
    assert answer.fault.endswith("returned 1 numbers for 2 completions")
    assert scores(short, "x", "y") == [1.0, 1.0]  # asked for one at a time it has as many


def test_a_call_that_is_late_is_given_up(make: Make) -> None:
    task = make("slow", timeout_s=5.0)
    assert scores(task, "x") == [1.0]
    late = task.verify(problems(2), ["x", "slow"])
    assert [one.outcome for one in late] == [Outcome.TIMEOUT] * 2
    assert "no result after 5 s" in late[0].detail
    assert scores(task, "x") == [1.0]  # the next call has a new process


def test_too_many_faults_end_a_run_with_the_reason(make: Make) -> None:
    task = make("picky", fault_limit=0.25)
    assert len(task.verify(problems(60), ["bad"] * 20 + ["x"] * 40)) == 60  # fewer than 64
    with pytest.raises(
        DataError, match=r"21 of 70 completions .* task\.reward_fault_limit \(0\.25\)"
    ):
        task.verify(problems(10), ["bad"] + ["x"] * 9)


def test_a_chat_is_handed_over_as_messages(make: Make) -> None:
    task = make("chat", chat=True, system="Shout.")
    assert scores(task, "P0", "p1") == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenght", "did you mean 'length'"),
        ("LIMIT", "is a int, no function"),
        ("nothing_like_it", "it has "),
    ],
)
def test_a_name_that_is_not_there_is_an_error_at_the_start(
    make: Make, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(name)


def test_a_file_that_cannot_be_loaded_is_named_with_its_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import math\nx = math.sqrt(-1)\n")
    with pytest.raises(ConfigError, match=r"broken\.py cannot be loaded: ValueError.*line 2: x ="):
        load(f"{broken}:f")
    broken.write_text("def f(:\n")
    with pytest.raises(ConfigError, match=r"SyntaxError"):
        load(f"{broken}:f")
    with pytest.raises(ConfigError, match="there is no file"):
        load(f"{tmp_path / 'none.py'}:f")
    with pytest.raises(ConfigError, match="cannot be loaded: ModuleNotFoundError"):
        load("no_such_package.module:f")
    assert load("json:dumps") is json.dumps


def test_what_names_an_object_and_what_does_not() -> None:
    assert is_named("a/b.py:f")
    assert is_named("package.module:f")
    assert not any(
        map(is_named, ("countdown", "data.jsonl", "a/b.py", "openai/gsm8k:main", "a:b-c"))
    )


TASK = """
from isentrope.tasks.problem import Problem
from isentrope.verifiers.verdict import Outcome, Verdict

class Echo:
    name, right_score = "echo", 1.0
    def __init__(self, seed, word="hi"):
        self.word = f"{word}{seed}"
    def train(self, index):
        return Problem(f"{self.word}{index}", self.word, self.name)
    def test(self):
        return [self.train(-1)]
    def verify(self, problems, completions):
        return [Verdict(float(p.answer == c), Outcome.RIGHT) for p, c in zip(problems, completions)]

class Half:
    def __init__(self, seed): ...
"""


def test_a_task_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "tasks.py"
    file.write_text(TASK)
    task = make_task(f"{file}:Echo", seed=3, options={"word": "yo"})
    assert task.train(5).prompt == "yo35"
    assert [v.score for v in task.verify([task.train(0)] * 2, ["yo3", "no"])] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="unexpected keyword argument 'wort'"):
        make_task(f"{file}:Echo", options={"wort": "x"})
    with pytest.raises(ConfigError, match="has no name, right_score, train, test, verify"):
        make_task(f"{file}:Half")


def write_rows(path: Path) -> Path:
    """40 Countdown problems with columns of other names, and no gold answer."""
    rows = [{"instruction": Countdown().train(i).prompt, "target": i % 7} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_own_rows_and_own_reward_from_nothing_to_a_report(
    make: Make, tmp_path: Path, tiny: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(completions, target, **kwargs):\n"
        "    return [text.count(str(t)) / 10 for text, t in zip(completions, target)]\n"
    )
    task = TaskConfig(
        name=str(write_rows(tmp_path / "mine.jsonl")),
        options={"prompt": "instruction"},
        reward=(f"{tmp_path / 'mine.py'}:score",),
        right_score=0.1,
    )
    default = TrainConfig().evaluation.problems
    config = replace(
        tiny, steps=2, task=task, evaluation=replace(tiny.evaluation, problems=default)
    )
    recipe = tmp_path / "mine.toml"
    recipe.write_text(dump_toml(config))
    assert load_config(recipe) == config
    assert main(["train", str(recipe), "--out", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "mine has 4 test problems; all of them are evaluated, not 128" in printed
    lines = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    row = json.loads(lines[-1])
    assert row["problems"] == 4
    assert 0 < row["reward/avg"] < row["reward/pass"] <= 1  # a tenth is right, and is little
    assert main(["report", str(tmp_path / "run")]) == 0


def test_unjudged_completions_are_counted_in_the_log(tmp_path: Path, tiny: TrainConfig) -> None:
    (tmp_path / "half.py").write_text(
        "def score(completions, **kwargs):\n"
        "    return [None if len(text) % 2 else 1.0 for text in completions]\n"
    )
    config = replace(tiny, task=TaskConfig(reward=(f"{tmp_path / 'half.py'}:score",)))
    experience = collect(load_model(config.model), task_of(config), config, 0)
    share = experience.rewards.isnan().float().mean().item()
    assert 0 < share < 1
    assert experience.metrics()["reward/unjudged"] == share
    known = replace(experience, rewards=torch.ones(len(experience.rewards)))
    assert "reward/unjudged" not in known.metrics()


def test_a_row_without_the_columns_says_how_to_name_them(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path / "mine.jsonl"))
    with pytest.raises(DataError, match=r"has instruction, target; .* task\.options\.prompt"):
        make_task(path)
    with pytest.raises(DataError, match=r"no answer .* task\.options\.answer"):
        make_task(path, options={"prompt": "instruction"})
    options = {"prompt": "instruction", "answer": "target", "template": "{problem} \\boxed{}."}
    task = make_task(path, options=options)
    assert task.train(0).prompt.endswith(" \\boxed{}.")
    assert task.train(0).columns.keys() == {"instruction", "target"}


def test_rows_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ufeffproblem,answer\n"1, or 2?",3\nx,y\n', encoding="utf-8")
    rows = [{"problem": "1, or 2?", "answer": "3"}, {"problem": "x", "answer": "y"}]
    assert read_rows(str(tmp_path / "a.csv")) == rows
    (tmp_path / "a.tsv").write_text("problem\tanswer\n1, or 2?\t3\nx\ty\n")
    assert read_rows(str(tmp_path / "a.tsv")) == rows
    (tmp_path / "a.csv").write_text("problem,answer\nx\n")
    with pytest.raises(DataError, match="row 2: not as many cells"):
        read_rows(str(tmp_path / "a.csv"))


def test_a_reward_in_a_recipe_may_be_one_or_several(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('[task]\nreward = "a.py:f"\nreward_weights = 2\n')
    assert load_config(recipe).task == TaskConfig(reward=("a.py:f",), reward_weights=(2.0,))
    several = TaskConfig(reward=("a.py:f", "b:g"), reward_weights=(1.0, 0.5))
    recipe.write_text(dump_toml(TrainConfig(task=several, model=ModelConfig(prompt="chat"))))
    assert load_config(recipe).task == several
    recipe.write_text("[task]\nreward = [3]\n")
    with pytest.raises(ConfigError, match="reward is 3; it must be of type str"):
        load_config(recipe)
