"""The figures of several runs: one colour an arm, mean and range over its seeds."""

from collections.abc import Callable

from isentrope.report.arms import Arm, over_seeds
from isentrope.report.figures import Section, law_chart, smooth, smoothing_window
from isentrope.report.frontier import frontier_charts
from isentrope.report.laws import Reading
from isentrope.report.run_files import Run
from isentrope.report.svg import Chart, Trace
from isentrope.runs import Series

__all__ = ["arm_sections"]

Choose = Callable[[Run], Series]


def arm_sections(arms: list[Arm], readings: list[Reading]) -> list[Section]:
    """All figures of several arms, by section; `readings` are their laws, in the same order."""
    laws = [(arm.name, arm.color, reading) for arm, reading in zip(arms, readings, strict=True)]

    def chart(title: str, key: str, y_label: str, *, y_log: bool = False) -> Chart:
        return compare(arms, title, y_label, lambda run: run.get(key), y_log=y_log)

    return [
        ("The frontier", frontier_charts(arms) if len(arms) > 1 else []),
        (
            "Entropy and reward",
            [
                compare(
                    arms, "Entropy of training prompts", "nats", lambda run: run.training_entropy
                ),
                compare(arms, "Reward", "mean reward", lambda run: run.reward, from_zero=False),
                law_chart(laws),
                compare(
                    arms, "pass@k", "share of problems", lambda run: run.passed, from_zero=False
                ),
                compare(arms, "Entropy of test problems", "nats", lambda run: run.entropy),
                compare(arms, "Training reward", "mean reward", training_reward, from_zero=False),
            ],
        ),
        (
            "Where the entropy goes",
            [
                chart("Covariance, mean", "covariance/mean", "covariance"),
                chart(
                    "Covariance, top 0.2 %", "covariance/top_0.002", "mean, log scale", y_log=True
                ),
                chart("Entropy change of a step, measured", "entropy_change/measured", "nats"),
                chart("Tokens selected", "selected/fraction", "fraction of tokens"),
            ],
        ),
        (
            "Samples and optimization",
            [
                chart("Completion length", "length/mean", "tokens"),
                chart("Truncated completions", "truncated", "fraction"),
                chart("Groups all right", "groups/all_right", "fraction of groups"),
                chart("Gradient norm", "grad_norm", "L2 norm, log scale", y_log=True),
                chart("KL from the sampling policy", "kl/behaviour", "nats per token"),
                chart("Seconds of a step", "time/step_s", "seconds"),
            ],
        ),
    ]


def training_reward(run: Run) -> Series:
    """The mean reward of each step's own prompts."""
    return run.first("train") or run.get("reward/mean")


def compare(
    arms: list[Arm],
    title: str,
    y_label: str,
    choose: Choose,
    *,
    from_zero: bool = True,
    y_log: bool = False,
) -> Chart:
    """One metric of all arms over steps."""
    return Chart(
        title=title,
        x_label="step",
        y_label=y_label,
        from_zero=from_zero and not y_log,
        y_log=y_log,
        series=tuple(arm_trace(arm, choose) for arm in arms),
    )


def arm_trace(arm: Arm, choose: Choose) -> Trace:
    """Mean over the seeds with their range; of long series the running means."""
    spread = over_seeds([choose(run) for run in arm.runs])
    curves = (spread.mean, spread.low, spread.high)
    window = smoothing_window(spread.step.size)
    if window >= 3:
        curves = tuple(smooth(curve, window) for curve in curves)
    has_range = len(arm.runs) > 1
    return Trace(
        label=arm.name,
        x=spread.step,
        y=curves[0],
        low=curves[1] if has_range else None,
        high=curves[2] if has_range else None,
        color=arm.color,
    )
