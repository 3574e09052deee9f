"""Training problems that are in an evaluation set: found, left out, reported."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isentrope.tasks.problem import Problem

__all__ = ["Overlap", "OverlapReport", "remove_overlap"]

SHINGLE = 5  # words in a row that are compared at once
NEAR = (
    0.7  # shared shingles over all shingles, from which two problems with the same numbers are one
)
COMMON = 50  # a shingle in more evaluation problems than this says nothing


@dataclass(frozen=True, slots=True)
class Overlap:
    """One training problem and the evaluation problem that it repeats, by index."""

    train: int
    evaluation: str
    index: int
    likeness: float


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """What was left out, and why."""

    problems: int
    overlaps: tuple[Overlap, ...]

    def lines(self) -> Iterator[str]:
        """The report for a person, one line an evaluation set."""
        yield f"{len(self.overlaps)} of {self.problems} training problems are in an evaluation set"
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for overlap in self.overlaps:
            counts[overlap.evaluation][overlap.likeness < 1.0] += 1
        for name, (exact, near) in counts.items():
            yield f"  {name}: {exact} word for word, {near} nearly"


def remove_overlap(
    train: Sequence[Problem], evaluations: Mapping[str, Sequence[Problem]]
) -> tuple[list[Problem], OverlapReport]:
    """The training problems that no evaluation set has, and what was left out.

    Two problems are the same if their words are, or if their numbers are and they share at least
    0.7 of their runs of five words (Jaccard): other numbers make another problem. What all prompts of a set begin or end with is not compared.
    """
    exact: dict[str, tuple[str, int]] = {}
    index: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    shingles: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    numbers: dict[tuple[str, int], list[str]] = {}
    for name, problems in evaluations.items():
        for number, words in enumerate(bare_words(problems)):
            exact.setdefault(" ".join(words), (name, number))
            shingles[name, number] = shingles_of(words)
            numbers[name, number] = numbers_of(words)
            for shingle in shingles[name, number]:
                index[shingle].append((name, number))
    overlaps = []
    kept = []
    for number, words in enumerate(bare_words(train)):
        found = exact.get(" ".join(words))
        likeness = 1.0
        if found is None:
            found, likeness = nearest(shingles_of(words), index, shingles)
            if found is not None and numbers[found] != numbers_of(words):
                found = None
        if found is None:
            kept.append(train[number])
        else:
            overlaps.append(Overlap(number, found[0], found[1], likeness))
    return kept, OverlapReport(len(train), tuple(overlaps))


def nearest(
    own: set[tuple[str, ...]],
    index: Mapping[tuple[str, ...], list[tuple[str, int]]],
    shingles: Mapping[tuple[str, int], set[tuple[str, ...]]],
) -> tuple[tuple[str, int] | None, float]:
    """The evaluation problem that is most alike and near enough, and how alike; None without."""
    shared: dict[tuple[str, int], int] = defaultdict(int)
    for shingle in own:
        holders = index.get(shingle, [])
        if len(holders) <= COMMON:
            for holder in holders:
                shared[holder] += 1
    if not shared:
        return None, 0.0
    likeness, best = max(
        (count / len(own | shingles[holder]), holder) for holder, count in shared.items()
    )
    return (best, min(likeness, 1.0 - 1e-9)) if likeness >= NEAR else (None, likeness)


def bare_words(problems: Sequence[Problem]) -> list[list[str]]:
    """The words of each problem, without what all prompts begin and end with."""
    prompts = [problem.prompt for problem in problems]
    if len(prompts) < 2:
        return [words_of(prompt) for prompt in prompts]
    start = shared_start(prompts)
    end = shared_start([prompt[::-1] for prompt in prompts])
    return [words_of(prompt[start : len(prompt) - end]) for prompt in prompts]


def shared_start(texts: Sequence[str]) -> int:
    """How many characters all texts begin with alike."""
    first, last = min(texts), max(texts)
    alike = 0
    while alike < min(len(first), len(last)) and first[alike] == last[alike]:
        alike += 1
    return alike


def words_of(text: str) -> list[str]:
    """Words and numbers in lower case, without marks."""
    return re.findall(r"[a-z]+|\d+", text.lower())


def numbers_of(words: Sequence[str]) -> list[str]:
    """The numbers among the words, in order."""
    return [word for word in words if word.isdigit()]


def shingles_of(words: Sequence[str]) -> set[tuple[str, ...]]:
    """The runs of words; a short text is one run."""
    if len(words) < SHINGLE:
        return {tuple(words)}
    return {tuple(words[n : n + SHINGLE]) for n in range(len(words) - SHINGLE + 1)}
