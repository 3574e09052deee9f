"""Data sets become problems: files, fields, presets, the check of prompts."""

import json
from pathlib import Path

import pytest

from isentrope.errors import ConfigError, DataError
from isentrope.tasks.dataset import RowTask, check_prompts, hold_out, problems_of
from isentrope.tasks.presets import BOXED_TEMPLATE, PRESETS, Preset
from isentrope.tasks.problem import Problem
from isentrope.tasks.registry import make_task, read_problems
from isentrope.tasks.rows import field, read_rows
from isentrope.verifiers.verdict import Outcome

VERL_ROW = {
    "data_source": "some/set",
    "prompt": [{"role": "user", "content": "What is 1 + 1? Answer in \\boxed{}."}],
    "ability": "math",
    "reward_model": {"ground_truth": "2", "style": "rule"},
}


def write_lines(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_json_lines_and_json(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"a": 1}, {"a": {"b": 2}}]
    lines = write_lines(tmp_path / "rows.jsonl", rows)
    assert read_rows(lines) == rows
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    assert read_rows(str(tmp_path / "rows.json")) == rows
    assert field(rows[1], "a.b") == 2
    assert field(rows[0], "a.b") is None


def test_parquet_with_verl_schema(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([VERL_ROW] * 3), tmp_path / "x.parquet")
    [problem, *others] = read_problems(str(tmp_path / "x.parquet"))
    assert problem == Problem("What is 1 + 1? Answer in \\boxed{}.", "2", "some/set")
    assert len(others) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.jsonl", None, "there is no file"),
        ("x.jsonl", "", "holds no row"),
        ("x.jsonl", '{"a": 1}\n{', "line 2: no JSON"),
        ("x.jsonl", "[1]", "line 1: a row must be an object"),
        ("x.json", "{}", "holds no list"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_rows(str(tmp_path / name))


def test_gold_is_taken_from_where_it_stands() -> None:
    rows = [{"question": "q", "answer": "1 + 1 = <<1+1=2>>2\n#### 1,002"}]
    assert problems_of(rows, PRESETS["gsm8k"], "x")[0].answer == "1,002"
    rows = [{"problem": "q", "solution": "so \\boxed{\\frac{1}{2}} it is"}]
    assert problems_of(rows, PRESETS["math"], "x")[0].answer == "\\frac{1}{2}"
    listed = [{"question": "q", "final_answer": ["1", "2"]}]
    assert problems_of(listed, PRESETS["olympiadbench"], "x")[0].answer == "1, 2"


def test_row_without_an_answer_is_named() -> None:
    with pytest.raises(DataError, match="x, row 2: no answer in the fields answer; the row has"):
        problems_of([{"problem": "q", "answer": "1"}, {"problem": "q"}], Preset(), "x")


def test_eurus_is_split_by_ability() -> None:
    code = {**VERL_ROW, "ability": "code", "reward_model": {"ground_truth": "{}"}}
    assert len(problems_of([VERL_ROW, code], PRESETS["eurus2_math"], "x")) == 1
    assert problems_of([VERL_ROW, code], PRESETS["eurus2_code"], "x")[0].answer == "{}"


def test_prompt_and_verifier_must_agree() -> None:
    silent = [Problem("What is 1 + 1?", "2", "x")]
    with pytest.raises(ConfigError, match=r"1 of 1 prompts do not ask for \\boxed"):
        check_prompts(silent, Preset())
    check_prompts([Problem(BOXED_TEMPLATE.format(problem="q"), "2", "x")], Preset())
    check_prompts([Problem("q ... Answer: ", "2", "x")], Preset(formats=("answer",)))
    with pytest.raises(ConfigError, match="```"):
        check_prompts(silent, Preset(verifier="code"))


def test_every_preset_asks_for_what_its_verifier_wants() -> None:
    for preset in PRESETS.values():
        prompt = preset.template.format(problem="q")
        check_prompts([Problem(prompt, "1", "x")], preset)


def test_stream_is_seeded_and_each_epoch_is_complete(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"problem": f"p{n}", "answer": str(n)} for n in range(20)]
    path = write_lines(tmp_path / "x.jsonl", rows)
    task = make_task(path, seed=1)
    assert isinstance(task, RowTask)
    assert len(task.test()) == 2  # a tenth is held out
    drawn = [task.train(index).answer for index in range(36)]
    assert sorted(drawn[:18]) == sorted(drawn[18:])
    assert drawn[:18] != drawn[18:]
    held = {problem.answer for problem in task.test()}
    assert held.isdisjoint(drawn)
    assert held | set(drawn) == {str(n) for n in range(20)}
    again = make_task(path, seed=1)
    assert [again.train(index).answer for index in reversed(range(36))] == drawn[::-1]
    other = make_task(path, seed=2)
    assert [other.train(index).answer for index in range(18)] != drawn[:18]


def test_verdicts_of_a_task(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{"problem": "p", "answer": "\\frac12"}])
    task = make_task(path, options={"test_path": path})
    [problem] = task.test()
    verdicts = task.verify([problem] * 3, ["\\boxed{0.5}", "\\boxed{2}", "0.5"])
    assert [v.outcome for v in verdicts] == [Outcome.RIGHT, Outcome.WRONG, Outcome.UNPARSABLE]


def test_hold_out_takes_a_tenth_at_most() -> None:
    problems = [Problem(str(n), "", "") for n in range(30)]
    train, test = hold_out(problems, 100, seed=0)
    assert (len(train), len(test)) == (27, 3)


def test_unknown_task_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"gsm8k, math, .*countdown, reasoning_gym:NAME"):
        make_task("gsm9k")
    with pytest.raises(ConfigError, match=r"has no \{problem\}"):
        make_task("gsm8k", options={"template": "Solve it."})


def test_public_files_have_their_rows(shared: Path) -> None:
    counts = {
        ("math500", "math500.jsonl"): 500,
        ("aime24", "aime24.jsonl"): 30,
        ("aime25", "aime25.jsonl"): 30,
        ("amc", "amc23.jsonl"): 40,
        ("amc", "amc_numina83.jsonl"): 83,
        ("olympiadbench", "olympiadbench.jsonl"): 675,
        ("minerva_math", "minerva_math.jsonl"): 272,
        ("omni_math", "omni_math_rule.jsonl"): 2821,
        ("omni_math", "omni_math_num_500.jsonl"): 500,
        ("gsm8k", "gsm8k_test.jsonl"): 1319,
        ("gsm8k", "gsm8k_train.jsonl"): 7473,
    }
    for (name, file), rows in counts.items():
        assert len(read_problems(name, str(shared / "data" / file))) == rows, file


def test_public_parquet_has_its_rows(shared: Path) -> None:
    pytest.importorskip("pyarrow")
    for file, rows in (("verl_math_train.parquet", 7500), ("verl_math_test.parquet", 5000)):
        assert len(read_problems("math", str(shared / "data" / file))) == rows


@pytest.mark.extra
def test_hub_data_sets_are_read_by_the_library(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    write_lines(folder / "train.jsonl", [{"problem": "p", "answer": "1"}])
    with pytest.raises(DataError, match="there is no file"):
        read_rows(str(folder))
