"""The report: one HTML file that needs nothing else, for one run or for several arms."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import starmap

import numpy as np

from isentrope import __version__
from isentrope.law.trouble import find_troubles
from isentrope.report.arms import Arm, group
from isentrope.report.comparison import arm_sections
from isentrope.report.figures import PHASES, Section, run_sections, speed
from isentrope.report.laws import Reading, early_fit, outlook, read_law, read_law_of_arm
from isentrope.report.run_files import Run, load_samples
from isentrope.report.summary import Change, arm_summary, ceiling_text, verdict
from isentrope.report.svg import Chart, Trace, draw
from isentrope.report.tokens import completions, pick

__all__ = ["render"]

MISSING = "\u2013"


def render(runs: Sequence[Run], *, samples: int = 12) -> str:
    """The HTML of a report with at most `samples` completions of each run (or arm)."""
    if len(runs) == 1:
        return run_page(runs[0], samples)
    return arms_page(group(runs), samples)


def run_page(run: Run, samples: int) -> str:
    """The report of one run."""
    reading = read_law(run)
    early = early_fit(reading)
    sentences = verdict(run, reading, early, outlook(run, reading))
    seed = f", seed {run.seed}" if run.seed is not None else ""
    body = [
        f"<h1>{escape(run.arm)}</h1>",
        f'<p class="sub">{escape(run.path.name)}{seed}, {run.steps} steps; '
        f"{escape(run.record.format)}</p>",
        f'<div class="verdict">{"".join(map(paragraph, sentences))}{troubles(run)}</div>',
        tiles(run, reading),
        notes(run),
        *sections(run_sections(run, reading, early)),
        time_section(run),
        sample_section([("", run)], samples),
        f'<h2>Settings and environment</h2><div class="pairs">{settings(run.config, "config.toml")}'
        f"{settings(run.environment, 'environment.json')}</div>",
    ]
    return document(run.arm, body)


def arms_page(arms: list[Arm], samples: int) -> str:
    """The report of several arms, or of several seeds of one."""
    names = ", ".join(arm.name for arm in arms)
    readings = [read_law_of_arm(arm) for arm in arms]
    count = sum(len(arm.runs) for arm in arms)
    body = [
        f"<h1>{escape(names)}</h1>",
        f'<p class="sub">{count} runs in {len(arms)} arm{"s" if len(arms) > 1 else ""}. '
        "Lines are means over the seeds, bands their range.</p>",
        summary_table(arms, readings),
        *sections(arm_sections(arms, readings)),
        sample_section([(arm.name, arm.runs[0]) for arm in arms], samples),
        differing_settings(arms),
    ]
    return document(names, body)


def document(title: str, body: Iterable[str]) -> str:
    """A whole page around its body."""
    files = resources.files("isentrope.report")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    script = files.joinpath("page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"\n<footer>isentrope {__version__}</footer>\n<script>\n{script}</script>\n</body></html>\n"
    )


def paragraph(sentence: str) -> str:
    """A sentence as HTML."""
    return f"<p>{escape(sentence)}</p>"


def troubles(run: Run) -> str:
    """What went wrong, each with its evidence and what to do."""
    return "".join(
        f'<p><b class="{one.kind}">{escape(one.kind)} from step {one.step}:</b> {escape(one.evidence)}. '
        f'<span class="sub">{escape(one.advice)}.</span></p>'
        for one in find_troubles(run.record)
    )


def tiles(run: Run, reading: Reading) -> str:
    """The four numbers that matter."""
    entropy, average, passed = map(Change.of, (run.entropy, run.reward, run.passed))
    pass_name = run.metric(run.passed) if len(run.passed) else "pass@k"
    ceiling, remark = MISSING, reading.reason
    if reading.usable and reading.law is not None:
        ceiling, _, remark = ceiling_text(reading.law).rstrip(")").partition(" (")
    return "".join(
        [
            '<div class="tiles">',
            tile("entropy H, nats", arrow(entropy, "{:.3f}", 1), lost(entropy)),
            tile(
                f"{run.metric(run.reward)}",
                arrow(average, "{:.1f} %", 100),
                gained(average),
            ),
            tile(pass_name, arrow(passed, "{:.1f} %", 100), gained(passed)),
            tile("ceiling at H = 0", ceiling, remark),
            "</div>",
        ]
    )


def notes(run: Run) -> str:
    """What the reader of the log skipped or wants known."""
    return "".join(f'<p class="missing">Note: {escape(note)}.</p>' for note in run.record.notes)


def tile(what: str, value: str, more: str) -> str:
    """One number with its name above and a remark below; `value` is HTML."""
    return (
        f'<div class="tile"><div class="what">{escape(what)}</div>'
        f'<div class="value">{value}</div><div class="more">{escape(more)}</div></div>'
    )


def arrow(change: Change, form: str, factor: float) -> str:
    """Start and end as HTML; a dash where it was not measured."""
    if not change.is_known:
        return MISSING
    start, end = form.format(factor * change.start), form.format(factor * change.end)
    return f"<small>{start} &rarr;</small> {end}"


def lost(entropy: Change) -> str:
    """The share of the entropy that is gone, or that came."""
    if not entropy.is_known:
        return "not measured"
    gone = 100 * entropy.lost_share
    return f"{gone:.0f} % gone" if gone >= 0 else f"{-gone:.0f} % more"


def gained(change: Change) -> str:
    """The difference in percentage points."""
    if not change.is_known:
        return "not measured"
    return f"{100 * (change.end - change.start):+.1f} points"


def sections(parts: Iterable[Section]) -> list[str]:
    """Sections of figures; what has no figure is named in a line at the end."""
    html: list[str] = []
    absent: dict[str, list[str]] = {}
    for title, charts in parts:
        drawn = [figure(chart) for chart in charts if not chart.is_empty]
        if drawn:
            html.append(f'<h2>{escape(title)}</h2><div class="figures">{"".join(drawn)}</div>')
        for chart in charts:
            if chart.is_empty:
                absent.setdefault(chart.absent, []).append(chart.title)
    for reason, titles in absent.items():
        names = escape("; ".join(titles))
        html.append(f'<p class="missing">Without a figure, {escape(reason)}: {names}.</p>')
    return html


def figure(chart: Chart) -> str:
    """A chart with its title, legend and note."""
    shown = [one for one in chart.series if one.in_legend and not one.is_empty]
    legend = "".join(legend_entry(one) for one in shown) if len(shown) > 1 else ""
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    return (
        f'<figure><h3>{escape(chart.title)}</h3><div class="unit">{escape(chart.y_label)}</div>'
        f'<div class="legend">{legend}</div>{draw(chart)}{note}</figure>'
    )


def legend_entry(series: Trace) -> str:
    """Swatch and label."""
    color = "neutral" if series.color < 0 else f"c{series.color % 8}"
    return f'<span class="{color}"><i class="{series.kind}"></i>{escape(series.label)}</span>'


def summary_table(arms: list[Arm], readings: list[Reading]) -> str:
    """One row an arm."""
    first = arms[0].runs[0]
    heads = [
        "seeds", "steps", "H, nats", f"{first.metric(first.reward)}, %",
        f"{first.metric(first.passed)}, %", "a", "b", "R<sup>2</sup>", "ceiling, %",
        "tokens selected, %", "minutes",
    ]  # fmt: skip
    head = "".join(f'<th class="number">{name}</th>' for name in heads)
    rows = "".join(starmap(summary_row, zip(arms, readings, strict=True)))
    refused = "".join(
        f"<p>{escape(arm.name)}: no ceiling; {escape(reading.reason)}.</p>"
        for arm, reading in zip(arms, readings, strict=True)
        if not reading.usable
    )
    return (
        f'<div class="scroll"><table class="summary"><thead><tr><th>arm</th>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><div class="missing">{refused}</div>'
    )


def summary_row(arm: Arm, reading: Reading) -> str:
    """The cells of one arm."""
    one, law = arm_summary(arm), reading.law
    fitted = [law.a, law.b, law.r2] if law is not None else [np.nan] * 3
    ceiling = law.ceiling if law is not None and reading.usable else np.nan
    cells = [
        str(len(arm.runs)),
        str(one.steps),
        arrow(one.entropy, "{:.3f}", 1),
        arrow(one.average, "{:.1f}", 100),
        arrow(one.passed, "{:.1f}", 100),
        *(fixed(value, digits) for value, digits in zip(fitted, (3, 3, 2), strict=True)),
        fixed(100 * ceiling, 1),
        fixed(100 * one.selected_fraction, 2),
        fixed(one.minutes, 1),
    ]
    name = f'<th class="c{arm.color % 8}"><i class="swatch"></i>{escape(arm.name)}</th>'
    return f"<tr>{name}{''.join(f'<td class=number>{cell}</td>' for cell in cells)}</tr>"


def time_section(run: Run) -> str:
    """Time by phase, over steps and in all."""
    seconds = {label: float(run.get(key).values.sum()) for key, (label, _) in PHASES.items()}
    steps = len(run.get("time/step_s"))
    total = max(float(run.get("time/step_s").values.sum()), sum(seconds.values()))
    if not steps or total <= 0:
        return '<p class="missing">Without a figure, not logged: time by phase.</p>'
    seconds["other"] = total - sum(seconds.values())
    rows = "".join(
        f'<tr><th>{phase}</th><td class="number">{spent / 60:.1f}</td>'
        f'<td class="number">{spent / steps:.2f}</td><td class="number">{100 * spent / total:.0f} %</td>'
        f'<td class="bars"><i class="bar" style="width:{100 * spent / total:.1f}%"></i></td></tr>'
        for phase, spent in seconds.items()
    )
    tokens = run.get("tokens_per_s").values
    rate = f", {np.median(tokens):,.0f} tokens per second (median)" if tokens.size else ""
    return (
        f'<h2>Time</h2><div class="figures">{figure(speed(run))}<figure><h3>Time by phase</h3>'
        '<table class="summary"><thead><tr><th>phase</th><th class="number">minutes</th>'
        '<th class="number">s per step</th><th class="number">share</th><th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f"<figcaption>{total / 60:.1f} minutes in all{rate}.</figcaption></figure></div>"
    )


def sample_section(named: Sequence[tuple[str, Run]], count: int) -> str:
    """Coloured completions of each run, or a line that says that there are none."""
    parts: list[str] = []
    for index, (name, run) in enumerate(named):
        rows = pick(load_samples(run), count)
        content = (
            completions(rows, f"{index}")
            if rows
            else '<p class="missing">No completions were saved in samples/.</p>'
        )
        title = f"<summary>{escape(name)}</summary>" if name else ""
        parts.append(f"<details>{title}{content}</details>" if name else content)
    return "<h2>Completions</h2>" + "".join(parts)


def settings(content: Mapping[str, object], title: str) -> str:
    """A table of nested settings, one dotted key a row."""
    rows = "".join(
        f'<tr><th>{escape(key)}</th><td class="code">{escape(value)}</td></tr>'
        for key, value in flat(content).items()
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else '<p class="missing">not saved</p>'
    return f"<div><h3>{escape(title)}</h3>{table}</div>"


def differing_settings(arms: list[Arm]) -> str:
    """The settings in which the arms differ, one column an arm; seeds aside."""
    configs = [flat(arm.runs[0].config) for arm in arms]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    rows = "".join(
        f"<tr><th>{escape(key)}</th>"
        + "".join(f'<td class="code">{escape(one.get(key, MISSING))}</td>' for one in configs)
        + "</tr>"
        for key in keys
        if key not in ("name", "seed") and len({one.get(key) for one in configs}) > 1
    )
    shared = settings(arms[0].runs[0].environment, "environment.json of the first run")
    if not rows:
        return f"<h2>Environment</h2>{shared}"
    head = "".join(f"<th>{escape(arm.name)}</th>" for arm in arms)
    return (
        f'<h2>Settings that differ</h2><div class="scroll"><table><thead><tr><th></th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
        f"<h2>Environment</h2>{shared}"
    )


def flat(content: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested tables as dotted keys with their values as text."""
    found: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat({str(inner): item for inner, item in value.items()}, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else repr(value)
    return found


def fixed(value: float, digits: int) -> str:
    """A number with a fixed count of decimals; a dash where it is missing."""
    return f"{value:.{digits}f}" if np.isfinite(value) else MISSING
