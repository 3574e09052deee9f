"""The maths verifier beside math-verify alone: mistakes on a labelled list, and time.

    python benchmarks/verifiers.py pairs
    python benchmarks/verifiers.py time --data FOLDER
    python benchmarks/verifiers.py hang

`pairs` counts false positives and negatives on tests/verifiers/pairs.jsonl. `time` judges 10,000
answers made of the golds of GSM8K (gsm8k_test.jsonl) and MATH (math500.jsonl) in varied
spellings. `hang` puts ten verifications that never end among 1,000, from 8 threads.
"""

import argparse
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isentrope.tasks.registry import read_golds
from isentrope.verifiers.math import MathVerifier
from isentrope.verifiers.verdict import Outcome

PAIRS = Path(__file__).parents[1] / "tests" / "verifiers" / "pairs.jsonl"
ENDLESS = "9^{9^{9^{9^9}}}"
LIMIT_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["pairs", "time", "hang"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    arguments = parser.parse_args()
    {"pairs": compare_pairs, "time": lambda: judge_many(arguments.data), "hang": judge_hanging}[
        arguments.what
    ]()


def compare_pairs() -> None:
    """A table of mistakes by kind, of this verifier and of math-verify alone."""
    pairs = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    verifier = MathVerifier(timeout_s=60)  # mistakes are counted here, not the machine's load
    verdicts = verifier.judge([p["gold"] for p in pairs], [p["answer"] or None for p in pairs])
    verifier.close()
    ours = [verdict.score == 1.0 for verdict in verdicts]
    theirs = [math_verify_alone(p["gold"], p["answer"]) for p in pairs]
    for name, judged in (("isentrope", ours), ("math-verify alone", theirs)):
        false_positive = Counter(
            p["kind"] for p, j in zip(pairs, judged, strict=True) if j and not p["equal"]
        )
        false_negative = Counter(
            p["kind"] for p, j in zip(pairs, judged, strict=True) if not j and p["equal"]
        )
        equal = sum(p["equal"] for p in pairs)
        print(f"{name}: {len(pairs)} pairs; false positives {false_positive.total()} of {len(pairs) - equal}, "
              f"false negatives {false_negative.total()} of {equal}")  # fmt: skip
        print(f"    false positives by kind: {dict(false_positive)}")
        print(f"    false negatives by kind: {dict(false_negative)}")
        for p, j in zip(pairs, judged, strict=True):
            if name == "isentrope" and j != p["equal"]:
                print(
                    f"    {'equal' if p['equal'] else 'different'}: {p['gold']!r} and {p['answer']!r}"
                )


def math_verify_alone(gold: str, answer: str) -> bool:
    """math-verify as its documentation has it, on the answer in a box."""
    from math_verify import parse, verify

    return verify(parse(rf"\boxed{{{gold}}}"), parse(rf"\boxed{{{answer}}}"))


def spellings(gold: str) -> list[str]:
    """The gold answer as models write it, and one that is wrong."""
    varied = [
        gold,
        f" {gold} ",
        f"${gold}$",
        f"{gold}.",
        gold.replace("frac", "dfrac"),
        f"x = {gold}",
    ]
    if gold.lstrip("-").isdigit():
        varied += [
            f"{int(gold):,}",
            f"{gold}.00",
            rf"\text{{{gold}}}",
            f"{gold} dollars",
            rf"\${gold}",
        ]
    return [*varied, f"{gold} + 1"]


def judge_many(data: Path) -> None:
    """The time for 10,000 answers, and for how many a computer algebra system was asked."""
    golds = [
        g for file in ("gsm8k_test.jsonl", "math500.jsonl") for g in read_golds(str(data / file))
    ]
    pairs = [(gold, spelling) for gold in golds for spelling in spellings(gold)]
    step = len(pairs) / 10_000
    pairs = [pairs[int(n * step)] for n in range(10_000)]
    verifier = MathVerifier(workers=2)
    start = time.monotonic()
    verdicts = verifier.verify([g for g, _ in pairs], [rf"So \boxed{{{a}}}" for _, a in pairs])
    seconds = time.monotonic() - start
    undecided = sum(verifier.decide(gold, answer) is None for gold, answer in pairs)
    print(
        f"10,000 answers in {seconds:.1f} s on {os.cpu_count()} cores; {undecided} needed algebra"
    )
    print(dict(Counter(str(verdict.outcome) for verdict in verdicts)))
    wrong = [(p, v) for p, v in zip(pairs, verdicts, strict=True)
             if (v.score == 1.0) != (not p[1].endswith(" + 1"))]  # fmt: skip
    print(f"{len(wrong)} judged otherwise than meant: {wrong[:8]}")
    verifier.close()


def judge_hanging() -> None:
    """Ten endless verifications in a batch of 1,000 from 8 threads."""
    verifier = MathVerifier(timeout_s=LIMIT_S, workers=2)
    verifier.judge([r"\sum_{k=1}^{n} k"], [r"\frac{n^2+n}{2}"])  # workers are running
    batch = [(str(n), ENDLESS if n % 100 == 50 else f"{n}.0") for n in range(1000)]

    def judge(pair: tuple[str, str]) -> Outcome:
        return verifier.judge([pair[0]], [pair[1]])[0].outcome

    start = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        outcomes = Counter(str(outcome) for outcome in threads.map(judge, batch))
    seconds = time.monotonic() - start
    verifier.close()
    print(f"{dict(outcomes)} in {seconds:.1f} s; allowed {10 * LIMIT_S / 2 + 5:.1f} s")


if __name__ == "__main__":
    main()
