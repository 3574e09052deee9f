"""`isentrope probe`: the numbers of a run's first step, without a run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.commands import probe
from isentrope.commands.probe import Options
from isentrope.config import TrainConfig
from isentrope.errors import ConfigError, DataError

OPTIONS = Options(model="builtin:countdown", problems=12, samples=4, max_new_tokens=16)


def test_the_probe_gives_what_a_run_logs_in_its_first_step(
    tiny: TrainConfig,
    run: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # One mini-batch: the means of the token covariance are over all that was sampled.
    short = replace(
        tiny,
        steps=1,
        probe_tokens=0,
        optimizer=replace(tiny.optimizer, mini_batches=1),
        evaluation=replace(tiny.evaluation, problems=1),
    )
    run(short, tmp_path / "run")
    logged = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    capsys.readouterr()
    assert probe.run(replace(OPTIONS, json=True)) == 0
    shown = json.loads(capsys.readouterr().out)
    shared = {key for key in logged if key.startswith(("covariance/", "entropy/", "reward/"))}
    assert len(shared) > 15
    for key in shared:
        expected = logged[key]
        same = expected if expected is None else pytest.approx(expected, rel=1e-6)
        assert shown[key] == same, key


def test_the_tables_name_the_difficulties(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.run(OPTIONS) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("hard", "middle", "easy", "theorem 1", "all tokens"))


def test_what_cannot_be_probed_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose rloo"):
        probe.run(replace(OPTIONS, advantage="prime"))
    with pytest.raises(DataError, match="take more samples"):
        probe.run(replace(OPTIONS, problems=1, samples=2, max_new_tokens=1))
