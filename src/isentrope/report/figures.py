"""The figures of one run. Each function takes what was read from files and returns a `Chart`."""

from collections.abc import Mapping

import numpy as np

from isentrope.report.laws import EarlyFit, Reading
from isentrope.report.run_files import Run
from isentrope.report.svg import Array, Chart, Mark, Trace
from isentrope.runs import Series

__all__ = ["PHASES", "Section", "law_chart", "run_sections", "smooth", "smoothing_window", "speed"]

Section = tuple[str, list[Chart]]
Lines = Mapping[str, tuple[str, int]]
"""Key of the log: (label, colour)."""

TOP_SHARES = {
    "covariance/top_0.0002": ("top 0.02 %", 1),
    "covariance/top_0.002": ("top 0.2 %", 4),
    "covariance/top_0.02": ("top 2 %", 2),
    "covariance/top_0.2": ("top 20 %", 0),
    "covariance/top_0.5": ("top 50 %", 3),
}
PARTS = {
    "covariance/part_rewarded_likely": ("rewarded, likely", 2),
    "covariance/part_punished_unlikely": ("punished, unlikely", 1),
    "covariance/part_rewarded_unlikely": ("rewarded, unlikely", 3),
    "covariance/part_punished_likely": ("punished, likely", 4),
}
PHASES = {
    "time/rollout_s": ("rollout", 0),
    "time/update_s": ("update", 1),
    "time/verify_s": ("verify", 2),
    "time/evaluate_s": ("evaluate", 3),
}
SMOOTHED_SHARE = 20  # the running mean spans this part of a run: one twentieth
CURVE_POINTS = 80


def run_sections(run: Run, reading: Reading, early: EarlyFit | None) -> list[Section]:
    """All figures of one run, by section; figures of what was not logged are left empty."""
    return [
        (
            "Entropy and reward",
            [
                entropy(run),
                reward(run),
                law_chart([("measured", 0, reading)]),
                forecast(reading, early),
            ],
        ),
        ("Where the entropy goes", [covariance(run), top_shares(run), change(run), changes(run)]),
        ("Samples and diversity", [pass_at_k(run), groups(run), lengths(run), truncation(run)]),
        ("Optimization", [gradient(run), clipping(run), kl(run), selection(run)]),
    ]


def entropy(run: Run) -> Chart:
    """H over steps: every aggregation and population that was logged, by name."""
    traces: list[Trace] = []
    colors: dict[str, int] = {}
    for series in run.record.having("entropy"):
        assert series.meaning is not None, "a series with a role has a meaning"
        aggregation = series.meaning.aggregation
        color = colors.setdefault(aggregation, len(colors))
        if series.meaning.population == "train":
            traces += noisy(series, f"{aggregation}, training prompts", color)
        else:
            traces.append(trace(series, f"{aggregation}, test problems", color, is_dots=True))
    return Chart(
        title="Entropy",
        x_label="step",
        y_label="nats" if len(colors) != 1 else f"nats, {next(iter(colors))}",
        from_zero=True,
        series=tuple(traces),
        note="Sequence mean: over the tokens of a response, then over responses (the paper's H). "
        "Token mean: all tokens alike.",
    )


def reward(run: Run) -> Chart:
    """R over steps on every data set with its interval, and the training reward."""
    train = run.first("train")
    traces = [*noisy(train, "training reward", -1)] if train else []
    has_bands = False
    for index, series in enumerate(run.record.having("validation")):
        assert series.meaning is not None, "a series with a role has a meaning"
        low, high = run.get(f"{series.key}_low"), run.get(f"{series.key}_high")
        has_band = len(low) == len(high) == len(series)
        has_bands |= has_band
        traces.append(
            Trace(
                label=run.name_of(series),
                x=series.steps.astype(np.float64),
                y=series.values,
                low=low.values if has_band else None,
                high=high.values if has_band else None,
                color=index,
            )
        )
    return Chart(
        title="Reward",
        x_label="step",
        y_label="mean reward",
        series=tuple(traces),
        note=("The band is the 95 % bootstrap interval over problems. " if has_bands else "")
        + "The training reward is that of the step's own prompts.",
    )


def law_chart(fits: list[tuple[str, int, Reading]]) -> Chart:
    """R against H with R = -a exp(H) + b, for (label, colour, reading) of each arm or run."""
    alone = len(fits) == 1
    traces: list[Trace] = []
    marks: list[Mark] = []
    for label, color, reading in fits:
        points = Trace(label=label, x=reading.entropy, y=reading.reward, color=color, kind="dots")
        traces.append(points)
        law = reading.law
        if law is None:
            continue
        h = np.linspace(
            0.0 if reading.usable else law.entropy_range[0], law.entropy_range[1], CURVE_POINTS
        )
        curve = Trace(
            label="fit" if alone else f"{label}, fit",
            x=h,
            y=law.predict(h),
            color=1 if alone else color,
            kind="line" if reading.usable else "dashed",
            in_legend=alone,
        )
        traces.append(curve)
        if reading.usable and alone:
            text = f"ceiling {100 * law.ceiling:.1f} %"
            marks.append(Mark(axis="y", value=law.ceiling, label=text, color=color))
    return Chart(
        title="The law: R = -a exp(H) + b",
        x_label="entropy H, nats",
        y_label="mean reward R",
        series=tuple(traces),
        marks=tuple(marks),
        note="H and R of a point belong to the same policy. A run moves from right to left; where "
        "the curve meets H = 0 is the ceiling b - a. A dashed curve is a fit without a ceiling.",
    )


def forecast(reading: Reading, early: EarlyFit | None) -> Chart:
    """What the law of the first quarter says about the rest, against what came."""
    title, x_label, y_label = "Forecast from the first quarter", "step", "mean reward R"
    if early is None or not reading.usable:
        absent = "too few points" if reading.usable else "there is no law to forecast with"
        return Chart(title=title, x_label=x_label, y_label=y_label, series=(), absent=absent)
    traces = [
        Trace(label="measured", x=reading.steps, y=reading.reward, kind="dots"),
        Trace(label="foreseen, entropy given", x=reading.steps, y=early.predicted, color=1),
    ]
    if early.foreseen is not None:
        ahead = early.foreseen
        band = Trace(
            label=f"foreseen with the entropy's trend, {100 * ahead.law.level:.0f} % band",
            x=ahead.steps,
            y=ahead.reward,
            low=ahead.low,
            high=ahead.high,
            color=2,
            kind="dashed",
        )
        traces.append(band)
    return Chart(
        title=title,
        x_label=x_label,
        y_label=y_label,
        series=tuple(traces),
        marks=(Mark(axis="x", value=early.last_step, label="fitted up to here"),),
        note=f"The law is fitted to the first {early.points} points. Given the entropy of the "
        f"others, its error is {100 * early.rmse:.1f} points of accuracy (RMSE).",
    )


def covariance(run: Run) -> Chart:
    """Mean covariance over all tokens, and its parts, over steps."""
    return stepwise(
        run,
        "Covariance, mean over all tokens",
        "covariance",
        {"covariance/mean": ("mean covariance", 0), **PARTS},
        note="Centred log-probability times centred advantage. Above zero the update lowers "
        "entropy, below zero it raises it. The parts add up to the mean: choices that are "
        "reinforced (rewarded, likely), mistakes that are unlearnt (punished, unlikely), and the "
        "two that raise entropy.",
    )


def top_shares(run: Run) -> Chart:
    """Mean covariance of the top parts of the tokens, on a log scale."""
    return stepwise(
        run,
        "Covariance, mean of the top shares",
        "covariance, log scale",
        TOP_SHARES,
        y_log=True,
        note="A few tokens carry most of it: these are the ones that Clip-Cov and KL-Cov act on.",
    )


def change(run: Run) -> Chart:
    """Predicted and measured entropy change over steps."""
    return stepwise(
        run,
        "Entropy change of a step",
        "nats",
        {"entropy_change/measured": ("measured", 0), "entropy_change/predicted": ("predicted", 1)},
        note="Measured on the same states before and after the update of the step; predicted to "
        "first order.",
    )


def changes(run: Run) -> Chart:
    """Measured against predicted entropy change, one dot a step."""
    predicted, measured = run.get("entropy_change/predicted"), run.get("entropy_change/measured")
    _, first, second = np.intersect1d(predicted.steps, measured.steps, return_indices=True)
    x, y = predicted.values[first], measured.values[second]
    agreement = ""
    if x.size > 2 and np.ptp(x) > 0 and np.ptp(y) > 0:
        same_sign = 100 * float(np.mean(np.sign(x) == np.sign(y)))
        correlation = float(np.corrcoef(x, y)[0, 1])
        agreement = (
            f"Correlation {correlation:.2f}; the sign agrees in {same_sign:.0f} % of steps. "
        )
    return Chart(
        title="Entropy change, predicted against measured",
        x_label="predicted, nats",
        y_label="measured, nats",
        diagonal=True,
        series=(Trace(label="one step", x=x, y=y, kind="dots"),),
        note=f"{agreement}On the dashed diagonal the prediction is exact.",
    )


def pass_at_k(run: Run) -> Chart:
    """pass@k beside avg@k."""
    traces = [
        trace(series, run.name_of(series), index + 2)
        for index, series in enumerate(run.record.having("pass@k"))
        if series.meaning
    ]
    beside = [
        trace(series, run.name_of(series), index)
        for index, series in enumerate(run.record.having("validation"))
        if series.meaning and traces
    ]
    return Chart(
        title="pass@k beside avg@k",
        x_label="step",
        y_label="share of problems",
        series=(*traces, *beside),
        note="pass@k: at least one of k samples is right. When avg rises while pass falls, the "
        "policy concentrates on what it could already do.",
    )


def groups(run: Run) -> Chart:
    """Groups without signal."""
    return stepwise(
        run,
        "Groups without signal",
        "fraction of groups",
        {"groups/all_right": ("all right", 2), "groups/all_wrong": ("all wrong", 1)},
        note="Groups of equal rewards have zero advantage: they add nothing to the update.",
    )


def lengths(run: Run) -> Chart:
    """Lengths of completions."""
    lines = {"length/mean": ("mean", 0), "length/max": ("longest", -1)}
    return stepwise(run, "Completion length", "tokens", lines)


def truncation(run: Run) -> Chart:
    """Truncated completions."""
    return stepwise(
        run,
        "Truncated completions",
        "fraction",
        {"truncated": ("truncated", 1)},
        note="Completions that reached the length limit before they ended.",
    )


def gradient(run: Run) -> Chart:
    """Norm of the gradient."""
    lines = {"grad_norm": ("before clipping", 0)}
    return stepwise(run, "Gradient norm", "L2 norm before clipping, log scale", lines, y_log=True)


def clipping(run: Run) -> Chart:
    """Share of tokens that the ratio clip cut."""
    lines = {"clip/fraction": ("clip fraction", 0)}
    return stepwise(run, "Clipped by the ratio", "fraction of tokens", lines)


def kl(run: Run) -> Chart:
    """Distances from the sampling policy and from the reference."""
    return stepwise(
        run,
        "KL divergence",
        "nats per token",
        {
            "kl/behaviour": ("from the sampling policy", 0),
            "kl/reference": ("from the reference", 1),
        },
    )


def selection(run: Run) -> Chart:
    """Share of tokens that the covariance control selected."""
    lines = {"selected/fraction": ("selected", 0)}
    return stepwise(run, "Tokens selected by the entropy control", "fraction of tokens", lines)


def speed(run: Run) -> Chart:
    """Seconds of a step by phase."""
    every_step = {key: line for key, line in PHASES.items() if key != "time/evaluate_s"}
    return stepwise(run, "Seconds of a step", "seconds", every_step)


def stepwise(
    run: Run, title: str, y_label: str, lines: Lines, *, note: str = "", y_log: bool = False
) -> Chart:
    """Metrics of every step over steps."""
    traces = [
        part for key, (label, color) in lines.items() for part in noisy(run.get(key), label, color)
    ]
    return Chart(
        title=title,
        x_label="step",
        y_label=y_label,
        from_zero=not y_log,
        y_log=y_log,
        series=tuple(traces),
        note=note,
    )


def noisy(series: Series, label: str, color: int) -> list[Trace]:
    """A metric of every step: its values in faint and their running mean."""
    plain = trace(series, label, color)
    window = smoothing_window(len(series))
    if window < 3:
        return [plain]
    faint = Trace(label=label, x=plain.x, y=plain.y, color=color, kind="faint", in_legend=False)
    return [faint, Trace(label=label, x=plain.x, y=smooth(plain.y, window), color=color)]


def smoothing_window(points: int) -> int:
    """How many points the running mean of a curve spans."""
    return points // SMOOTHED_SHARE


def smooth(values: Array, window: int) -> Array:
    """The centred running mean over `window` values, over fewer at the ends."""
    half = window // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(values.size)
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, values.size)
    return (total[last] - total[first]) / (last - first)


def trace(series: Series, label: str, color: int, *, is_dots: bool = False) -> Trace:
    """A series as a line or as points."""
    return Trace(
        label=label,
        x=series.steps.astype(np.float64),
        y=series.values,
        color=color,
        kind="dots" if is_dots else "line",
    )
