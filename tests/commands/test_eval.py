"""`isentrope eval`: table, summary and comparison from records, without a model."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from isentrope.commands import eval as command
from isentrope.errors import ConfigError
from isentrope.evaluation import generation
from isentrope.evaluation.samples import Sample, Settings, check_settings
from isentrope.evaluation.suites import choose_benchmarks

pytest.importorskip("math_verify")


def no_model(model: str, *, device: str, chat: bool) -> None:
    """A complete record needs no completion."""


def record(folder: Path, data: str, scores: list[float]) -> None:
    [benchmark] = choose_benchmarks([data])
    check_settings(Settings(model="m"), [benchmark], folder)
    lines = [
        asdict(
            Sample(
                benchmark="exam",
                problem=n,
                sample=0,
                seed=0,
                gold=str(n),
                completion="",
                answer="1",
                vote="1",
                score=score,
                outcome="right" if score else "wrong",
                detail="",
                tokens=10,
                truncated=False,
                entropy=0.5,
                logprob=-0.5,
            )
        )
        for n, score in enumerate(scores)
    ]
    (folder / "exam.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_table_summary_and_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generation, "load_generator", no_model)
    data = tmp_path / "data" / "exam.jsonl"
    data.parent.mkdir()
    rows = [{"problem": f"p{n}", "answer": str(n)} for n in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record(tmp_path / "a", str(data), [0.0, 1.0, 0.0, 0.0])
    record(tmp_path / "b", str(data), [0.0, 1.0, 1.0, 1.0])
    options = command.Options(
        model="m", suite=(str(data),), out=tmp_path / "a", compare=str(tmp_path / "b")
    )
    assert command.run(options) == 0
    output = capsys.readouterr().out
    assert "25.0" in output
    assert "+50.0" in output
    summary = json.loads((tmp_path / "a" / "summary.jsonl").read_text())
    assert summary["reward/avg"] == 0.25
    assert summary["entropy/sequence_mean"] == 0.5
    assert summary["outcomes"] == {"wrong": 3, "right": 1}


def test_benchmarks_are_checked_before_the_model_is_loaded() -> None:
    with pytest.raises(ConfigError, match="no suite, benchmark or file"):
        command.run(command.Options(model="none", suite=("nothing",)))


def test_default_folder_is_named_after_the_model() -> None:
    assert command.default_folder("Qwen/Qwen2.5-0.5B") == Path("evaluations/Qwen--Qwen2.5-0.5B")
    assert command.default_folder("/models/x/") == Path("evaluations/models--x")
