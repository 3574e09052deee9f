"""Completions as HTML, each token coloured by its entropy or its covariance."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from isentrope.errors import DataError
from isentrope.report.run_files import Table
from isentrope.report.svg import Array

__all__ = ["completions", "pick"]

MOST_TOKENS = 500  # shown of one completion
FULL_COLOR_QUANTILE = 0.99  # one extreme token must not bleach all the others
NEWLINE = "\u21b5\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One row of samples/*.jsonl. The per-token arrays are as long as `tokens`; NaN is missing."""

    step: int | None
    prompt: str
    tokens: tuple[str, ...]
    logprob: Array
    entropy: Array
    covariance: Array
    selected: Array
    advantage: float
    reward: float


@dataclass(frozen=True, slots=True)
class Paint:
    """The values that get the full colour."""

    entropy: float
    covariance: float


def completions(rows: Sequence[Table], name: str) -> str:
    """The HTML of some completions, with one switch for all; `name` is unique on the page."""
    read = [read_completion(row) for row in rows]
    paint = Paint(
        full_color([one.entropy for one in read]), full_color([one.covariance for one in read])
    )
    switch = "".join(
        f'<label><input type="radio" name="paint-{escape(name)}" value="{what}"{checked}> '
        f"{what}</label>"
        for what, checked in (("entropy", " checked"), ("covariance", ""))
    )
    legend = (
        f'<span class="key entropy">0 <i class="ramp"></i> {paint.entropy:.2g} nats and more</span>'
        f'<span class="key covariance">{-paint.covariance:.2g} <i class="ramp"></i> '
        f"{paint.covariance:.2g} and beyond, root scale</span>"
        '<span class="key"><i class="t s">underlined</i> selected by the entropy control</span>'
    )
    shown = "".join(show(one, paint) for one in read)
    return (
        f'<div class="completions"><div class="switch">colour tokens by {switch}{legend}</div>'
        f"{shown}</div>"
    )


def pick(rows: Sequence[Table], count: int) -> list[Table]:
    """At most `count` completions, spread evenly over the first, middle and last sampled step."""
    by_step: dict[object, list[Table]] = {}
    for row in rows:
        by_step.setdefault(row.get("step"), []).append(row)
    steps = list(by_step)
    chosen = list(dict.fromkeys([0, len(steps) // 2, len(steps) - 1])) if steps else []
    share = max(1, count // max(len(chosen), 1))
    picked = [row for index in chosen for row in by_step[steps[index]][:share]]
    return picked[:count]


def read_completion(row: Table) -> Completion:
    """The completion of a row; DataError where its lists disagree in length."""
    tokens = row.get("tokens")
    if not isinstance(tokens, list):
        tokens = [str(row.get("completion") or "")]
    step = row.get("step")
    return Completion(
        step=int(step) if isinstance(step, int | float) else None,
        prompt=str(row.get("prompt") or ""),
        tokens=tuple(str(token) for token in tokens),
        logprob=per_token(row, "logprob", len(tokens)),
        entropy=per_token(row, "entropy", len(tokens)),
        covariance=per_token(row, "covariance", len(tokens)),
        selected=per_token(row, "selected", len(tokens)),
        advantage=scalar(row, "advantage"),
        reward=scalar(row, "reward"),
    )


def per_token(row: Table, key: str, length: int) -> Array:
    """The values of one list, NaN where it or an item is missing."""
    values = row.get(key)
    if values is None:
        return np.full(length, np.nan)
    if not isinstance(values, list) or len(values) != length:
        found = f"{len(values)} values" if isinstance(values, list) else repr(values)
        raise DataError(
            f"a completion of step {row.get('step')} has {length} tokens, but {key} is {found}; "
            "the lists of a row in samples/ must be of one length"
        )
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def scalar(row: Table, key: str) -> float:
    """One number, NaN where it is missing."""
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else np.nan


def full_color(values: Sequence[Array]) -> float:
    """The magnitude that is painted in full: the 99th percentile of all of them."""
    together = np.abs(np.concatenate([*values, np.zeros(0)]))
    together = together[np.isfinite(together)]
    return float(np.quantile(together, FULL_COLOR_QUANTILE)) if together.size else 0.0


def show(one: Completion, paint: Paint) -> str:
    """A completion under its prompt, with its reward and advantage."""
    facts = [f"step {one.step}" if one.step is not None else "step unknown"]
    facts += [
        f"{name} {value:.3g}"
        for name, value in (("reward", one.reward), ("advantage", one.advantage))
        if np.isfinite(value)
    ]
    if np.isfinite(one.entropy).any():
        facts.append(f"mean entropy {np.nanmean(one.entropy):.3g} nats")
    tokens = "".join(
        show_token(one, index, paint) for index in range(len(one.tokens))[:MOST_TOKENS]
    )
    hidden = len(one.tokens) - MOST_TOKENS
    more = f'<span class="more"> {hidden} more tokens</span>' if hidden > 0 else ""
    return (
        f"<article><header>{' &middot; '.join(facts)}</header>"
        f'<div class="prompt">{escape(one.prompt)}</div>'
        f'<div class="tokens">{tokens}{more}</div></article>'
    )


def show_token(one: Completion, index: int, paint: Paint) -> str:
    """One token: colours as percentages in CSS variables, values in its tooltip."""
    entropy, covariance = float(one.entropy[index]), float(one.covariance[index])
    values = {"log-prob": float(one.logprob[index]), "entropy": entropy, "covariance": covariance}
    title = ", ".join(f"{key} {value:.3g}" for key, value in values.items() if np.isfinite(value))
    classes = ["t"]
    if covariance < 0:
        classes.append("n")
    if one.selected[index] == 1:
        classes.append("s")
    style = (
        f"--e:{percentage(entropy, paint.entropy)};"
        # Covariance is heavy-tailed: a root leaves the small ones visible.
        f"--c:{percentage(abs(covariance), paint.covariance, power=0.5)}"
    )
    text = escape(one.tokens[index]).replace("\n", NEWLINE)
    return f'<i class="{" ".join(classes)}" style="{style}" title="{title}">{text}</i>'


def percentage(value: float, full: float, power: float = 1.0) -> int:
    """How much of the full colour a value gets, 0 to 100."""
    if not np.isfinite(value) or full <= 0:
        return 0
    return round(100 * min(max(value / full, 0.0), 1.0) ** power)
