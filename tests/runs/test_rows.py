"""Tables and JSON in every container, TensorBoard files, and wandb's API."""

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from isentrope.errors import ConfigError, DataError
from isentrope.runs import read_run, read_runs
from isentrope.runs.wandb_api import scan_run


def points(path: Path, key: str, **options: str) -> list[tuple[int, float]]:
    """The points of a key of the log at a path."""
    series = read_run(path, **options).series[key]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def lines(path: Path, rows: Iterable[object]) -> Path:
    """The path, with rows written as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_verl_json_lines_with_null_and_a_torn_end(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "run.jsonl",
        [
            {"step": 1, "data": {"actor/entropy": 0.5, "actor/pg_loss": None}},
            {"step": 2, "data": {"actor/entropy": 0.4, "actor/pg_loss": 0.1}},
        ],
    )
    path.write_bytes(path.read_bytes() + b'{"step": 3, "data": {"actor/en')
    record = read_run(path)
    assert record.format == "verl, JSON lines"
    assert points(path, "actor/entropy") == [(1, 0.5), (2, 0.4)]
    assert points(path, "actor/pg_loss") == [(2, 0.1)]
    assert "the last line (3) is torn: skipped" in record.notes


def test_nul_bytes_and_a_broken_line_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(
        b'{"step": 1, "entropy": 0.5}\n\0\0{"step": 2, "entropy": 0.4}\noops\n'
        b'{"step": 3, "entropy": 0.3}\n'
    )
    record = read_run(path, entropy="entropy")
    assert record.series["entropy"].values.tolist() == [0.5, 0.4, 0.3]
    assert record.notes == ("1 line(s) are no JSON objects, the first is line 3: skipped",)


def test_trainer_state_with_bare_nan_and_separate_evaluation_rows(tmp_path: Path) -> None:
    history = [
        {"step": 10, "entropy": 0.5, "reward": 0.2, "reward_std": 0.1, "kl": float("nan")},
        {"step": 10, "eval_reward": 0.3, "eval_entropy": 0.45},
        {"step": 20, "entropy": 0.4, "reward": 0.4, "reward_std": 0.1, "kl": 0.0},
    ]
    folder = tmp_path / "out" / "checkpoint-20"
    folder.mkdir(parents=True)
    state = {"epoch": 1.0, "log_history": history, "max_steps": 20}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    for path in (folder / "trainer_state.json", folder, tmp_path / "out"):
        record = read_run(path)
        assert record.format == "TRL, trainer_state.json"
        assert points(path, "entropy") == [(10, 0.5), (20, 0.4)]
        assert points(path, "eval_reward") == [(10, 0.3)]
        assert points(path, "kl") == [(20, 0.0)]


def test_the_last_checkpoint_counts_by_number(tmp_path: Path) -> None:
    for step in (90, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        rows = [{"step": step, "entropy": step / 1000, "reward_std": 0.1}]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    assert points(tmp_path, "entropy") == [(100, 0.1)]


def test_json_list_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "step_logs.json"
    rows = [{"step": 5, "entropy": 0.3, "reward_std": 0.1}, {"step": 5, "train_runtime": 1.0}]
    path.write_text(json.dumps(rows, indent=2))
    assert read_run(path).format == "TRL, JSON list"
    assert points(path, "entropy") == [(5, 0.3)]


def test_csv_with_empty_cells_and_a_repeated_last_step(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,reward_mean,reward_std,entropy\n1,0.5,0.1,0.20\n2,,,0.19\n2,,,\n3,0.6\n")
    record = read_run(path)
    assert record.format == "TRL, CSV"
    assert points(path, "entropy") == [(1, 0.20), (2, 0.19)]
    assert points(path, "reward_mean") == [(1, 0.5)]
    assert record.notes == ("1 row(s) have too few cells, torn perhaps: skipped",)


def test_newest_first_rows_are_sorted_not_taken_for_restarts(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,h,r\n" + "".join(f"{s},{s / 10},0.5\n" for s in range(30, 0, -1)))
    assert points(path, "h", entropy="h") == [(s, s / 10) for s in range(1, 31)]


def test_wandb_chart_export_of_two_runs_with_dashes_in_their_names(tmp_path: Path) -> None:
    metric = "val-core/my - set/acc/mean@8"
    header = ["Step"]
    for run in ("lr - 1e-6", "lr - 2e-6"):
        for name in ("actor/entropy", metric):
            header += [f"{run} - {name}", f"{run} - {name}__MIN", f"{run} - {name}__MAX"]
    row = ["1"]
    for number in ("0.5", "0.25", "0.6", "0.35"):
        row += [number, "0", "1"]
    path = tmp_path / "chart.csv"
    path.write_text("\n".join(",".join(f'"{c}"' for c in cells) for cells in (header, row)) + "\n")
    first, second = read_runs(path)
    assert (first.name, second.name) == ("lr - 1e-6", "lr - 2e-6")
    assert first.series["actor/entropy"].values.tolist() == [0.5]
    assert second.series[metric].values.tolist() == [0.35]
    assert not any("__MIN" in key for key in first.series)
    assert read_run(path, run="lr - 2e-6").name == "lr - 2e-6"
    with pytest.raises(DataError, match="choose one of: lr - 1e-6, lr - 2e-6"):
        read_run(path)


def test_flat_keys_are_named_by_the_user(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", [{"step": s, "H": 0.5 - s / 10, "acc": s} for s in (1, 2)])
    record = read_run(path, entropy="H", reward="acc")
    assert record.format == "flat keys, JSON lines"
    assert [s.key for s in record.having("entropy")] == ["H"]
    assert [s.key for s in record.having("train")] == ["acc"]
    with pytest.raises(ConfigError, match=r"no key 'entropi'.*there are: step, H, acc"):
        read_run(path, entropy="entropi")


def test_rows_without_a_step_are_numbered(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", [{"H": 0.5, "R": 0.1}, {"H": 0.4, "R": 0.2}])
    assert points(path, "H", entropy="H") == [(1, 0.5), (2, 0.4)]


def test_entropy_of_zero_throughout_was_not_measured(tmp_path: Path) -> None:
    rows = [{"step": s, "entropy": 0.0, "reward": 0.5, "reward_std": 0.1} for s in range(5)]
    record = read_run(lines(tmp_path / "m.jsonl", rows))
    assert record.having("entropy") == []
    assert "entropy is 0.0 in all 5 rows: it was not measured" in record.notes


def test_unknown_entropy_keys_are_listed_not_guessed(tmp_path: Path) -> None:
    row = {"step": 1, "actor/entropy": 0.5, "actor/entropy_top20": 2.0, "my_entropy": 1.0}
    record = read_run(lines(tmp_path / "m.jsonl", [row]))
    assert [s.key for s in record.having("entropy")] == ["actor/entropy"]
    assert record.unknown_entropy_keys == ("actor/entropy_top20", "my_entropy")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.log", None, "no file or folder"),
        ("run.wandb", b"\1\2", "wandb sync"),
        ("broken.json", b'{"log_history": [', "no complete JSON"),
        ("events.out.tfevents.1", b"not an event file", "no TensorBoard event file"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_way_out(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_run(tmp_path / name)


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no log that can be read in the folder"):
        read_run(tmp_path)


def varint(value: int) -> bytes:
    """A number as protocol buffers write it."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, kind: int, payload: bytes) -> bytes:
    """A field; a length goes before bytes."""
    length = varint(len(payload)) if kind == 2 else b""
    return varint(number << 3 | kind) + length + payload


def event(step: int, value: bytes) -> bytes:
    """A record of an event file with one Summary.Value; checksums are left zero."""
    message = field(1, 1, struct.pack("<d", 1.0)) + field(2, 0, varint(step))
    message += field(5, 2, field(1, 2, value))
    return struct.pack("<QI", len(message), 0) + message + struct.pack("<I", 0)


def simple(tag: str, value: float) -> bytes:
    """A value as older writers have it."""
    return field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value))


def tensor(tag: str, value: float, kind: str) -> bytes:
    """A value as newer writers have it: a tensor with its content, or with a list of floats."""
    if kind == "content":
        body = field(1, 0, varint(2)) + field(4, 2, struct.pack("<d", value))
    else:
        body = field(1, 0, varint(1)) + field(5, 2, struct.pack("<f", value))
    return field(1, 2, tag.encode()) + field(8, 2, body)


def test_tensorboard_values_of_every_kind_and_a_restart_in_a_second_file(tmp_path: Path) -> None:
    version = struct.pack("<QI", 9, 0) + field(1, 1, bytes(8)) + bytes(4)
    first = b"".join(
        [
            version,
            event(1, simple("train/entropy", 0.5)),
            event(1, simple("train/reward_std", 0.25)),
            event(200, tensor("train/entropy", 0.4, "content")),
            event(300, tensor("train/entropy", 0.3125, "list")),
        ]
    )
    (tmp_path / "events.out.tfevents.100.host").write_bytes(first)
    second = event(200, simple("train/entropy", 0.375)) + event(201, simple("train/entropy", 0.1))
    (tmp_path / "events.out.tfevents.200.host").write_bytes(second[:-5])
    record = read_run(tmp_path)
    assert record.format == "TRL, TensorBoard events"
    assert points(tmp_path, "train/entropy") == [(1, 0.5), (200, 0.375)]
    assert any("is torn after byte" in note for note in record.notes)
    assert points(tmp_path / "events.out.tfevents.100.host", "train/entropy") == [
        (1, 0.5),
        (200, 0.4),
        (300, 0.3125),
    ]


class FakeRun:
    """A wandb run: like wandb, its scan returns only rows that hold all keys asked for."""

    def __init__(self, rows: list[dict[str, object]], summary: Mapping[str, object]) -> None:
        self.rows = rows
        self.summary = summary

    def scan_history(self, keys: list[str]) -> Iterable[Mapping[str, object]]:
        return [row for row in self.rows if all(key in row for key in keys)]


def test_wandb_history_is_scanned_key_by_key_and_joined_on_the_step() -> None:
    rows: list[dict[str, object]] = [
        {"_step": 0, "val-core/gsm8k/acc/mean@1": 0.1},
        {"_step": 1, "actor/entropy": 0.5},
        {"_step": 2, "actor/entropy": 0.4, "val-core/gsm8k/acc/mean@1": 0.2},
    ]
    summary = {"actor/entropy": 0.4, "val-core/gsm8k/acc/mean@1": 0.2, "_runtime": 5, "perf/x": 1}
    series = scan_run(FakeRun(rows, summary), "team/project/run").build()
    assert set(series) == {"actor/entropy", "val-core/gsm8k/acc/mean@1"}
    assert series["actor/entropy"].steps.tolist() == [1, 2]
    assert series["val-core/gsm8k/acc/mean@1"].values.tolist() == [0.1, 0.2]


def test_wandb_of_a_hugging_face_trainer_uses_its_own_step() -> None:
    rows: list[dict[str, object]] = [
        {"_step": 0, "train/global_step": 10, "train/entropy": 0.5},
        {"_step": 1, "train/global_step": 10, "eval/reward": 0.3},
    ]
    summary = {
        "train/global_step": 10,
        "train/entropy": 0.5,
        "eval/reward": 0.3,
        "train/reward_std": 0,
    }
    series = scan_run(FakeRun(rows, summary), "team/project/run").build()
    assert series["train/entropy"].steps.tolist() == [10]
    assert series["eval/reward"].steps.tolist() == [10]


def test_an_empty_wandb_history_is_no_empty_run() -> None:
    with pytest.raises(DataError, match="empty history"):
        scan_run(FakeRun([], {"actor/entropy": 0.4}), "team/project/run")
