"""Each framework's keys, as its own code writes them: kind, aggregation, temperature, policy."""

import json
from pathlib import Path

import pytest

from isentrope.runs import pair, read_run
from isentrope.runs.record import Meaning, Record
from isentrope.runs.rules import FRAMEWORKS

# framework, keys of a log, (entropy key, kind, aggregation, temperature, lag),
# validation {key: (source, metric)}, pass@k keys
CASES = [
    (
        "verl fork of the entropy mechanism paper",
        [
            "train_entropy/all",
            "train_entropy/gsm8k",
            "test_entropy/all",
            "actor/entropy_loss",
            "val-core/aime/acc/mean@32",
            "val-core/aime/acc/best@32/mean",
        ],
        ("train_entropy/all", "full", "sequence mean", "1", -1),
        {"val-core/aime/acc/mean@32": ("aime", "mean@32")},
        ["val-core/aime/acc/best@32/mean"],
    ),
    (
        "verl",
        [
            "actor/entropy",
            "critic/rewards/mean",
            "val-core/a/b/acc/mean_at_8",
            "val-aux/a/b/acc/std@8",
        ],
        ("actor/entropy", "full", "token mean", "sampling", -1),
        {"val-core/a/b/acc/mean_at_8": ("a/b", "mean@8")},
        [],
    ),
    (
        "TRL",
        ["train/entropy", "train/reward", "train/reward_std", "eval/reward", "eval/entropy"],
        ("train/entropy", "full", "token mean", "sampling", -1),
        {"eval/reward": ("eval", "mean")},
        [],
    ),
    (
        "TRL",
        ["objective/entropy", "objective/scores", "policy/entropy_avg"],
        ("policy/entropy_avg", "full", "token mean", "sampling", -1),
        {},
        [],
    ),
    (
        "OpenRLHF",
        [
            "train/entropy_loss",
            "train/policy_loss",
            "train/reward",
            "eval/eval_aime_pass1",
            "eval/eval_aime_pass8",
        ],
        ("train/entropy_loss", "full", "token mean", "unknown", -1),
        {"eval/eval_aime_pass1": ("aime", "pass@1")},
        ["eval/eval_aime_pass8"],
    ),
    (
        "NeMo-RL",
        ["train/approx_entropy", "train/reward", "validation/accuracy", "validation/pass_k"],
        ("train/approx_entropy", "is_nll", "token mean", "sampling", -1),
        {"validation/accuracy": ("validation", "accuracy")},
        ["validation/pass_k"],
    ),
    (
        "prime-rl",
        [
            "entropy/all/mean",
            "entropy/math/mean",
            "eval/aime24/all/agent/avg@16",
            "eval/aime24/effective/agent/avg@16",
            "eval/aime24/all/agent/pass@8",
        ],
        ("entropy/all/mean", "full", "token mean", "sampling", None),
        {"eval/aime24/all/agent/avg@16": ("aime24", "avg@16")},
        ["eval/aime24/all/agent/pass@8"],
    ),
    (
        "slime",
        [
            "train/entropy_loss",
            "rollout/raw_reward",
            "eval/aime",
            "eval/aime-pass@8",
            "eval/aime-truncated_ratio",
            "eval/step",
        ],
        ("train/entropy_loss", "full", "sequence mean", "sampling", None),
        {"eval/aime": ("aime", "mean")},
        ["eval/aime-pass@8"],
    ),
    (
        "SkyRL",
        ["policy/policy_entropy", "eval/gsm8k/avg_score", "eval/gsm8k/pass_at_4"],
        ("policy/policy_entropy", "full", "token mean", "sampling", -1),
        {"eval/gsm8k/avg_score": ("gsm8k", "avg_score")},
        ["eval/gsm8k/pass_at_4"],
    ),
    (
        "open-instruct",
        ["policy/entropy_avg", "eval/pass_at_1", "eval/pass_at_4_unbiased", "eval/scores"],
        ("policy/entropy_avg", "full", "token mean", "sampling", None),
        {"eval/pass_at_1": ("eval", "pass@1"), "eval/scores": ("eval", "mean")},
        ["eval/pass_at_4_unbiased"],
    ),
    (
        "ms-swift",
        ["entropy/mean", "entropy/max", "entropy/threshold", "reward", "eval_reward"],
        ("entropy/mean", "full", "sequence mean", "sampling", -1),
        {"eval_reward": ("eval", "mean")},
        [],
    ),
    (
        "ROLL",
        [
            "critic/entropy/mean",
            "critic/score/mean",
            "val_correct/all/mean",
            "val_correct/gsm8k/mean",
        ],
        ("critic/entropy/mean", "full", "token mean", "sampling", None),
        {
            "val_correct/all/mean": ("all", "mean"),
            "val_correct/gsm8k/mean": ("gsm8k", "mean"),
        },
        [],
    ),
]


def record_of(path: Path, keys: list[str]) -> Record:
    """The record of a log with these keys, at three steps."""
    rows = [{"step": s, **dict.fromkeys(keys, 0.5 - s / 100)} for s in (1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_run(path)


@pytest.mark.parametrize(("name", "keys", "entropy", "validation", "wide"), CASES)
def test_keys_of_a_framework(
    tmp_path: Path,
    name: str,
    keys: list[str],
    entropy: tuple[str, str, str, str, int | None],
    validation: dict[str, tuple[str, str]],
    wide: list[str],
) -> None:
    record = record_of(tmp_path / "run.jsonl", keys)
    assert record.format == f"{name}, JSON lines"
    first = record.having("entropy")[0]
    m = first.meaning or Meaning(role="entropy")
    assert (first.key, m.kind, m.aggregation, m.temperature, m.lag) == entropy
    found = {
        s.key: (s.meaning.source, s.meaning.metric)
        for s in record.having("validation")
        if s.meaning
    }
    assert found == validation
    assert [s.key for s in record.having("pass@k")] == wide
    assert record.unknown_entropy_keys == tuple(
        k for k in ("entropy/max", "entropy/threshold") if k in keys
    )


def test_every_framework_has_a_case() -> None:
    names = {framework.name for framework in FRAMEWORKS} - {"isentrope"}  # see test_folder.py
    assert names == {case[0] for case in CASES}


def test_ms_swift_writes_its_step_as_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    rows = [{"global_step/max_steps": f"{s}/90", "entropy/mean": s / 10} for s in (5, 10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_run(tmp_path).series["entropy/mean"].steps.tolist() == [5, 10]


def test_validation_entropy_is_preferred_for_a_validation_reward(tmp_path: Path) -> None:
    keys = ["train_entropy/all", "test_entropy/all", "val-core/aime/acc/mean@32"]
    pairs = pair(record_of(tmp_path / "run.jsonl", keys))
    assert (pairs.reward.key, pairs.entropy.key) == (
        "val-core/aime/acc/mean@32",
        "test_entropy/all",
    )
