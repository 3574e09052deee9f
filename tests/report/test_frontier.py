"""The frontier of arms: ends, intervals, paired gains and who is beaten, worked out by hand."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from isentrope.report.arms import group
from isentrope.report.frontier import Estimate, end, frontier_charts, standings
from isentrope.report.page import render
from isentrope.report.run_files import Run, load_runs
from isentrope.report.terminal import frontier_lines, frontier_table
from isentrope.runs import Series

T_1, T_2 = 12.7062, 4.3027  # of Student's t at 97.5 %, one and two degrees of freedom


def write(
    folder: Path, arm: str, seed: int, average: Sequence[float], passed: Sequence[float], h: float
) -> None:
    """A run folder with an evaluation every 10 steps."""
    place = folder / f"{arm}-seed{seed}"
    place.mkdir()
    (place / "config.toml").write_text(f'name = "{arm}"\nseed = {seed}\nsteps = 50\n')
    rows = [
        {
            "step": 10 * index,
            "source": "countdown",
            "k": 8,
            "reward/avg": a,
            "reward/pass": p,
            "entropy/token_mean": h,
            "entropy/sequence_mean": h,
        }
        for index, (a, p) in enumerate(zip(average, passed, strict=True))
    ]
    (place / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = [{"step": s, "entropy/token_mean": h, "time/step_s": 1.0} for s in range(50)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three arms; the last three of six evaluations count."""
    begin = [0.2, 0.9, 0.9]  # what comes before the end must not count
    for seed, average in enumerate((0.40, 0.42)):
        ends = [average - 0.03, average, average + 0.03]
        write(tmp_path, "a", seed, [*begin, *ends], [*begin, 0.5, 0.5, 0.5], 0.05)
    for seed, average in enumerate((0.45, 0.49)):
        write(tmp_path, "b,x=1", seed, [*begin, *[average] * 3], [*begin, 0.6, 0.7, 0.8], 0.1)
    write(tmp_path, "b,x=2", 1, [*begin, *[0.41] * 3], [*begin, *[0.75] * 3], 0.2)
    return load_runs([tmp_path])


def test_the_end_is_the_mean_of_the_last_three_evaluations() -> None:
    steps = np.arange(7)
    values = np.array([9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 6.0])
    assert end(Series(key="", steps=steps, values=values)) == 3.0
    short = Series(key="", steps=steps[:5], values=values[:5])  # half of five: two
    assert end(short) == 5.0
    assert end(Series(key="", steps=steps[:1], values=values[:1])) == 9.0
    assert math.isnan(end(Series(key="", steps=steps[:0], values=values[:0])))


def test_an_interval_is_students() -> None:
    three = Estimate.of([1.0, 2.0, 6.0])  # standard deviation 7 ** 0.5
    assert three.mean == 3.0
    assert three.half == pytest.approx(T_2 * (7 / 3) ** 0.5, rel=1e-4)
    one = Estimate.of([0.4, math.nan])
    assert one.mean == 0.4
    assert math.isnan(one.half)


def test_gains_are_paired_and_the_beaten_are_named(runs: list[Run]) -> None:
    first, second, third = standings(group(runs))
    assert (first.average.mean, first.passed.mean) == pytest.approx((0.41, 0.5))
    assert first.average_gain.mean == first.average_gain.half == 0.0
    assert (second.average.mean, second.passed.mean) == pytest.approx((0.47, 0.7))
    assert second.average_gain.mean == pytest.approx(0.06)
    # differences 0.05 and 0.07: standard error 0.01, where the arms' own errors are 0.01 and 0.02
    assert second.average_gain.half == pytest.approx(T_1 * 0.01, rel=1e-4)
    assert third.average_gain.mean == pytest.approx(-0.01)  # seed 1 against seed 1
    assert third.passed_gain.mean == pytest.approx(0.25)
    assert math.isnan(third.average_gain.half)
    assert [one.beaten_by for one in (first, second, third)] == [("b,x=1",), (), ()]
    assert second.entropy.mean == pytest.approx(0.1)


def test_equal_arms_do_not_beat_each_other(tmp_path: Path) -> None:
    for arm in ("a", "b"):
        write(tmp_path, arm, 0, [0.2, 0.4], [0.5, 0.6], 0.1)
    assert [one.beaten_by for one in standings(group(load_runs([tmp_path])))] == [(), ()]


def test_the_charts_have_a_dot_an_arm_and_a_line_through_a_sweep(runs: list[Run]) -> None:
    across, kept = frontier_charts(group(runs))
    dots = {t.label: (float(t.x[0]), float(t.y[0])) for t in across.series if t.kind == "dots"}
    assert dots["a"] == pytest.approx((0.41, 0.5))
    assert dots["b,x=2"] == pytest.approx((0.41, 0.75))
    (edge,) = (trace for trace in across.series if trace.kind == "dashed")
    assert edge.x.tolist() == pytest.approx([0.41, 0.47])  # from less accuracy to more
    assert edge.y.tolist() == pytest.approx([0.75, 0.7])
    (sweep,) = (trace for trace in kept.series if trace.label == "b")
    assert sweep.x.tolist() == pytest.approx([0.1, 0.2])
    assert (across.x_label, across.y_label, kept.y_label) == ("avg@8", "pass@8", "avg@8")


def test_the_table_lines_up_in_80_columns(runs: list[Run]) -> None:
    console = Console(width=80, record=True, highlight=False)
    console.print(frontier_table(runs))
    for line in frontier_lines(runs):
        console.print(line)
    text = console.export_text()
    assert re.search(r"a +41\.0 \+-12\.7 +50\.0 \+-0\.0 +0\.050 \+-0\.000 +\+0\.0 \+-0\.0", text)
    assert re.search(r"b,x=1 +47\.0 \+-25\.4 .* \+6\.0 \+-12\.7 +\+20\.0 \+-0\.0", text)
    assert re.search(r"b,x=2 +41\.0 +75\.0 +0\.200 +-1\.0 +\+25\.0", text)
    assert "no other arm has more of both: b,x=1, b,x=2" in text
    html = render(runs)
    assert html.index("The frontier") < html.index("Entropy and reward")
    assert "pass@8 against avg@8" in html
