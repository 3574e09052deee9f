"""Console output: values that stand in the text, and all that must be seen through around them."""

import json
from pathlib import Path

import pytest

from isentrope.errors import DataError
from isentrope.runs import read_run
from isentrope.runs.record import Record

LINE = (
    "(TaskRunner pid=123) step:4 - actor/entropy:0.5 - actor/pg_loss:np.float64(0.0259) - "
    "actor/lr:1e-06 - critic/lr(1e-4):0.100 - val-core/HuggingFaceH4/MATH-500/acc/mean@1:0.706 - "
    "actor/kl_loss:nan"
)


def read(folder: Path, text: str | bytes, name: str = "run.log") -> Record:
    """The record of a log with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_run(path)


def value(record: Record, key: str) -> list[tuple[int, float]]:
    """The points of a key."""
    series = record.series[key]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"\x1b[36m(TaskRunner pid=123)\x1b[0m {LINE.removeprefix('(TaskRunner pid=123) ')}\n",
        f"Training: 3%|# | 4/100\r{LINE}\n",
        f"\0\0{LINE}\n",
        f"{LINE}\r\n",
        f"{LINE} [repeated 2x across cluster]\n",
    ],
)
def test_verl_line_in_every_wrapping(tmp_path: Path, text: str) -> None:
    record = read(tmp_path, text)
    assert record.format == "verl, console log"
    assert value(record, "actor/entropy") == [(4, 0.5)]
    assert value(record, "actor/pg_loss") == [(4, 0.0259)]
    assert value(record, "actor/lr") == [(4, 1e-6)]
    assert value(record, "critic/lr(1e-4)") == [(4, 0.1)]
    assert "actor/kl_loss" not in record.series
    (validation,) = record.having("validation")
    assert validation.values.tolist() == [0.706]
    assert validation.meaning is not None
    assert validation.meaning.source == "HuggingFaceH4/MATH-500"
    assert validation.meaning.metric == "mean@1"


def test_old_and_new_entropy_keys_are_one_kind_of_series(tmp_path: Path) -> None:
    old = read(tmp_path, "step:1 - actor/entropy_loss:0.433 - actor/pg_loss:0.1\n")
    (entropy,) = old.having("entropy")
    assert entropy.values.tolist() == [0.433]
    assert entropy.meaning is not None
    assert (entropy.meaning.kind, entropy.meaning.lag) == ("full", -1)


def test_names_that_hold_the_separator_stay_whole(tmp_path: Path) -> None:
    record = read(tmp_path, "step:1 - val-core/my - own/set/acc/mean@8:0.25 - actor/entropy:0.5\n")
    assert value(record, "val-core/my - own/set/acc/mean@8") == [(1, 0.25)]
    (validation,) = record.having("validation")
    assert validation.meaning is not None
    assert validation.meaning.source == "my - own/set"


def test_other_text_with_the_word_step_is_no_row(tmp_path: Path) -> None:
    text = "Let's start with the first step: 3 - 4 = x\nstep:2 - actor/entropy:0.5\nnext step:\n"
    assert value(read(tmp_path, text), "actor/entropy") == [(2, 0.5)]


def test_later_rows_win_after_a_restart_and_the_abandoned_ones_go(tmp_path: Path) -> None:
    steps = [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6), (2, 0.5), (3, 0.4)]
    record = read(tmp_path, "".join(f"step:{s} - actor/entropy:{h}\n" for s, h in steps))
    assert value(record, "actor/entropy") == [(1, 0.9), (2, 0.5), (3, 0.4)]
    assert "later rows win, 3 earlier row(s) dropped" in record.notes[0]


def test_a_torn_last_line_is_skipped_and_said(tmp_path: Path) -> None:
    rows = "".join(f"step:{s} - actor/entropy:0.{s} - perf/throughput:9.5\n" for s in (1, 2, 3))
    record = read(tmp_path, rows + "step:4 - actor/entropy:0.4")
    assert value(record, "actor/entropy") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert record.notes == ("the last line (step 4) is torn: skipped",)
    whole = read(tmp_path, rows + "step:4 - actor/entropy:0.4 - perf/throughput:9.5")
    assert len(whole.series["actor/entropy"]) == 4


def test_settings_printed_as_dicts_are_no_rows_of_a_verl_log(tmp_path: Path) -> None:
    text = "{'actor': 1, 'lr': 2, 'step': 9}\nstep:1 - actor/entropy:0.5\n"
    record = read(tmp_path, text)
    assert value(record, "actor/entropy") == [(1, 0.5)]
    assert "lr" not in record.series


def test_coarse_printing_is_said(tmp_path: Path) -> None:
    record = read(tmp_path, "step:1 - actor/entropy:0.012\nstep:2 - actor/entropy:0.011\n")
    assert any("three decimals" in note for note in record.notes)


def test_the_verl_log_in_a_notebook(tmp_path: Path) -> None:
    stream = {"output_type": "stream", "text": [LINE + "\n", LINE.replace("step:4", "step:5")]}
    notebook = {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": [stream]}]}
    record = read(tmp_path, json.dumps(notebook, indent=1), "run.ipynb")
    assert record.format == "verl, notebook"
    assert value(record, "actor/entropy") == [(4, 0.5), (5, 0.5)]


def test_trl_dicts_between_progress_bars(tmp_path: Path) -> None:
    text = (
        "  0%|          | 1/200 [00:03<12:39]\r  1%| | 2/200\n"
        "{'loss': -0.1309, 'reward': 0.875, 'reward_std': 0.2, 'entropy': 0.158, 'epoch': 0.0}\n"
        "{'loss': nan, 'reward': np.float64(0.9), 'reward_std': 0.1, 'entropy': '0.14'}\n"
        "{'eval_loss': 0.1, 'eval_reward': 0.7, 'eval_entropy': 0.13}\n"
        "{'train_runtime': 6.5, 'train_loss': 0.1}\n{'loss': 0.1, 'entr"
    )
    record = read(tmp_path, text)
    assert record.format == "TRL, console log"
    assert value(record, "entropy") == [(1, 0.158), (2, 0.14)]
    assert value(record, "reward") == [(1, 0.875), (2, 0.9)]
    assert value(record, "eval_reward") == [(2, 0.7)]
    assert record.notes == (
        "rows carry no step: numbered 1, 2, 3, ...",
        "the last line is torn: skipped",
    )


def test_slime_dicts_with_their_step_before_them(tmp_path: Path) -> None:
    text = (
        "[2026-01-01] rollout.py:5 - rollout 3: {'rollout/raw_reward': 0.5, 'rollout/entropy': 0.4}\n"
        "[2026-01-01] model.py:9 - step 3: {'train/entropy_loss': 0.41, 'train/loss': 0.0}\n"
        "[2026-01-01] eval.py:7 - eval 3: {'eval/aime': 0.25, 'eval/aime-truncated_ratio': 0.1}\n"
    )
    record = read(tmp_path, text)
    assert record.format == "slime, console log"
    assert value(record, "train/entropy_loss") == [(3, 0.41)]
    assert [(s.key, s.values.tolist()) for s in record.having("validation")] == [
        ("eval/aime", [0.25])
    ]


def test_roll_prints_json_objects(tmp_path: Path) -> None:
    row = {"system/step": 7, "step": 7, "critic/entropy/mean": 0.3, "val_correct/all/mean": 0.6}
    record = read(tmp_path, f"metrics: {json.dumps(row)}\n")
    assert record.format == "ROLL, console log"
    assert value(record, "critic/entropy/mean") == [(7, 0.3)]
    assert [s.key for s in record.having("validation")] == ["val_correct/all/mean"]


def test_text_without_rows_names_what_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rows of numbers in .*readable are:"):
        read(tmp_path, "hello\nworld\n")
    with pytest.raises(DataError, match="is empty"):
        read(tmp_path, "")
