import re

import numpy as np
import pytest

from isentrope.report.figures import smooth
from isentrope.report.svg import (
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Chart,
    Scale,
    Trace,
    draw,
    linear_ticks,
    log_ticks,
    number,
    thinned,
)


def chart(trace: Trace, *, from_zero: bool = False, diagonal: bool = False) -> Chart:
    return Chart(
        title="t",
        x_label="x",
        y_label="y",
        series=(trace,),
        from_zero=from_zero,
        diagonal=diagonal,
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-0.004, 0.001, [-0.004, -0.003, -0.002, -0.001, 0.0, 0.001]),
        (3.0, 207.0, [50.0, 100.0, 150.0, 200.0]),
    ],
)
def test_linear_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert linear_ticks(low, high) == pytest.approx(expected)


def test_log_ticks_add_twos_and_fives_on_a_short_range() -> None:
    assert log_ticks(0.15, 6.0) == pytest.approx([0.2, 0.5, 1.0, 2.0, 5.0])
    assert log_ticks(0.001, 10.0) == pytest.approx([0.001, 0.01, 0.1, 1.0, 10.0])


@pytest.mark.parametrize(
    ("value", "label"),
    [(0.0, "0"), (0.05, "0.05"), (2e-5, "2e-5"), (1500.0, "1,500"), (-0.002, "-0.002")],
)
def test_number(value: float, label: str) -> None:
    assert number(value) == label


def test_scale_maps_the_ends_and_has_no_place_for_a_zero_on_a_log_axis() -> None:
    scale = Scale(0.01, 100.0, 200.0, 0.0, log=True)
    np.testing.assert_allclose(scale(np.array([0.01, 1.0, 100.0, 0.0])), [200, 100, 0, np.nan])


def test_line_spans_the_plot_and_breaks_at_a_missing_value() -> None:
    y = np.array([1.0, 2.0, np.nan, 4.0])
    svg = draw(chart(Trace(label="a", x=np.arange(4.0), y=y)))
    path = re.search(r'class="line" d="([^"]+)"', svg)
    assert path is not None
    starts = re.findall(r"M([\d.]+) ", path[1])
    assert [float(x) for x in starts] == [LEFT, WIDTH - RIGHT]  # one line, one lone point


def test_all_zero_series_gets_an_axis_from_zero_to_one() -> None:
    svg = draw(chart(Trace(label="a", x=np.arange(3.0), y=np.zeros(3)), from_zero=True))
    low, high = svg.split('data-y="')[1].split()[:2]
    assert (float(low), float(high)) == pytest.approx((0.0, 1.06))


def test_diagonal_runs_through_equal_scales() -> None:
    points = Trace(label="a", x=np.array([0.0, 1.0]), y=np.array([2.0, 3.0]), kind="dots")
    svg = draw(chart(points, diagonal=True))
    assert svg.split('data-x="')[1].split()[:2] == svg.split('data-y="')[1].split()[:2]


def test_long_lines_are_thinned_and_keep_their_spikes() -> None:
    y = np.zeros(50_000)
    y[31_234] = 9.0
    x, thin = thinned(np.arange(50_000.0), y)
    assert x.size <= 1000
    assert thin.max() == 9.0


def test_labels_are_escaped_and_the_drawing_stays_in_its_box() -> None:
    svg = draw(chart(Trace(label="<a&b>", x=np.array([1.0, 2.0]), y=np.array([1.0, 2.0]))))
    assert 'data-label="&lt;a&amp;b&gt;"' in svg
    assert f'viewBox="0 0 {WIDTH} {HEIGHT}"' in svg


def test_smooth_is_a_mean_of_neighbours_cut_at_the_ends() -> None:
    values = np.array([0.0, 3.0, 6.0, 9.0])
    np.testing.assert_allclose(smooth(values, 3), [1.5, 3.0, 6.0, 7.5])
