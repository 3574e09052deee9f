"""Running a benchmark: one JSON line a sample, written as it comes, continued where it stopped."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from isentrope.errors import ConfigError, DataError
from isentrope.evaluation.generation import Completion, Generator
from isentrope.evaluation.suites import Benchmark
from isentrope.runs.json_lines import cut_torn_line, read_objects
from isentrope.tasks.problem import Problem
from isentrope.tasks.registry import make_judge, read_problems
from isentrope.verifiers.comparison import vote_key
from isentrope.verifiers.extraction import extract_answer
from isentrope.verifiers.verdict import Verdict

__all__ = ["Judge", "Sample", "Settings", "check_settings", "read_samples", "run_benchmark"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What all benchmarks of a run share; another value makes another run."""

    model: str
    max_new_tokens: int = 2048
    batch_size: int = 16
    seed: int = 0
    chat: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the record: enough to compute every score again."""

    benchmark: str
    problem: int
    sample: int
    seed: int
    gold: str
    completion: str
    answer: str | None
    vote: str | None
    score: float | None
    outcome: str
    detail: str
    tokens: int
    truncated: bool
    entropy: float | None
    logprob: float | None


class Judge(Protocol):
    """A verifier of either kind."""

    def verify(self, golds: Sequence[str], completions: Sequence[str]) -> list[Verdict]:
        """One verdict a completion."""
        ...


def run_benchmark(
    benchmark: Benchmark,
    settings: Settings,
    generator: Generator,
    folder: Path,
    progress: Callable[[Benchmark, int, int, list[Sample]], None],
) -> list[Sample]:
    """All samples of a benchmark; those that are in the folder already are not drawn again.

    Problems are taken in fixed batches, so that a run that was stopped goes on with the batches,
    and so to the bit with the numbers, that it would have had.
    """
    problems = read_problems(benchmark.task, benchmark.path)[: benchmark.limit]
    path = folder / f"{benchmark.name}.jsonl"
    cut_torn_line(path)
    samples = read_samples(path) if path.exists() else []
    check_same_problems(samples, problems, path)
    known = {(sample.problem, sample.sample) for sample in samples}
    judge, formats = make_judge(benchmark.task)
    work = [(n, s) for n in range(len(problems)) for s in range(benchmark.samples)]
    with path.open("a", encoding="utf-8") as file:
        for start in range(0, len(work), settings.batch_size):
            batch = work[start : start + settings.batch_size]
            if not known.issuperset(batch):
                drawn = draw(batch, problems, benchmark, settings, generator, judge, formats)
                new = [s for s in drawn if (s.problem, s.sample) not in known]
                file.writelines(json.dumps(asdict(sample)) + "\n" for sample in new)
                file.flush()
                samples += new
            progress(benchmark, min(start + len(batch), len(work)), len(work), samples)
    wanted = set(work)
    return [sample for sample in samples if (sample.problem, sample.sample) in wanted]


def draw(
    batch: Sequence[tuple[int, int]],
    problems: Sequence[Problem],
    benchmark: Benchmark,
    settings: Settings,
    generator: Generator,
    judge: Judge,
    formats: tuple[str, ...],
) -> Iterator[Sample]:
    """The judged samples of one batch."""
    seeds = [seed_of(settings.seed, benchmark.name, *pair) for pair in batch]
    chosen = [problems[problem] for problem, _ in batch]
    completions = generator.generate(
        [generator.encode(problem.prompt) for problem in chosen],
        seeds,
        temperature=benchmark.temperature,
        max_new_tokens=settings.max_new_tokens,
    )
    texts = [generator.decode(completion.token_ids) for completion in completions]
    verdicts = judge.verify([problem.answer for problem in chosen], texts)
    for pair, seed, problem, completion, text, verdict in zip(
        batch, seeds, chosen, completions, texts, verdicts, strict=True
    ):
        answer = extract_answer(text, formats) if formats else None
        entropy, logprob = means(completion)
        yield Sample(
            benchmark=benchmark.name,
            problem=pair[0],
            sample=pair[1],
            seed=seed,
            gold=problem.answer,
            completion=text,
            answer=answer,
            vote=vote_key(answer) if answer is not None else None,
            score=verdict.score,
            outcome=str(verdict.outcome),
            detail=verdict.detail,
            tokens=len(completion.token_ids),
            truncated=completion.truncated,
            entropy=entropy,
            logprob=logprob,
        )


def means(completion: Completion) -> tuple[float | None, float | None]:
    """Mean entropy and log-probability of a completion's tokens; None without a token."""
    if not completion.token_ids:
        return None, None
    return float(np.mean(completion.entropies)), float(np.mean(completion.logprobs))


def seed_of(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """The seed of one sample: the same whatever else is evaluated beside it."""
    text = f"{seed}/{benchmark}/{problem}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def read_samples(path: Path) -> list[Sample]:
    """The samples in a file, without one that a stopped run left unfinished at its end."""
    if not path.exists():
        raise DataError(f"there is no file {path}")
    samples = []
    for number, row in enumerate(read_objects(path), 1):
        try:
            samples.append(Sample(**row))
        except TypeError as error:
            raise DataError(f"{path}, sample {number}: no sample ({error})") from error
    return samples


def check_same_problems(samples: Sequence[Sample], problems: Sequence[Problem], path: Path) -> None:
    """ConfigError if the record is of other problems."""
    for sample in samples:
        if sample.problem < len(problems) and problems[sample.problem].answer != sample.gold:
            raise ConfigError(
                f"{path} is of other problems: number {sample.problem} has the answer "
                f"{sample.gold!r} there and {problems[sample.problem].answer!r} here; give --out"
            )


def check_settings(settings: Settings, benchmarks: Sequence[Benchmark], folder: Path) -> None:
    """Writes the settings into a new folder; ConfigError if the folder is of other settings."""
    path = folder / "settings.json"
    protocol = {b.name: {"samples": b.samples, "temperature": b.temperature} for b in benchmarks}
    now = {**asdict(settings), "benchmarks": protocol}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        now["benchmarks"] = {**before["benchmarks"], **protocol}
        changed = [key for key in asdict(settings) if before.get(key) != now[key]]
        changed += [
            name
            for name, value in protocol.items()
            if before["benchmarks"].get(name, value)["temperature"] != value["temperature"]
        ]
        if changed:
            raise ConfigError(
                f"{folder} holds an evaluation with other settings ({', '.join(changed)}); "
                "give --out to start another one"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
