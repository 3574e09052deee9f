"""The figures of one run. Each function takes what was read from files and returns a `Chart`."""

import numpy as np

from isentrope.law.fit import Law
from isentrope.report.arms import ENTROPY, pairs
from isentrope.report.load import Rows, RunFolder, column
from isentrope.report.svg import Array, Chart, Mark, Series

__all__ = ["Section", "law_chart", "run_sections", "smooth", "speed"]

Section = tuple[str, list[Chart]]

STEP = "step"
TOP_SHARES = {
    # key: (label, colour)
    "covariance/top_0.0002": ("top 0.02 %", 1),
    "covariance/top_0.002": ("top 0.2 %", 4),
    "covariance/top_0.02": ("top 2 %", 2),
    "covariance/top_0.2": ("top 20 %", 0),
    "covariance/top_0.5": ("top 50 %", 3),
}
SMOOTHED_SHARE = 20  # the running mean spans this part of a run: one twentieth


def run_sections(run: RunFolder, law: Law | None) -> list[Section]:
    """All figures of one run, by section; figures of what was not logged are left empty."""
    return [
        ("Entropy and reward", [entropy(run), reward(run), law_figure(run, law)]),
        ("Where the entropy goes", [covariance(run), top_shares(run), change(run), changes(run)]),
        ("Samples and diversity", [pass_at_k(run), groups(run), lengths(run), truncation(run)]),
        ("Optimization", [gradient(run), clipping(run), kl(run), selection(run)]),
    ]


def entropy(run: RunFolder) -> Chart:
    """H over steps, both aggregations, and H on the evaluation's problems."""
    evaluated = run.evaluated()
    return Chart(
        title="Entropy",
        x_label="step",
        y_label="nats",
        from_zero=True,
        series=(
            *noisy(run.metrics, ENTROPY, "sequence mean, training prompts", 0),
            *noisy(run.metrics, "entropy/token_mean", "token mean, training prompts", 1),
            dots(evaluated, ENTROPY, "sequence mean, test problems", 0),
        ),
        note="Full-vocabulary entropy at temperature 1, before group filtering. Sequence mean: over "
        "the tokens of a response, then over responses (the paper's H). Token mean: all tokens alike.",
    )


def reward(run: RunFolder) -> Chart:
    """R over steps on every data set with its interval, and the training reward."""
    series = [*noisy(run.metrics, "reward/mean", "training reward", -1)]
    for index, source in enumerate(run.sources):
        rows = run.evaluated(source)
        series.append(
            Series(
                label=f"{source or 'evaluation'}, avg@{samples_of(rows)}",
                x=column(rows, STEP),
                y=column(rows, "reward/avg"),
                low=column(rows, "reward/avg_low"),
                high=column(rows, "reward/avg_high"),
                color=index,
            )
        )
    return Chart(
        title="Reward",
        x_label="step",
        y_label="mean reward",
        series=tuple(series),
        note="The band is the 95 % bootstrap interval over problems. The training reward is of the "
        "step's own prompts, sampled for training.",
    )


def law_figure(run: RunFolder, law: Law | None) -> Chart:
    """R against H of one run with the fitted law."""
    entropy_values, reward_values = pairs(run)[1:]
    return law_chart([("one evaluation", 0, entropy_values, reward_values, law)])


def law_chart(fits: list[tuple[str, int, Array, Array, Law | None]]) -> Chart:
    """R against H with R = -a e^H + b, for (label, colour, H, R, law) of each arm or run."""
    series: list[Series] = []
    marks: list[Mark] = []
    for label, color, entropy_values, reward_values, law in fits:
        series.append(
            Series(label=label, x=entropy_values, y=reward_values, color=color, kind="dots")
        )
        if law is None:
            continue
        usable = law.usable
        start = 0.0 if usable else law.entropy_range[0]
        h = np.linspace(start, law.entropy_range[1], 80)
        series.append(
            Series(
                label="fit" if len(fits) == 1 else f"{label}, fit",
                x=h,
                y=law.predict(h),
                color=color if len(fits) > 1 else 1,
                kind="line" if usable else "dashed",
                in_legend=len(fits) == 1,
            )
        )
        if usable:
            ceiling = f"ceiling {100 * law.ceiling:.1f} %"
            marks.append(Mark(axis="y", value=law.ceiling, label=ceiling, color=color))
    return Chart(
        title="The law: R = -a exp(H) + b",
        x_label="entropy H, nats (sequence mean)",
        y_label="mean reward R",
        series=tuple(series),
        marks=tuple(marks) if len(fits) == 1 else (),
        note="H and R of one evaluation belong to the same policy. A run moves from right to left; "
        "where the curve meets H = 0 is the ceiling b - a. A dashed curve is a fit that is not trusted.",
    )


def covariance(run: RunFolder) -> Chart:
    """Mean covariance over all tokens, over steps."""
    return Chart(
        title="Covariance, mean over all tokens",
        x_label="step",
        y_label="covariance",
        from_zero=True,
        series=tuple(noisy(run.metrics, "covariance/mean", "mean covariance", 0)),
        note="Centred log-probability times centred advantage. Above zero the update lowers entropy, "
        "below zero it raises it.",
    )


def top_shares(run: RunFolder) -> Chart:
    """Mean covariance of the top parts of the tokens, on a log scale."""
    series = [
        part
        for key, (label, color) in TOP_SHARES.items()
        for part in noisy(run.metrics, key, label, color)
    ]
    return Chart(
        title="Covariance, mean of the top shares",
        x_label="step",
        y_label="covariance, log scale",
        y_log=True,
        series=tuple(series),
        note="A few tokens carry most of it: these are the ones that Clip-Cov and KL-Cov act on.",
    )


def change(run: RunFolder) -> Chart:
    """Predicted and measured entropy change over steps."""
    return Chart(
        title="Entropy change of a step",
        x_label="step",
        y_label="nats",
        from_zero=True,
        series=(
            *noisy(run.metrics, "entropy_change/measured", "measured", 0),
            *noisy(run.metrics, "entropy_change/predicted", "predicted", 1),
        ),
        note="Measured on the same states before and after the update of the step; predicted to first "
        "order from the covariance.",
    )


def changes(run: RunFolder) -> Chart:
    """Measured against predicted entropy change, one dot a step."""
    predicted = column(run.metrics, "entropy_change/predicted")
    measured = column(run.metrics, "entropy_change/measured")
    both = np.isfinite(predicted) & np.isfinite(measured)
    x, y = predicted[both], measured[both]
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
        series=(Series(label="one step", x=x, y=y, kind="dots"),),
        note=f"{agreement}On the dashed diagonal the prediction is exact.",
    )


def pass_at_k(run: RunFolder) -> Chart:
    """pass@k beside avg@k."""
    rows = run.evaluated()
    samples = samples_of(rows)
    return Chart(
        title=f"pass@{samples} beside avg@{samples}",
        x_label="step",
        y_label="share of problems",
        series=(
            line(rows, "reward/pass", f"pass@{samples}: at least one of {samples} right", 2),
            line(rows, "reward/avg", f"avg@{samples}: mean over samples", 0),
        ),
        note="When avg rises while pass falls, the policy concentrates on what it could already do.",
    )


def groups(run: RunFolder) -> Chart:
    """Groups without signal."""
    return Chart(
        title="Groups without signal",
        x_label="step",
        y_label="fraction of groups",
        from_zero=True,
        series=(
            *noisy(run.metrics, "groups/all_right", "all right", 2),
            *noisy(run.metrics, "groups/all_wrong", "all wrong", 1),
        ),
        note="Groups of equal rewards have zero advantage: they add nothing to the update.",
    )


def lengths(run: RunFolder) -> Chart:
    """Lengths of completions."""
    return Chart(
        title="Completion length",
        x_label="step",
        y_label="tokens",
        from_zero=True,
        series=(
            *noisy(run.metrics, "length/mean", "mean", 0),
            *noisy(run.metrics, "length/max", "longest", -1),
        ),
    )


def truncation(run: RunFolder) -> Chart:
    """Truncated completions."""
    return Chart(
        title="Truncated completions",
        x_label="step",
        y_label="fraction",
        from_zero=True,
        series=(
            *noisy(run.metrics, "truncated", "training", 1),
            line(run.evaluated(), "truncated", "evaluation", 0),
        ),
        note="Completions that reached the length limit before they ended.",
    )


def gradient(run: RunFolder) -> Chart:
    """Norm of the gradient before clipping."""
    return Chart(
        title="Gradient norm",
        x_label="step",
        y_label="L2 norm, log scale",
        y_log=True,
        series=tuple(noisy(run.metrics, "grad_norm", "before clipping", 0)),
    )


def clipping(run: RunFolder) -> Chart:
    """Share of tokens that the ratio clip cut."""
    return Chart(
        title="Clipped by the ratio",
        x_label="step",
        y_label="fraction of tokens",
        from_zero=True,
        series=tuple(noisy(run.metrics, "clip/fraction", "clip fraction", 0)),
    )


def kl(run: RunFolder) -> Chart:
    """Distances from the sampling policy and from the reference."""
    return Chart(
        title="KL divergence",
        x_label="step",
        y_label="nats per token",
        from_zero=True,
        series=(
            *noisy(run.metrics, "kl/behaviour", "from the sampling policy", 0),
            *noisy(run.metrics, "kl/reference", "from the reference", 1),
        ),
    )


def selection(run: RunFolder) -> Chart:
    """Share of tokens that the covariance control selected."""
    return Chart(
        title="Tokens selected by the entropy control",
        x_label="step",
        y_label="fraction of tokens",
        from_zero=True,
        series=tuple(noisy(run.metrics, "selected/fraction", "selected", 0)),
    )


def speed(run: RunFolder) -> Chart:
    """Seconds of a step by phase."""
    phases = {"rollout": 0, "update": 1, "verify": 2, "evaluate": 3}
    return Chart(
        title="Seconds of a step",
        x_label="step",
        y_label="seconds",
        from_zero=True,
        series=tuple(
            part
            for phase, color in phases.items()
            for part in noisy(run.metrics, f"time/{phase}_s", phase, color)
        ),
    )


def noisy(rows: Rows, key: str, label: str, color: int) -> tuple[Series, ...]:
    """A metric of every step: its values in faint and their running mean."""
    x, y = column(rows, STEP), column(rows, key)
    window = x.size // SMOOTHED_SHARE
    if window < 3 or not np.isfinite(y).all():
        return (Series(label=label, x=x, y=y, color=color),)
    faint = Series(label=label, x=x, y=y, color=color, kind="faint", in_legend=False)
    return faint, Series(label=label, x=x, y=smooth(y, window), color=color)


def smooth(values: Array, window: int) -> Array:
    """The centred running mean over `window` values, over fewer at the ends."""
    half = window // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(values.size)
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, values.size)
    return (total[last] - total[first]) / (last - first)


def line(rows: Rows, key: str, label: str, color: int) -> Series:
    """A metric of the evaluations."""
    return Series(label=label, x=column(rows, STEP), y=column(rows, key), color=color)


def dots(rows: Rows, key: str, label: str, color: int) -> Series:
    """A metric of the evaluations as points."""
    return Series(label=label, x=column(rows, STEP), y=column(rows, key), color=color, kind="dots")


def samples_of(rows: Rows) -> str:
    """The k of avg@k and pass@k, as text."""
    k = next((row["k"] for row in rows if row.get("k") is not None), "k")
    return str(k)
