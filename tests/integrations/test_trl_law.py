"""The law's callback on a log whose law and trend are known. Needs no TRL."""

from math import exp
from types import SimpleNamespace
from typing import Any

import pytest

from isentrope.integrations.trl.law import LawCallback


def run(callback: LawCallback, rows: list[dict[str, float]], max_steps: int) -> Any:
    """The state after a trainer has logged the rows, as Hugging Face's Trainer.log does it."""
    state = SimpleNamespace(global_step=0, max_steps=max_steps, log_history=[])
    for step, row in enumerate(rows):
        logs, state.global_step = dict(row), step
        state.log_history.append({**logs, "step": step})
        callback.on_log(None, state, None, logs=logs)
        assert state.log_history[-1] == {**logs, "step": step}  # the trackers see what it holds
    return state


def lawful(step: int, prefix: str = "") -> dict[str, float]:
    """R = -0.2 exp(H) + 0.8 with 1/H = 1 + step / 20."""
    entropy = 1 / (1 + step / 20)
    return {f"{prefix}entropy": entropy, f"{prefix}reward": 0.8 - 0.2 * exp(entropy)}


def test_it_logs_the_ceiling_and_the_forecast_of_an_exact_law() -> None:
    state = run(LawCallback(), [lawful(step) for step in range(30)], max_steps=380)
    last = state.log_history[29]
    assert last["law/holds"] == 1.0
    assert last["law/ceiling"] == pytest.approx(0.6)
    assert last["forecast/reward"] == pytest.approx(0.8 - 0.2 * exp(1 / 20), abs=1e-6)
    assert last["law/points"] == 30
    assert "law/ceiling" not in state.log_history[28]  # every tenth line only


def test_pairs_of_evaluations_are_preferred() -> None:
    rows = [
        row
        for step in range(10)
        for row in ({"entropy": 1.0, "reward": 0.5}, lawful(step, "eval_"))
    ]
    state = run(LawCallback(), rows, max_steps=100)
    assert state.log_history[-1]["law/ceiling"] == pytest.approx(0.6)


def test_no_ceiling_is_logged_where_the_law_does_not_hold() -> None:
    rising = [{"entropy": 0.5 + 0.01 * step, "reward": 0.01 * step} for step in range(20)]
    last = run(LawCallback(), rising, max_steps=100).log_history[-1]
    assert last["law/holds"] == 0.0
    assert "law/ceiling" not in last
    constant = [{"entropy": 0.5, "reward": 0.1}] * 10
    assert run(LawCallback(), constant, max_steps=100).log_history[-1]["law/holds"] == 0.0


def test_it_stands_before_the_trackers() -> None:
    trackers = [object()]
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(callbacks=trackers))
    callback = LawCallback().attach(trainer)
    assert trackers[0] is callback
