"""The code verifier on honest programs: formats of tests, formats of answers, limits."""

import json
import os
import time

import pytest

from isentrope.verifiers.code import CodeVerifier, extract_program, outputs_equal, read_tests
from isentrope.verifiers.sandbox import Limits, run_program
from isentrope.verifiers.verdict import Outcome

ADD = "def add(a, b):\n    return a + b"
STREAMS = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})
CALLS = json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]})
ASSERTS = json.dumps(["assert add(1, 2) == 3", "assert add(a=3, b=4) == 7"])
MODULE = "from solution import add\n\ndef test_one():\n    assert add(1, 2) == 3\n"


def block(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```\n"


@pytest.fixture(scope="module")
def verifier() -> CodeVerifier:
    return CodeVerifier(limits=Limits(time_s=3))


def test_streams(verifier: CodeVerifier) -> None:
    right = block("a, b = map(int, input().split())\nprint(a + b)")
    wrong = block("print(3)")  # right on the first input only
    scores = [verdict.score for verdict in verifier.verify([STREAMS] * 2, [right, wrong])]
    assert scores == [1.0, 0.0]


@pytest.mark.parametrize("gold", [CALLS, ASSERTS, MODULE])
def test_functions(verifier: CodeVerifier, gold: str) -> None:
    assert verifier.judge(gold, block(ADD)).score == 1.0
    wrong = verifier.judge(gold, block(ADD.replace("+", "*")))
    assert (wrong.score, wrong.outcome) == (0.0, Outcome.WRONG)


def test_method_of_a_solution_class(verifier: CodeVerifier) -> None:
    program = "class Solution:\n    def add(self, a, b):\n        return a + b"
    assert verifier.judge(CALLS, block(program)).score == 1.0


def test_values_keep_their_types(verifier: CodeVerifier) -> None:
    program = "def f(x):\n    return {'a': (1, [2.5, None]), 3: {x}, 'inf': float('inf')}"
    gold = "assert f(True) == {'a': (1, [2.5, None]), 3: {True}, 'inf': float('inf')}"
    assert verifier.judge(gold, block(program)).score == 1.0


def test_expected_exception(verifier: CodeVerifier) -> None:
    gold = "try:\n    f()\n    assert False, 'no error'\nexcept KeyError:\n    pass"
    assert verifier.judge(gold, block("def f():\n    raise KeyError('x')")).score == 1.0
    assert verifier.judge(gold, block("def f():\n    raise ValueError('x')")).score == 0.0


def test_failure_says_why(verifier: CodeVerifier) -> None:
    verdict = verifier.judge(STREAMS, block("print(1 / 0)"))
    assert verdict.detail == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "gold", ["", "{}", "[]", "x = 1", '{"inputs": [], "outputs": []}', "def ("]
)
def test_tests_that_cannot_be_read_give_no_score(verifier: CodeVerifier, gold: str) -> None:
    verdict = verifier.judge(gold, block(ADD))
    assert (verdict.score, verdict.outcome) == (None, Outcome.UNJUDGEABLE)


@pytest.mark.parametrize(
    "answer", ["", "print(3)", "```python\nprint(3)", "```\n\n```", "```js\n1\n```"]
)
def test_answer_without_a_closed_block(verifier: CodeVerifier, answer: str) -> None:
    verdict = verifier.judge(STREAMS, answer)
    assert (verdict.score, verdict.outcome) == (0.0, Outcome.UNPARSABLE)


def test_last_block_counts() -> None:
    assert extract_program("```python\na\n```\ntext\n```\nb\n```\nend") == "b\n"
    assert extract_program("```python\na\n```\n```python\nb") == "a\n"


def test_formats_of_tests() -> None:
    tests = read_tests(json.dumps([{"input": "1", "output": "2"}]))
    assert tests is not None
    assert tests.streams == (("1", "2"),)
    tests = read_tests(json.dumps({"fn_name": "f", "inputs": ["[1, 2]\n3"], "outputs": ["4"]}))
    assert tests is not None
    assert tests.calls == (("f", [[1, 2], 3], 4),)
    tests = read_tests(json.dumps({"inputs": [["1", "2"]], "outputs": [["3"]]}))
    assert tests is not None
    assert tests.streams == (("1\n2", "3"),)


@pytest.mark.parametrize(
    ("output", "expected", "equal"),
    [
        ("1 2\n", "1  2", True),
        ("1\n2\n\n", "1\n2", True),
        ("1 2", "1\n2", False),
        ("0.3333333", "0.33333333", True),
        ("0.34", "0.33", False),
        ("3", "4", False),
        ("nan", "0.5", False),
        ("", "", True),
    ],
)
def test_outputs(output: str, expected: str, equal: bool) -> None:
    assert outputs_equal(output, expected) is equal


def test_exit_code_counts(verifier: CodeVerifier) -> None:
    gold = json.dumps({"inputs": [""], "outputs": ["3"]})
    assert verifier.judge(gold, block("print(3)\nraise SystemExit(0)")).score == 1.0
    assert verifier.judge(gold, block("print(3)\nraise SystemExit(1)")).score == 0.0


def test_time_limit_is_kept() -> None:
    start = time.monotonic()
    execution = run_program("while True: pass", limits=Limits(time_s=0.5))
    assert execution.code is None
    assert time.monotonic() - start < 4


def test_without_namespaces_the_limits_still_hold() -> None:
    """What is left where the system allows no namespaces."""
    limits = Limits(time_s=1.0, memory_bytes=256 * 2**20)
    execution = run_program("print(6 * 7)", limits=limits, isolation="none")
    assert (execution.isolated, execution.code, execution.output) == (False, 0, b"42\n")
    execution = run_program("x = bytearray(2**29)", limits=limits, isolation="none")
    assert execution.code == 1
    execution = run_program("while True: pass", limits=limits, isolation="none")
    assert execution.code is None


def test_without_namespaces_strays_are_ended() -> None:
    program = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.2)
"""
    execution = run_program(program, limits=Limits(time_s=5), isolation="none")
    assert execution.code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(execution.output), 0)
