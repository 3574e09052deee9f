"""Each detector finds what was put there, from the step where it was put, and nothing else."""

from pathlib import Path

import numpy as np

from isentrope.law.trouble import collapse, explosion, find_troubles, narrowing, plateau
from isentrope.runs import read_run
from isentrope.runs.record import Meaning, Series

STEPS = np.arange(100)
CALM = np.linspace(1.0, 0.5, 100)


def test_a_collapse_starts_where_a_tenth_is_left() -> None:
    entropy = np.where(STEPS < 40, 1.0, 0.05)
    found = collapse(STEPS, entropy)
    assert found is not None
    assert found.kind == "collapse"
    assert abs(found.step - 40) <= 5
    assert collapse(STEPS, CALM) is None


def test_a_dip_that_comes_back_is_no_collapse() -> None:
    assert collapse(STEPS, np.where((STEPS > 40) & (STEPS < 60), 0.01, 1.0)) is None


def test_an_explosion_starts_where_the_entropy_has_tripled() -> None:
    entropy = np.where(STEPS < 50, 0.3, 0.3 + 0.1 * (STEPS - 50))
    found = explosion(STEPS, entropy)
    assert found is not None
    assert 54 <= found.step <= 60
    assert explosion(STEPS, CALM) is None
    assert explosion(STEPS, np.where(STEPS == 70, 5.0, 0.5)) is None


def test_a_plateau_starts_where_the_level_is_reached() -> None:
    reward = np.minimum(STEPS, 30) / 30
    found = plateau(STEPS, reward)
    assert found is not None
    assert abs(found.step - 29) <= 3
    assert plateau(STEPS, STEPS / 100) is None
    noise = np.random.default_rng(0).normal(size=100)
    assert plateau(STEPS, noise) is None


def line(key: str, values: np.ndarray) -> Series:
    """A series over STEPS."""
    return Series(key=key, steps=STEPS, values=values, meaning=Meaning(role="validation"))


def test_pass_at_one_up_with_pass_at_k_flat_is_narrowing() -> None:
    one, many = line("avg", 0.2 + STEPS / 500), line("pass@16", np.full(100, 0.6))
    found = narrowing(one, many)
    assert found is not None
    assert abs(found.step - 50) <= 3
    assert "pass@16 0.6 -> 0.6" in found.evidence
    assert narrowing(one, line("pass@16", 0.5 + STEPS / 500)) is None
    assert narrowing(line("avg", np.full(100, 0.2)), many) is None


def test_findings_of_a_whole_run_are_sorted_by_step(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    rows = (
        f"step:{s} - actor/entropy:{1.0 if s < 60 else 0.01} - "
        f"val-core/m/acc/mean@8:{min(s, 30) / 50} - val-core/m/acc/best@8/mean:0.7\n"
        for s in range(100)
    )
    path.write_text("".join(rows))
    kinds = [found.kind for found in find_troubles(read_run(path))]
    assert kinds == ["narrowing", "plateau", "collapse"]
