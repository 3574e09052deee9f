"""Scores from samples: everything reported can be computed again from the record."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from isentrope.evaluation.estimators import (
    Comparison,
    Interval,
    avg_at_k,
    bootstrap_interval,
    compare_paired,
    maj_at_k,
    pass_at_k,
)
from isentrope.evaluation.samples import Sample
from isentrope.verifiers.verdict import RIGHT_SCORE

__all__ = ["Summary", "compare", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The scores of one benchmark.

    `average` is avg@k: the mean over problems of the mean score of their k samples. `passes` are
    unbiased pass@k. `majority` is maj@k. Entropies are in nats at temperature 1: over all tokens
    alike, and over samples of their token means (the paper's H).
    """

    benchmark: str
    problems: int
    k: int
    samples: int
    average: Interval
    passes: dict[int, Interval]
    majority: Interval
    entropy_token_mean: float
    entropy_sequence_mean: float
    length_mean: float
    truncated: float
    outcomes: dict[str, int]

    def record(self) -> dict[str, object]:
        """The scores as JSON; None for what is not known."""
        plain: dict[str, object] = {
            "source": self.benchmark,
            "k": self.k,
            "problems": self.problems,
            "samples": self.samples,
            "reward/avg": self.average.mean,
            "reward/avg_low": self.average.low,
            "reward/avg_high": self.average.high,
            "reward/pass": self.passes[max(self.passes)].mean,
            "reward/maj": self.majority.mean,
            "entropy/token_mean": self.entropy_token_mean,
            "entropy/sequence_mean": self.entropy_sequence_mean,
            "length/mean": self.length_mean,
            "truncated": self.truncated,
            "outcomes": self.outcomes,
            "pass": {str(k): interval.mean for k, interval in self.passes.items()},
        }
        return {key: None if value != value else value for key, value in plain.items()}


def summarise(samples: Sequence[Sample], *, seed: int = 0) -> Summary:
    """The scores of one benchmark's samples. A sample without a score (None) is in no score."""
    groups = by_problem(samples)
    k = max(len(group) for group in groups.values())
    judged = {
        problem: [sample for sample in group if sample.score is not None]
        for problem, group in groups.items()
    }
    ks = [n for n in (2**power for power in range(k.bit_length())) if n < k] + [k]
    lengths = [sample.tokens for sample in samples]
    known = [(s.entropy, s.tokens) for s in samples if s.entropy is not None]
    weights = sum(tokens for _, tokens in known)
    return Summary(
        benchmark=samples[0].benchmark,
        problems=len(groups),
        k=k,
        samples=len(samples),
        average=bootstrap_interval([avg_at_k(scores(g)) for g in judged.values()], seed=seed),
        passes={
            n: bootstrap_interval([pass_of(g, n) for g in judged.values()], seed=seed) for n in ks
        },
        majority=bootstrap_interval(
            [maj_at_k([s.vote for s in g], scores(g)) for g in judged.values()], seed=seed
        ),
        entropy_token_mean=sum(e * n for e, n in known) / weights if weights else nan,
        entropy_sequence_mean=float(np.mean([e for e, _ in known])) if known else nan,
        length_mean=float(np.mean(lengths)),
        truncated=float(np.mean([sample.truncated for sample in samples])),
        outcomes=dict(Counter(sample.outcome for sample in samples)),
    )


def compare(first: Sequence[Sample], second: Sequence[Sample], *, seed: int = 0) -> Comparison:
    """Second minus first in avg@k, over the problems (by number and answer) that both have."""
    left, right = by_problem(first), by_problem(second)
    shared = [
        problem
        for problem in left
        if problem in right and left[problem][0].gold == right[problem][0].gold
    ]
    values = [
        [avg_at_k(scores([s for s in side[problem] if s.score is not None])) for problem in shared]
        for side in (left, right)
    ]
    return compare_paired(*values, seed=seed)


def by_problem(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    """Samples of each problem, in the order of samples."""
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda s: (s.problem, s.sample)):
        groups[sample.problem].append(sample)
    return dict(groups)


def scores(samples: Sequence[Sample]) -> list[float]:
    """The scores that are known."""
    return [sample.score for sample in samples if sample.score is not None]


def pass_of(samples: Sequence[Sample], k: int) -> float:
    """pass@k of one problem's samples; `RIGHT_SCORE` says which are right."""
    right = sum(score >= RIGHT_SCORE for score in scores(samples))
    return pass_at_k(len(samples), right, k) if samples else nan
