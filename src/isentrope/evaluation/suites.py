"""Which benchmarks, and how each is sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isentrope.errors import ConfigError
from isentrope.tasks.presets import PRESETS

__all__ = ["BENCHMARKS", "SUITES", "Benchmark", "choose_benchmarks"]

GREEDY = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A set of problems with its protocol."""

    name: str
    task: str
    """A preset, or the path of a file."""
    samples: int = 1
    """Completions of each problem."""
    temperature: float = GREEDY
    file: str = ""
    """What the file is usually called; looked for in the data folder."""
    path: str | None = None
    """The file to read; None reads the hub."""
    limit: int | None = None
    """The first problems only."""


def repeated(name: str, task: str, file: str) -> Benchmark:
    """The protocol of small contests: 32 samples at temperature 0.6, averaged."""
    return Benchmark(name=name, task=task, file=file, samples=32, temperature=0.6)


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(name="math500", task="math500", file="math500.jsonl"),
        repeated("aime24", "aime24", "aime24.jsonl"),
        repeated("aime25", "aime25", "aime25.jsonl"),
        repeated("amc", "amc", "amc_numina83.jsonl"),
        Benchmark(name="omni_math", task="omni_math", file="omni_math_rule.jsonl"),
        Benchmark(name="olympiadbench", task="olympiadbench", file="olympiadbench.jsonl"),
        Benchmark(name="minerva_math", task="minerva_math", file="minerva_math.jsonl"),
        Benchmark(name="gsm8k", task="gsm8k", file="gsm8k_test.jsonl"),
    )
}

SUITES = {
    # arXiv 2505.22617, section 4
    "paper": ("math500", "aime24", "aime25", "amc", "omni_math", "olympiadbench", "minerva_math"),
}


def choose_benchmarks(
    names: Sequence[str],
    *,
    data: str | None = None,
    files: Mapping[str, str] | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    limit: int | None = None,
) -> list[Benchmark]:
    """The benchmarks of suites, names and paths, each with the file that it is read from.

    A benchmark's file is the one in `files` under its name, or else the one in the folder `data`
    under its usual name; without both it is read from the hub. `samples`, `temperature` and
    `limit` replace the protocol's.
    """
    files = dict(files or {})
    chosen: dict[str, Benchmark] = {}
    for name in names:
        for member in SUITES.get(name, (name,)):
            benchmark = find(member, data, files)
            chosen[benchmark.name] = replace(
                benchmark,
                samples=samples or benchmark.samples,
                temperature=benchmark.temperature if temperature is None else temperature,
                limit=limit,
            )
    if unused := set(files) - set(chosen):
        raise ConfigError(f"no benchmark of this run is called {', '.join(sorted(unused))}")
    for benchmark in chosen.values():
        if benchmark.samples > 1 and benchmark.temperature == GREEDY:
            raise ConfigError(
                f"{benchmark.name}: {benchmark.samples} greedy samples are all the same; "
                "give a temperature above 0, or one sample"
            )
    return list(chosen.values())


def find(name: str, data: str | None, files: Mapping[str, str]) -> Benchmark:
    """A benchmark by its name, by the name of its preset, or by a path."""
    if name in BENCHMARKS:
        benchmark = BENCHMARKS[name]
        return replace(benchmark, path=path_of(benchmark, data, files))
    if name in PRESETS:
        return Benchmark(name=name, task=name, path=files.get(name))
    if Path(name).is_file():
        return Benchmark(name=Path(name).stem, task=name)
    known = [*SUITES, *BENCHMARKS]
    raise ConfigError(
        f"there is no suite, benchmark or file {name!r}; there are: {', '.join(known)}"
    )


def path_of(benchmark: Benchmark, data: str | None, files: Mapping[str, str]) -> str | None:
    """The file to read a benchmark from, or None for the hub."""
    if benchmark.name in files:
        return files[benchmark.name]
    if data is None:
        return None
    path = Path(data) / benchmark.file
    if not path.is_file():
        raise ConfigError(
            f"{benchmark.name} is not in {data}: there is no {benchmark.file}; "
            f"name the file with --file {benchmark.name} PATH"
        )
    return str(path)
