"""The maths verifier: the labelled pairs, the cases that other verifiers got wrong, outcomes."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isentrope.errors import ConfigError
from isentrope.verifiers.comparison import answers_equal, vote_key
from isentrope.verifiers.extraction import extract_answer, last_boxed
from isentrope.verifiers.math import MathVerifier
from isentrope.verifiers.mutation import mutations
from isentrope.verifiers.verdict import Outcome

pytest.importorskip("math_verify")

PAIRS = [
    json.loads(line) for line in (Path(__file__).parent / "pairs.jsonl").read_text().splitlines()
]
ENDLESS = "9^{9^{9^{9^9}}}"


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    verifier = MathVerifier(formats=("boxed", "hash", "bold"), workers=2, timeout_s=60)
    yield verifier
    verifier.close()


def test_list_is_long_enough() -> None:
    assert len(PAIRS) >= 300
    assert len({(pair["gold"], pair["answer"]) for pair in PAIRS}) == len(PAIRS)


def test_labelled_pairs(verifier: MathVerifier) -> None:
    golds = [pair["gold"] for pair in PAIRS]
    answers = [pair["answer"] if pair["answer"].strip() else None for pair in PAIRS]
    verdicts = verifier.judge(golds, answers)
    mistaken = [
        (pair, verdict)
        for pair, verdict in zip(PAIRS, verdicts, strict=True)
        if verdict.score != float(pair["equal"])
    ]
    assert mistaken == []


def test_most_pairs_never_reach_algebra() -> None:
    undecided = [p for p in PAIRS if answers_equal(p["gold"], p["answer"]) is None]
    assert len(undecided) <= 0.05 * len(PAIRS)


def test_comparison_is_symmetric() -> None:
    for pair in PAIRS:
        forth = answers_equal(pair["gold"], pair["answer"])
        back = answers_equal(pair["answer"], pair["gold"])
        assert forth == back or None in (forth, back), pair


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{840}, so it is \boxed{840}.", "840"),
        (r"\boxed{1} and then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} but perhaps \boxed{8", "7"),  # the last one that is closed
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\fbox{3}", "3"),
        (r"\boxed {3}", "3"),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{3", None),
        ("the answer is 42", None),
        ("", None),
    ],
)
def test_strict_boxes(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_other_formats() -> None:
    assert extract_answer("so\n#### 1,002\n", ("hash",)) == "1,002"
    assert extract_answer("It is **Answer:** then **73**.", ("bold",)) == "73"
    assert extract_answer("Answer: 5\nAnswer: $\\frac12$", ("answer",)) == "$\\frac12$"
    assert extract_answer("#### 3, or \\boxed{4}", ("boxed", "hash")) == "4"
    with pytest.raises(ConfigError, match="no answer format 'box'"):
        extract_answer("", ("box",))


def test_long_boxes_are_not_cut() -> None:
    long = "+".join(str(n) for n in range(1, 200))
    assert last_boxed(f"\\boxed{{{long}}}") == long
    assert answers_equal("19900", long)


def test_completions(verifier: MathVerifier) -> None:
    golds = ["840", "73", "42", "42", "42"]
    completions = [
        "so \\boxed{840}, that is \\boxed{840}",
        "The answer is **73**.",
        "I also considered 42 \\boxed{17}",
        "",
        "42",
    ]
    outcomes = [verdict.outcome for verdict in verifier.verify(golds, completions)]
    right, wrong, none = Outcome.RIGHT, Outcome.WRONG, Outcome.UNPARSABLE
    assert outcomes == [right, right, wrong, none, none]


@pytest.mark.parametrize("gold", ["", " ", "np.arcsin(10/13)", r"N \equiv 672 \pmod{1000}"])
def test_gold_that_cannot_be_read_gives_no_score(verifier: MathVerifier, gold: str) -> None:
    verdicts = verifier.judge([gold] * 3, [gold or "1", "5", None])
    assert {verdict.score for verdict in verdicts} == {None}
    assert {verdict.outcome for verdict in verdicts} == {Outcome.UNJUDGEABLE}


@pytest.mark.parametrize(
    "answer",
    ["(" * 500, "\\frac" * 500, "1+" * 1500 + "1", "^".join("x" * 500), "{" * 3000, "-" * 3000 + "1",
     "\\text{a}" * 400, "1 " * 1500, "," * 3000, "a" * 3000, "9" * 3999, "1e4000", "((1,2)," * 30],
)  # fmt: skip
def test_strange_answers_take_no_time(answer: str) -> None:
    start = time.monotonic()
    assert answers_equal("5", answer) is not True
    assert time.monotonic() - start < 5


def test_endless_verification_is_a_timeout() -> None:
    verifier = MathVerifier(timeout_s=0.5, workers=1)
    [verdict] = verifier.judge(["5"], [ENDLESS])
    assert (verdict.score, verdict.outcome) == (0.0, Outcome.TIMEOUT)
    verifier.close()


def test_endless_verifications_from_threads() -> None:
    """A tenth of the full case, which benchmarks/verifiers.py has: one hang in 100 answers."""
    verifier = MathVerifier(timeout_s=1.0, workers=2)
    verifier.judge([r"\sum_{k=1}^{3} k"], ["6"])  # the workers run
    batch = [(str(n), ENDLESS if n == 50 else f"{n}.0") for n in range(100)]
    start = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        outcomes = Counter(
            outcome
            for outcome in threads.map(
                lambda pair: verifier.judge([pair[0]], [pair[1]])[0].outcome, batch
            )
        )
    assert outcomes == {Outcome.RIGHT: 99, Outcome.TIMEOUT: 1}
    assert time.monotonic() - start < 1.0 + 10
    verifier.close()


def test_works_outside_the_main_thread(verifier: MathVerifier) -> None:
    scores: list[float | None] = []
    golds, answers = [r"\sum_{k=1}^{3} k", "1/2"], ["6", "0.5"]
    thread = threading.Thread(
        target=lambda: scores.extend(v.score for v in verifier.judge(golds, answers))
    )
    thread.start()
    thread.join()
    assert scores == [1.0, 1.0]


def test_mutations_by_hand() -> None:
    assert mutations("(1, \\frac{2}{3})") == {
        "digit changed": "(1, \\frac{2}{4})",
        "sign flipped": "(-1, \\frac{2}{3})",
        "element dropped": "(1)",
    }
    assert mutations("-9") == {"digit changed": "-0", "sign flipped": "9"}
    assert mutations("x = 5") == {"digit changed": "x = 6", "sign flipped": "x = -5"}
    assert mutations("0") == {"digit changed": "1"}


def test_votes_of_equal_answers_agree() -> None:
    assert vote_key("0.5") == vote_key("\\frac{1}{2}") == vote_key("$\\frac12$") == "1/2"
    assert vote_key("x + 1") == vote_key("x+1")
    assert vote_key("5") != vote_key("6")


def test_public_golds_equal_themselves(shared: Path) -> None:
    """Except for the ones that the documentation names."""
    from isentrope.tasks.registry import read_golds

    for file, unjudgeable in (("math500.jsonl", 0), ("gsm8k_test.jsonl", 0), ("aime24.jsonl", 0)):
        golds = read_golds(str(shared / "data" / file))
        assert sum(answers_equal(gold, gold) is not True for gold in golds) == unjudgeable
        for gold in golds:
            for kind, answer in mutations(gold).items():
                assert answers_equal(gold, answer) is not True, (kind, gold, answer)
