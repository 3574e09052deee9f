"""`isentrope eval`: scores of a model on benchmarks, with intervals."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isentrope.bounds import at_least, finite

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.evaluation.samples import Sample
    from isentrope.evaluation.suites import Benchmark

__all__ = ["Options", "run"]

MIN_WIDTH = 130  # of the table, where the output is no terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Scores of a model on benchmarks, with intervals; continues where it stopped."""

    model: tyro.conf.Positional[str]
    """Model: a hub id, a folder, a GGUF file, or builtin:NAME."""
    suite: tuple[str, ...] = ("paper",)
    """Suites, benchmarks or data files; `paper` is the seven of arXiv 2505.22617."""
    data: str | None = None
    """Folder with the benchmarks' files under their usual names; without it the hub is read."""
    file: dict[str, str] = field(default_factory=dict)
    """Files of single benchmarks: NAME PATH."""
    out: Path | None = None
    """Folder of the record; evaluations/MODEL by default."""
    compare: str | None = None
    """A second model, or the folder of its evaluation: the difference, paired by problem."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """The first N problems of each benchmark only."""
    samples: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Samples a problem, in place of the protocol's."""
    temperature: float | None = None
    """Sampling temperature, in place of the protocol's; 0 is greedy."""
    max_new_tokens: int = 2048
    """Longest completion; longer ones are counted as truncated."""
    batch_size: int = 16
    """Completions drawn at once."""
    seed: int = 0
    """Every sample's own seed is derived from this one."""
    device: str = "auto"
    """auto, cpu or cuda."""
    chat: bool = True
    """Use the model's chat template where it has one."""

    def __post_init__(self) -> None:
        finite(self)
        at_least(self, limit=1, samples=1, temperature=0, max_new_tokens=1, batch_size=1)


def run(options: Options) -> int:
    """Evaluates, prints the table, and writes summary.json."""
    from rich.console import Console

    from isentrope.evaluation.suites import choose_benchmarks

    benchmarks = choose_benchmarks(
        options.suite,
        data=options.data,
        files=options.file,
        samples=options.samples,
        temperature=options.temperature,
        limit=options.limit,
    )
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    folder = options.out or default_folder(options.model)
    first = evaluate(options, options.model, folder, benchmarks)
    print_summaries(console, options.model, first, folder, options.seed)
    if options.compare is not None:
        second = other_samples(options, options.compare, benchmarks)
        print_comparison(console, options, first, second)
    return 0


def evaluate(
    options: Options, model: str, folder: Path, benchmarks: "list[Benchmark]"
) -> "dict[str, list[Sample]]":
    """The samples of each benchmark; the model is loaded once something must be drawn."""
    from isentrope.evaluation.generation import load_generator
    from isentrope.evaluation.samples import Settings, check_settings, run_benchmark

    settings = Settings(
        model=model,
        max_new_tokens=options.max_new_tokens,
        batch_size=options.batch_size,
        seed=options.seed,
        chat=options.chat,
    )
    check_settings(settings, benchmarks, folder)
    generator = load_generator(model, device=options.device, chat=options.chat)
    report = Reporter()
    return {b.name: run_benchmark(b, settings, generator, folder, report) for b in benchmarks}


def other_samples(
    options: Options, other: str, benchmarks: "list[Benchmark]"
) -> "dict[str, list[Sample]]":
    """The samples of the model to compare with, from its record if that is what is named."""
    from isentrope.evaluation.samples import read_samples

    folder = Path(other)
    if (folder / "settings.json").exists():
        return {b.name: read_samples(folder / f"{b.name}.jsonl") for b in benchmarks}
    return evaluate(options, other, default_folder(other), benchmarks)


def default_folder(model: str) -> Path:
    """evaluations/ and the model's name."""
    return Path("evaluations") / model.rstrip("/").replace("/", "--").lstrip("-.")


class Reporter:
    """Says on standard error how far a benchmark is, and the score so far, every few seconds."""

    EVERY_S = 5.0

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self.last = 0.0

    def __call__(
        self, benchmark: "Benchmark", done: int, total: int, samples: "list[Sample]"
    ) -> None:
        """One line, unless there was one a moment ago."""
        from time import monotonic

        if monotonic() - self.last < self.EVERY_S and done < total:
            return
        self.last = monotonic()
        known = [sample.score for sample in samples if sample.score is not None]
        score = f"{100 * sum(known) / len(known):.1f} %" if known else "-"
        self.console.print(f"{benchmark.name}: {done} of {total} samples, so far {score}")


def print_summaries(
    console: "Console", model: str, samples: "dict[str, list[Sample]]", folder: Path, seed: int
) -> None:
    """The table of scores; also written to summary.json."""
    import json

    from rich.table import Table

    from isentrope.evaluation.summary import summarise

    table = Table(title=f"{model}", caption=f"record: {folder}")
    for heading in ("benchmark", "problems", "k", "avg@k %", "95 %", "pass@k %", "maj@k %", "entropy", "tokens", "truncated %"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    records = []
    for group in samples.values():
        summary = summarise(group, seed=seed)
        records.append(summary.record())
        average = summary.average
        table.add_row(
            summary.benchmark,
            str(summary.problems),
            str(summary.k),
            f"{100 * average.mean:.1f}",
            f"{100 * average.low:.1f} to {100 * average.high:.1f}",
            f"{100 * summary.passes[summary.k].mean:.1f}",
            f"{100 * summary.majority.mean:.1f}",
            f"{summary.entropy_sequence_mean:.3f}",
            f"{summary.length_mean:.0f}",
            f"{100 * summary.truncated:.1f}",
        )
    console.print(table)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "summary.jsonl").write_text(text, encoding="utf-8")


def print_comparison(
    console: "Console",
    options: Options,
    first: "dict[str, list[Sample]]",
    second: "dict[str, list[Sample]]",
) -> None:
    """The difference of two models, problem by problem."""
    from rich.table import Table

    from isentrope.evaluation.summary import compare

    table = Table(title=f"{options.compare} minus {options.model}, paired by problem")
    for heading in ("benchmark", "problems", "difference %", "95 %", "p", "better", "worse"):
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    for name in first:
        result = compare(first[name], second[name], seed=options.seed)
        difference = result.difference
        table.add_row(
            name,
            str(difference.problems),
            f"{100 * difference.mean:+.1f}",
            f"{100 * difference.low:+.1f} to {100 * difference.high:+.1f}",
            f"{result.p_value:.3f}",
            str(result.second_better),
            str(result.first_better),
        )
    console.print(table)
