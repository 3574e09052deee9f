"""Line charts as SVG text: a `Chart` is plain data, `draw` turns it into markup.

Hand-made so that a page follows the reader's light or dark setting (colours are CSS variables),
needs no plotting library, and stays small. Coordinates are those of the view box, WIDTH x HEIGHT.
"""

from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Chart", "Mark", "Scale", "Trace", "draw", "number"]

Array = NDArray[np.float64]
Kind = Literal["line", "dashed", "dots", "faint", "bar"]

WIDTH, HEIGHT = 520, 270
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 12, 40
MOST_POINTS = 1000  # of one line: more than the pixels it is drawn on
DOT_RADIUS = 2.6
UNLABELLED = ("faint", "bar")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One line or cloud of points of a chart; `low` and `high` add a band around it."""

    label: str
    x: Array
    y: Array
    color: int = 0
    """Index into the page's palette; -1 is the neutral grey."""
    kind: Kind = "line"
    low: Array | None = None
    high: Array | None = None
    in_legend: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether no point of it can be drawn."""
        return not bool(np.any(np.isfinite(self.x) & np.isfinite(self.y)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A straight reference line across the chart, with its label."""

    axis: Literal["x", "y"]
    value: float
    label: str
    color: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What one figure shows."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Trace, ...]
    note: str = ""
    """How to read it, one or two sentences below the figure."""
    marks: tuple[Mark, ...] = ()
    y_log: bool = False
    from_zero: bool = False
    """Let both axes start at zero."""
    diagonal: bool = False
    """Draw y = x: where prediction and measurement agree."""

    absent: str = "not logged"
    """Why there is nothing to draw, where there is nothing."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(series.is_empty for series in self.series)


@dataclass(frozen=True, slots=True)
class Scale:
    """A map from values in [low, high] to pixels in [start, end]."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, values: Array) -> Array:
        """Pixels of the values; NaN where a value has no place (a zero on a log scale)."""
        values = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            values = np.log10(np.where(values > 0, values, np.nan))
            low, high = np.log10(low), np.log10(high)
        return self.start + (values - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside the range, about five of them."""
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def draw(chart: Chart) -> str:
    """The `<svg>` element of a chart that is not empty."""
    x_scale, y_scale = scales(chart)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}"'
        f' data-x="{x_scale.low:.6g} {x_scale.high:.6g} {x_scale.start} {x_scale.end} 0"'
        f' data-y="{y_scale.low:.6g} {y_scale.high:.6g} {y_scale.start} {y_scale.end}'
        f' {int(y_scale.log)}">',
        axes(chart, x_scale, y_scale),
        *(draw_mark(mark, x_scale, y_scale) for mark in chart.marks),
        *(draw_band(series, x_scale, y_scale) for series in chart.series),
        *(draw_series(series, x_scale, y_scale) for series in chart.series),
        "</svg>",
    ]
    return "".join(parts)


def scales(chart: Chart) -> tuple[Scale, Scale]:
    """The x and y scale that hold every point, band and mark of a chart."""
    x_values = [series.x for series in chart.series]
    y_values = [part for s in chart.series for part in (s.y, s.low, s.high) if part is not None]
    x_values += [np.array([mark.value]) for mark in chart.marks if mark.axis == "x"]
    y_values += [np.array([mark.value]) for mark in chart.marks if mark.axis == "y"]
    x_all, y_all = np.concatenate(x_values), np.concatenate(y_values)
    if chart.diagonal:
        x_all = y_all = np.concatenate([x_all, y_all])
    zero = chart.from_zero
    x_range = bounds(x_all, log=False, zero=zero, margin=0.02 if zero or chart.diagonal else 0.0)
    y_range = bounds(y_all, log=chart.y_log, zero=zero and not chart.y_log, margin=0.06)
    if chart.diagonal:
        y_range = x_range
    return (
        Scale(*x_range, LEFT, WIDTH - RIGHT),
        Scale(*y_range, HEIGHT - BOTTOM, TOP, log=chart.y_log),
    )


def bounds(values: Array, *, log: bool, zero: bool, margin: float) -> tuple[float, float]:
    """The lowest and highest end of an axis: the data's range and a margin, never empty."""
    values = values[np.isfinite(values)]
    if log:
        values = np.log10(values[values > 0])
    if values.size == 0:
        values = np.array([0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high == low == 0 and zero:
        high = 1.0
    elif high == low:
        half = abs(low) * 0.1 or 1.0
        low, high = low - half, high + half
    pad = (high - low) * margin
    low, high = (low if zero and low == 0.0 else low - pad), high + pad
    return (10.0**low, 10.0**high) if log else (low, high)


def linear_ticks(low: float, high: float, target: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    rough = (high - low) / target
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [float(round(index * step, 12)) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high]; 2 and 5 times them too where the range is short."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    factors = (1, 2, 5) if np.log10(high / low) < 2.5 else (1,)
    values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [value for value in values if low <= value <= high]


def axes(chart: Chart, x_scale: Scale, y_scale: Scale) -> str:
    """Grid lines, tick labels, axis titles and, where asked for, the diagonal."""
    parts = ['<g class="axes">']
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tick in y_scale.ticks():
        y = pixel(y_scale, tick)
        kind = "zero" if tick == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{LEFT} {y}H{right}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y}" dy=".32em" text-anchor="end">{number(tick)}')
        parts.append("</text>")
    for tick in x_scale.ticks():
        x = pixel(x_scale, tick)
        parts.append(f'<path class="tick" d="M{x} {bottom}v4"/>')
        parts.append(f'<text x="{x}" y="{bottom + 17}" text-anchor="middle">{number(tick)}</text>')
    parts.append(f'<path class="frame" d="M{LEFT} {bottom}H{right}"/>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="name" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">')
    parts.append(f"{escape(chart.x_label)}</text>")
    if chart.diagonal:
        parts.append(f'<path class="mark" d="M{LEFT} {bottom}L{right} {TOP}"/>')
    return "".join([*parts, "</g>"])


def draw_mark(mark: Mark, x_scale: Scale, y_scale: Scale) -> str:
    """A dashed line at one value of an axis, labelled at its end."""
    label = escape(mark.label)
    if mark.axis == "y":
        y = pixel(y_scale, mark.value)
        path = f"M{LEFT} {y}H{WIDTH - RIGHT}"
        above = y - 5 if y > TOP + 14 else y + 13
        text = f'<text x="{WIDTH - RIGHT}" y="{above:g}" text-anchor="end">{label}</text>'
    else:
        x = pixel(x_scale, mark.value)
        path = f"M{x} {TOP}V{HEIGHT - BOTTOM}"
        text = f'<text x="{x + 5:g}" y="{TOP + 9}">{label}</text>'
    return f'<g class="marked {color(mark.color)}"><path class="mark" d="{path}"/>{text}</g>'


def draw_band(series: Trace, x_scale: Scale, y_scale: Scale) -> str:
    """The filled area between `low` and `high`, or nothing."""
    if series.low is None or series.high is None:
        return ""
    keep = np.isfinite(series.x) & np.isfinite(series.low) & np.isfinite(series.high)
    x, low, high = series.x[keep], series.low[keep], series.high[keep]
    if x.size < 2:
        return ""
    edge = points(x_scale(np.concatenate([x, x[::-1]])), y_scale(np.concatenate([high, low[::-1]])))
    return f'<polygon class="band {color(series.color)}" points="{edge}"/>'


def draw_series(series: Trace, x_scale: Scale, y_scale: Scale) -> str:
    """The line or the dots of a series."""
    if series.is_empty:
        return ""
    x, y = x_scale(series.x), y_scale(series.y)
    if series.kind == "dots":
        keep = np.isfinite(x) & np.isfinite(y)
        marks = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{DOT_RADIUS}"/>'
            for a, b in zip(x[keep], y[keep], strict=True)
        )
        body = f'<g class="dots">{marks}</g>'
    else:
        body = f'<path class="{series.kind}" d="{line_path(*thinned(x, y))}"/>'
    # The page's script reads a value off the nearest point of every labelled series.
    label = f' data-label="{escape(series.label)}"' if series.kind not in UNLABELLED else ""
    return f'<g class="{color(series.color)}"{label}>{body}</g>'


def thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """At most about MOST_POINTS points: the lowest and highest of every bucket, so spikes stay."""
    if x.size <= MOST_POINTS:
        return x, y
    buckets = np.array_split(np.arange(x.size), MOST_POINTS // 2)
    keep: list[int] = []
    for bucket in buckets:
        finite = bucket[np.isfinite(y[bucket])]
        if finite.size:
            keep += sorted({int(finite[y[finite].argmin()]), int(finite[y[finite].argmax()])})
    return x[keep], y[keep]


def line_path(x: Array, y: Array) -> str:
    """SVG path data with a gap at every missing value; a lone point becomes a dot."""
    parts: list[str] = []
    command = "M"
    for a, b in zip(x, y, strict=True):
        if not (np.isfinite(a) and np.isfinite(b)):
            command = "M"
            continue
        # h0 gives a point without neighbours a length, so that its round cap is drawn.
        parts.append(f"M{a:.1f} {b:.1f}h0" if command == "M" else f"L{a:.1f} {b:.1f}")
        command = "L"
    return "".join(parts)


def points(x: Array, y: Array) -> str:
    """The `points` attribute of a polygon."""
    return " ".join(
        f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(a) and np.isfinite(b)
    )


def pixel(scale: Scale, value: float) -> float:
    """The pixel of one value, rounded."""
    return round(float(scale(np.array([value]))[0]), 1)


def color(index: int) -> str:
    """The CSS class of a palette entry."""
    return "neutral" if index < 0 else f"c{index % 8}"


def number(value: float) -> str:
    """A tick label: as short as it can be, powers of ten for the very small and very large."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        mantissa, _, power = f"{value:.0e}".partition("e")
        return f"{mantissa}e{int(power)}"
    return f"{value:,.6g}" if abs(value) >= 1000 else f"{value:.6g}"
