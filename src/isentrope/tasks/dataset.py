"""A task whose problems are the rows of a data set."""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from isentrope.errors import ConfigError, DataError
from isentrope.tasks.presets import Preset, fill
from isentrope.tasks.problem import Problem
from isentrope.tasks.rows import Row, field
from isentrope.verifiers.code import CodeVerifier
from isentrope.verifiers.extraction import extract_answer, last_boxed
from isentrope.verifiers.math import MathVerifier
from isentrope.verifiers.verdict import RIGHT_SCORE, Verdict

__all__ = ["RowTask", "check_prompts", "hold_out", "make_verifier", "problems_of"]

# What a prompt must hold for a model to know where its answer is looked for.
MARKS = {
    "boxed": "\\boxed",
    "answer": "Answer:",
    "line": "Answer:",
    "hash": "####",
    "bold": "**",
    "code": "```",
}


class RowTask:
    """Problems of a data set, in a new seeded order each epoch, with the verifier they need."""

    right_score = RIGHT_SCORE

    def __init__(
        self,
        name: str,
        train: Sequence[Problem],
        test: Sequence[Problem],
        preset: Preset,
        *,
        seed: int = 0,
        workers: int | None = None,
    ) -> None:
        if not train and not test:
            raise DataError(f"{name} has no problem")
        self.name = name
        self.seed = seed
        self._train = list(train)
        self._test = list(test)
        self._epoch = -1
        self._order = np.zeros(0, dtype=np.int64)
        self.verifier: MathVerifier | CodeVerifier | None = None
        if preset.verifier != "own":
            check_prompts([*self._train, *self._test], preset)
            self.verifier = make_verifier(preset, workers)

    def train(self, index: int) -> Problem:
        """The training problem at `index`; each epoch has its own order, drawn from the seed."""
        if not self._train:
            raise DataError(f"{self.name} has no training problem")
        epoch, position = divmod(index, len(self._train))
        if epoch != self._epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._order = generator.permutation(len(self._train))
            self._epoch = epoch
        return self._train[self._order[position]]

    def test(self) -> Sequence[Problem]:
        """The held-out problems."""
        return self._test

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """One verdict per completion, in order."""
        assert self.verifier is not None, "a reward function judges in place of a verifier"
        return self.verifier.verify([problem.answer for problem in problems], completions)


def make_verifier(preset: Preset, workers: int | None = None) -> MathVerifier | CodeVerifier:
    """The verifier that a preset asks for."""
    if preset.verifier == "code":
        return CodeVerifier(workers=workers)
    return MathVerifier(formats=preset.formats, workers=workers)


def problems_of(rows: Iterable[Row], preset: Preset, source: str) -> list[Problem]:
    """The problems that the rows are; a row without text, or without an answer where a verifier
    needs one, is a DataError."""
    problems: list[Problem] = []
    for number, row in enumerate(rows, 1):
        if any(field(row, name) != value for name, value in preset.where if field(row, name)):
            continue
        prompt = prompt_of(row, preset)
        answer = answer_of(row, preset)
        if answer is None and preset.verifier == "own":
            answer = ""
        if prompt is None or answer is None:
            wanted, names, option = (
                ("text", preset.prompts, "prompt")
                if prompt is None
                else ("answer", preset.answers, "answer")
            )
            raise DataError(
                f"{source}, row {number}: no {wanted} in the fields {', '.join(names)}; "
                f"the row has {', '.join(row)}; name the right one with task.options.{option}"
            )
        origin = field(row, "data_source")
        name = origin if isinstance(origin, str) else source
        problems.append(Problem(prompt, answer, name, dict(row)))
    return problems


def prompt_of(row: Row, preset: Preset) -> str | None:
    """The text given to the model: messages as they are, a problem within the template."""
    for name in preset.prompts:
        value = field(row, name)
        if isinstance(value, str) and value.strip():
            return fill(preset.template, value.strip())
        if isinstance(value, list) and value:
            contents = [message["content"] for message in value if isinstance(message, dict)]
            return "\n\n".join(content.strip() for content in contents if content.strip())
    return None


def answer_of(row: Row, preset: Preset) -> str | None:
    """The gold answer as text, which may be empty in the data; None where no field has one."""
    for name in preset.answers:
        value = field(row, name)
        if value is None:
            continue
        text = text_of(value)
        if preset.gold == "hash":
            return extract_answer(text, ("hash",)) or text.strip()
        if preset.gold == "boxed" or name == "solution":
            return (last_boxed(text) or text).strip()
        return text.strip()
    return None


def text_of(value: object) -> str:
    """A field's value as text: a list of answers as one list, tests as JSON."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)


def hold_out(
    problems: Sequence[Problem], count: int, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """Training and held-out problems: `count`, at most a tenth, drawn by seed, in their order."""
    count = min(count, len(problems) // 10)
    drawn = np.random.default_rng([seed, 1]).permutation(len(problems))[:count]
    held = set(drawn.tolist())
    train = [problem for index, problem in enumerate(problems) if index not in held]
    return train, [problems[index] for index in sorted(held)]


def check_prompts(problems: Sequence[Problem], preset: Preset) -> None:
    """ConfigError if a prompt does not ask for what the verifier looks for."""
    formats = ("code",) if preset.verifier == "code" else preset.formats
    marks = [MARKS[name] for name in formats]
    silent = [p for p in problems if not any(mark.lower() in p.prompt.lower() for mark in marks)]
    if preset.verifier == "code":
        silent = [problem for problem in silent if "python" not in problem.prompt.lower()]
    if silent:
        raise ConfigError(
            f"{len(silent)} of {len(problems)} prompts do not ask for {' or '.join(marks)}, where "
            f"the verifier looks for the answer; the first is {silent[0].prompt[:80]!r}. "
            "Change the template, or the formats"
        )
