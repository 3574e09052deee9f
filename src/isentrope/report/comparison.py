"""The figures of several runs: one colour an arm, mean and range over its seeds."""

from collections.abc import Callable

from isentrope.report.arms import ENTROPY, Arm, over_seeds
from isentrope.report.figures import Section, law_chart, samples_of, smooth
from isentrope.report.load import Rows, RunFolder
from isentrope.report.summary import arm_law
from isentrope.report.svg import Chart, Series

__all__ = ["arm_sections"]

Table = Callable[[RunFolder], Rows]
SMOOTHED_SHARE = 20


def arm_sections(arms: list[Arm]) -> list[Section]:
    """All figures of several arms, by section."""
    k = samples_of(arms[0].runs[0].evaluated())
    return [
        (
            "Entropy and reward",
            [
                chart(arms, "Entropy, sequence mean", ENTROPY, "nats", from_zero=True),
                chart(arms, f"Accuracy, avg@{k}", "reward/avg", "mean reward", rows=evaluations),
                law_chart([(arm.name, arm.color, *arm_law(arm)) for arm in arms]),
                chart(arms, f"pass@{k}", "reward/pass", "share of problems", rows=evaluations),
                chart(arms, "Entropy, token mean", "entropy/token_mean", "nats", from_zero=True),
                chart(arms, "Training reward", "reward/mean", "mean reward"),
            ],
        ),
        (
            "Where the entropy goes",
            [
                chart(arms, "Covariance, mean", "covariance/mean", "covariance", from_zero=True),
                chart(arms, "Covariance, mean of the top 0.2 %", "covariance/top_0.002",
                      "covariance, log scale", y_log=True),
                chart(arms, "Entropy change of a step, measured", "entropy_change/measured",
                      "nats", from_zero=True),
                chart(arms, "Tokens selected", "selected/fraction", "fraction", from_zero=True),
            ],
        ),
        (
            "Samples and optimization",
            [
                chart(arms, "Completion length", "length/mean", "tokens", from_zero=True),
                chart(arms, "Truncated completions", "truncated", "fraction", from_zero=True),
                chart(arms, "Groups all right", "groups/all_right", "fraction", from_zero=True),
                chart(arms, "Gradient norm", "grad_norm", "L2 norm, log scale", y_log=True),
                chart(arms, "KL from the sampling policy", "kl/behaviour", "nats", from_zero=True),
                chart(arms, "Seconds of a step", "time/step_s", "seconds", from_zero=True),
            ],
        ),
    ]  # fmt: skip


def chart(
    arms: list[Arm],
    title: str,
    key: str,
    y_label: str,
    *,
    rows: Table | None = None,
    from_zero: bool = False,
    y_log: bool = False,
) -> Chart:
    """One metric of all arms over steps."""
    take = rows or metrics
    return Chart(
        title=title,
        x_label="step",
        y_label=y_label,
        from_zero=from_zero,
        y_log=y_log,
        series=tuple(arm_series(arm, key, take) for arm in arms),
    )


def arm_series(arm: Arm, key: str, rows: Table) -> Series:
    """Mean over the seeds with their range; metrics of every step as running means."""
    spread = over_seeds([rows(run) for run in arm.runs], key)
    window = spread.step.size // SMOOTHED_SHARE
    curves = (spread.mean, spread.low, spread.high)
    if window >= 3:
        curves = tuple(smooth(curve, window) for curve in curves)
    has_range = len(arm.runs) > 1
    return Series(
        label=arm.name,
        x=spread.step,
        y=curves[0],
        low=curves[1] if has_range else None,
        high=curves[2] if has_range else None,
        color=arm.color,
    )


def metrics(run: RunFolder) -> Rows:
    """The rows of every step."""
    return run.metrics


def evaluations(run: RunFolder) -> Rows:
    """The evaluations on the first data set."""
    return run.evaluated()
