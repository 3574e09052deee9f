"""The verifier of programs: Python, against inputs and outputs or against function tests."""

import ast
import json
import os
import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from isentrope.verifiers.sandbox import Execution, Isolation, Limits, Program, run_program
from isentrope.verifiers.serving import SERVER, TESTER
from isentrope.verifiers.verdict import Outcome, Verdict

__all__ = ["CodeVerifier", "Tests", "extract_program", "read_tests"]

FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
TESTER_EXTRA_S = 2.0  # so that a program's time-out is its own
NUMBER_TOLERANCE = 1e-6
MAX_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Tests:
    """What a program is held against; the kinds may stand side by side."""

    __test__ = False  # no test class, whatever pytest thinks of its name

    streams: tuple[tuple[str, str], ...] = ()
    """Inputs and the outputs that they must give."""
    calls: tuple[tuple[str, list[object], object], ...] = ()
    """Function name, arguments, expected value."""
    code: str = ""
    """Test code that calls the program's functions and asserts."""


class CodeVerifier:
    """Judges completions against tests; may be shared between threads.

    The program is the last closed block of code in a completion. Score 1 for a program that passes
    every test within the limits, which hold for each input, or for all function tests together.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        workers: int | None = None,
        isolation: Isolation = "required",
    ) -> None:
        self.limits = limits or Limits()
        self.workers = workers or min(MAX_WORKERS, os.cpu_count() or 1)
        self.isolation: Isolation = isolation

    def verify(self, golds: Sequence[str], completions: Sequence[str]) -> list[Verdict]:
        """One verdict a completion, in order."""
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(self.judge, golds, completions))

    def judge(self, gold: str, completion: str) -> Verdict:
        """The verdict on one completion."""
        tests = read_tests(gold)
        if tests is None:
            return Verdict(None, Outcome.UNJUDGEABLE, "the tests cannot be read")
        program = extract_program(completion)
        if program is None:
            return Verdict(0.0, Outcome.UNPARSABLE, "no closed block of Python code")
        for given, expected in tests.streams:
            verdict = self.judge_stream(program, given, expected)
            if verdict.outcome != Outcome.RIGHT:
                return verdict
        if tests.calls or tests.code:
            return self.judge_functions(program, tests)
        return Verdict(1.0, Outcome.RIGHT)

    def judge_stream(self, program: str, given: str, expected: str) -> Verdict:
        """The verdict on one input."""
        execution = run_program(program, given, self.limits, isolation=self.isolation)
        if verdict := unfinished(execution, self.limits):
            return verdict
        if execution.code != 0:
            return Verdict(0.0, Outcome.WRONG, last_line(execution))
        if not outputs_equal(execution.output.decode(errors="replace"), expected):
            return Verdict(0.0, Outcome.WRONG, "another output")
        return Verdict(1.0, Outcome.RIGHT)

    def judge_functions(self, program: str, tests: Tests) -> Verdict:
        """The verdict of function tests: candidate and tests in two sandboxes with a socket."""
        job = json.dumps({"calls": tests.calls, "code": tests.code})
        patient = replace(self.limits, time_s=self.limits.time_s + TESTER_EXTRA_S)
        ours, theirs = socket.socketpair()
        with (
            self.start(SERVER, program, self.limits, theirs) as candidate,
            self.start(TESTER, job, patient, ours) as tester,
        ):
            ours.close()
            theirs.close()
            execution = tester.wait()
            if execution.code == 0 and execution.output.startswith(b'["ended"'):
                execution = candidate.wait()
                if execution.code is not None:
                    return Verdict(0.0, Outcome.WRONG, "the program ended before its tests")
        if verdict := unfinished(execution, self.limits):
            return verdict
        try:
            outcome, detail = json.loads(execution.output)
        except ValueError:
            return Verdict(None, Outcome.ERROR, f"the tests broke off: {last_line(execution)}")
        right = execution.code == 0 and outcome == "right"
        return Verdict(float(right), Outcome.RIGHT if right else Outcome.WRONG, detail)

    def start(self, source: str, given: str, limits: Limits, link: socket.socket) -> Program:
        """A program at one end of the socket."""
        link.set_inheritable(True)
        return Program(
            source,
            given,
            limits,
            isolation=self.isolation,
            arguments=[str(link.fileno())],
            keep_fd=link.fileno(),
        )


def unfinished(execution: Execution, limits: Limits) -> Verdict | None:
    """The verdict on a program that did not run, or not to its end."""
    if execution.failed:
        return Verdict(None, Outcome.ERROR, execution.failed)
    if execution.code is None:
        return Verdict(0.0, Outcome.TIMEOUT, f"no end after {limits.time_s:g} s")
    return None


def last_line(execution: Execution) -> str:
    """Why a program failed, from the end of what it wrote to standard error."""
    lines = execution.errors.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"exit code {execution.code}")[:300]


def extract_program(completion: str) -> str | None:
    """The last closed ``` block that is marked as Python or not marked at all, or None."""
    blocks = FENCE.findall(completion)
    return blocks[-1] if blocks and blocks[-1].strip() else None


def read_tests(gold: str) -> Tests | None:
    """The tests in a gold answer; None if there are none that can be read.

    JSON with inputs and outputs (with fn_name: calls of that function), JSON with a list of
    asserts or of {input, output}, or plain test code, which may import from `solution`.
    """
    try:
        data = json.loads(gold)
    except ValueError:
        data = gold
    if isinstance(data, dict) and "inputs" in data and "outputs" in data:
        return pairs(data["inputs"], data["outputs"], data.get("fn_name"))
    if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
        if all("input" in item and "output" in item for item in data):
            return pairs([item["input"] for item in data], [item["output"] for item in data], None)
        return None
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        data = "\n".join(data)
    return tests_of_code(data) if isinstance(data, str) else None


def pairs(inputs: object, outputs: object, function: object) -> Tests | None:
    """Inputs and outputs, of the program or of a function."""
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        return None
    if len(inputs) != len(outputs):
        return None
    if not function:
        return Tests(
            streams=tuple((text_of(i), text_of(o)) for i, o in zip(inputs, outputs, strict=True))
        )
    calls = []
    for arguments, output in zip(inputs, outputs, strict=True):
        given = decoded_lines(arguments) if isinstance(arguments, str) else arguments
        expected = (
            decoded_lines(output)[0]
            if isinstance(output, str) and not isinstance(arguments, list)
            else output
        )
        calls.append((str(function), given if isinstance(given, list) else [given], expected))
    return Tests(calls=tuple(calls))


def decoded_lines(text: str) -> list[object]:
    """One JSON value a line, as some data sets write arguments; text that is none stays text."""
    values: list[object] = []
    for line in text.strip().split("\n"):
        try:
            values.append(json.loads(line))
        except ValueError:
            values.append(line)
    return values


def text_of(value: object) -> str:
    """An input or output as text; a list is one of lines."""
    if isinstance(value, list):
        return "\n".join(str(line) for line in value)
    return str(value)


def tests_of_code(code: str) -> Tests | None:
    """Test code, if it parses and asserts anything."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return None
    asserts = any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    return Tests(code=code) if asserts else None


def outputs_equal(output: str, expected: str) -> bool:
    """Whether two outputs have the same words in the same lines; decimals may differ by 1e-6."""
    left, right = (text.strip().splitlines() for text in (output, expected))
    if len(left) != len(right):
        return False
    return all(lines_equal(a.split(), b.split()) for a, b in zip(left, right, strict=True))


def lines_equal(left: list[str], right: list[str]) -> bool:
    """Whether two lines have equal words."""
    return len(left) == len(right) and all(
        a == b or decimals_equal(a, b) for a, b in zip(left, right, strict=True)
    )


def decimals_equal(left: str, right: str) -> bool:
    """Whether two words are numbers, the expected one with a decimal point, and close."""
    if "." not in right:
        return False
    try:
        a, b = float(left), float(right)
    except ValueError:
        return False
    return abs(a - b) <= NUMBER_TOLERANCE * max(1.0, abs(b))
