"""Countdown: what the verifier says, and what the stream of problems promises."""

import re

import pytest

from isentrope.errors import ConfigError
from isentrope.tasks.countdown import Countdown, held_out, judge
from isentrope.tasks.problem import Problem, Task
from isentrope.verifiers.verdict import Outcome

PROMPT = "3 7 5=16:"
OPTIONS = (
    Countdown(),
    Countdown(seed=1),
    Countdown(numbers=4),
    Countdown(numbers=4, largest_number=25, largest_value=999),
)


def identity(problem: Problem) -> tuple[list[int], int]:
    """Sorted numbers and target, read independently of the task."""
    *numbers, target = map(int, re.findall("[0-9]+", problem.prompt))
    return sorted(numbers), target


@pytest.mark.parametrize(
    "completion",
    ["3*7=21,21-5=16", "7*3=21,21-5=16", " 3*7=21,21-5=16\n"],
)
def test_right(completion: str) -> None:
    verdict = judge(PROMPT, completion)
    assert (verdict.score, verdict.outcome, verdict.detail) == (1.0, Outcome.RIGHT, "")


@pytest.mark.parametrize(
    ("prompt", "completion", "detail"),
    [
        (PROMPT, "3*7=21", "unused: 5"),
        (PROMPT, "3+7=10", "unused: 5"),
        (PROMPT, "3*7=21,21-5=16,16+0=16", "step 3: 16+0 uses 0, which is not available"),
        (PROMPT, "3+3=6,6+7=13", "step 1: 3+3 uses 3, which is not available"),
        (PROMPT, "3*7=21,21-3=18", "step 2: 21-3 uses 3, which is not available"),
        (PROMPT, "3*7=22,22-5=17", "step 1: 3*7 is 21, not 22"),
        (PROMPT, "3*7=21,21-5=-16", "step 2: 21-5 is 16, not -16"),
        (PROMPT, "3-7=-4,5-4=1", "step 1: 3-7 has no whole, non-negative result"),
        (PROMPT, "3-7=4,4+5=9", "step 1: 3-7 has no whole, non-negative result"),
        (PROMPT, "7/3=2,2*5=10", "step 1: 7/3 has no whole, non-negative result"),
        (PROMPT, "3*7=21,21+5=26", "reaches 26, not 16"),
        (PROMPT, "16+0=16", "step 1: 16+0 uses 0, which is not available"),
        ("4 4 5=5:", "4-4=0,5/0=5", "step 2: 5/0 has no whole, non-negative result"),
        ("4 4 5=5:", "4+4=8,8-5=3", "reaches 3, not 5"),
        ("2 2 8=8:", "8+2=10,10-8=2", "step 2: 10-8 uses 8, which is not available"),
        ("2 4 4 8=8:", "2*4=8,8-8=0", "unused: 4"),
    ],
)
def test_wrong(prompt: str, completion: str, detail: str) -> None:
    verdict = judge(prompt, completion)
    assert (verdict.score, verdict.outcome, verdict.detail) == (0.0, Outcome.WRONG, detail)


@pytest.mark.parametrize(
    ("completion", "step"),
    [
        ("", 1),
        ("16", 1),
        ("3*7=21,21-5=16 so the answer is 16", 2),
        ("3*7=21,21-5=16,", 3),
        ("3*7=21,21-5", 2),
        ("3*7=21;21-5=16", 1),
        ("3 * 7 = 21,21-5=16", 1),
        ("03*7=21,21-5=16", 1),
        ("3-7=-4,-4+5=1", 2),
        ("3*7=21,21-5=16\n3*7=21", 2),
        ("\u0663*7=21,21-5=16", 1),  # an Arabic-Indic digit, which int() would read as 3
        ("9" * 5000 + "+1=1", 1),  # longer than int() reads
    ],
)
def test_unparsable(completion: str, step: int) -> None:
    verdict = judge(PROMPT, completion)
    assert (verdict.score, verdict.outcome) == (0.0, Outcome.UNPARSABLE)
    assert verdict.detail == f"step {step} does not read as a step such as 3*7=21"


def test_zero_and_equal_numbers_are_counted_as_a_multiset() -> None:
    assert judge("4 4 5=5:", "4-4=0,0+5=5").score == 1.0
    assert judge("4 4 4=4:", "4-4=0,4-0=4").score == 1.0
    assert judge("2 4 4 8=8:", "2*4=8,8-8=0,4+0=4").detail == "reaches 4, not 8"


def test_independent_steps_may_come_in_any_order() -> None:
    assert judge("1 2 3 4=10:", "1+2=3,3+4=7,7+3=10").score == 1.0
    assert judge("1 2 3 4=10:", "3+4=7,1+2=3,3+7=10").score == 1.0


def test_a_foreign_prompt_cannot_be_judged() -> None:
    verdict = judge("What is 1+1?", "1+1=2")
    assert (verdict.score, verdict.outcome) == (None, Outcome.UNJUDGEABLE)


def test_verify_keeps_the_order_and_wants_pairs() -> None:
    task: Task = Countdown()
    problems = [Problem(PROMPT, "", "countdown"), Problem("1 2 3=6:", "", "countdown")]
    verdicts = task.verify(problems, ["1+2=3,3+3=6", "1+2=3,3+3=6"])
    assert [verdict.score for verdict in verdicts] == [0.0, 1.0]
    with pytest.raises(ValueError, match="zip"):
        task.verify(problems, [""])


@pytest.mark.parametrize("task", OPTIONS)
def test_every_gold_answer_is_right_and_within_the_limits(task: Countdown) -> None:
    problems = [*(task.train(index) for index in range(2000)), *task.test()]
    verdicts = task.verify(problems, [problem.answer for problem in problems])
    assert {verdict.outcome for verdict in verdicts} == {Outcome.RIGHT}
    for problem in problems:
        numbers, _ = identity(problem)
        values = [int(text) for text in re.findall("=([0-9]+)", problem.answer)]
        assert len(numbers) == task.numbers
        assert max(numbers) <= task.largest_number
        assert min(values) >= 1
        assert max(values) <= task.largest_value


@pytest.mark.parametrize("task", OPTIONS)
def test_train_and_test_share_no_problem(task: Countdown) -> None:
    train = [task.train(index) for index in range(2000)]
    test = task.test()
    assert not any(held_out(problem) for problem in train)
    assert all(held_out(problem) for problem in test)
    keys = {str(identity(problem)) for problem in test}
    assert len(keys) == len(test) == task.num_test
    assert keys.isdisjoint(str(identity(problem)) for problem in train)


def test_the_order_of_the_numbers_does_not_change_the_part() -> None:
    orders = ("3 7 5=16:", "7 3 5=16:", "5 7 3=16:")
    assert len({held_out(Problem(prompt, "", "")) for prompt in orders}) == 1


def test_about_one_problem_in_ten_is_held_out() -> None:
    prompts = [f"{a} {b} {c}={a + b + c}:" for a in range(20) for b in range(a) for c in range(b)]
    share = sum(held_out(Problem(prompt, "", "")) for prompt in prompts) / len(prompts)
    # 1140 problems: three standard errors of a share of 0.1 are 0.027.
    assert 0.073 < share < 0.127


def test_a_problem_depends_on_seed_and_index_alone() -> None:
    forwards = [Countdown().train(index) for index in range(50)]
    backwards = [Countdown().train(index) for index in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert forwards != [Countdown(seed=1).train(index) for index in range(50)]
    assert Countdown().test() == Countdown(seed=1).test()


def test_the_stream_is_the_one_that_published_runs_saw() -> None:
    assert Countdown().train(0) == Problem("11 9 12=87:", "11*9=99,99-12=87", "countdown")
    assert Countdown().train(1) == Problem("12 2 12=2:", "2*12=24,24/12=2", "countdown")


def test_solutions_vary() -> None:
    """The same problem comes with its operands, and its steps, in more than one order."""
    answers: dict[str, set[str]] = {}
    for index in range(10_000):
        problem = Countdown(largest_number=5).train(index)
        answers.setdefault(str(identity(problem)), set()).add(problem.answer)
    assert {"1+1=2,2+2=4", "2+1=3,3+1=4", "1+2=3,1+3=4"} <= answers["([1, 1, 2], 4)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numbers": 5}, "numbers is 5; set it to 3 or 4"),
        ({"largest_number": 4}, "largest_number is 4, .* set it to 5 or more"),
        ({"largest_value": 9}, r"largest_value is 9, below largest_number \(12\); raise"),
        ({"num_test": 0}, "num_test is 0; set it to 1 or more"),
    ],
)
def test_wrong_options(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Countdown(**options)


def test_a_test_set_that_cannot_be_filled_is_reported() -> None:
    task = Countdown(largest_number=5, num_test=100)
    with pytest.raises(ConfigError, match=r"num_test is 100, but only \d+ different"):
        task.test()
