"""reasoning-gym: problems from seeds, judged by their own scorers."""

import pytest

from isentrope.errors import ConfigError
from isentrope.tasks.registry import make_task
from isentrope.verifiers.verdict import Outcome

pytestmark = pytest.mark.extra
pytest.importorskip("reasoning_gym")


def test_problems_are_seeded_and_judged() -> None:
    task = make_task("reasoning_gym:basic_arithmetic", seed=3)
    problem = task.train(5)
    assert problem == make_task("reasoning_gym:basic_arithmetic", seed=3).train(5)
    assert problem not in task.test()
    right = f"It is \\boxed{{{problem.answer}}}"
    verdicts = task.verify([problem] * 3, [right, "\\boxed{x}", "none"])
    assert [v.outcome for v in verdicts] == [Outcome.RIGHT, Outcome.WRONG, Outcome.UNPARSABLE]
    assert [v.score for v in verdicts] == [1.0, 0.0, 0.0]


def test_options_of_the_generator_and_an_answer_on_the_first_line() -> None:
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    task = make_task("reasoning_gym:chain_sum", options={**options, "answer": "line"})
    problem = task.train(0)
    left, sign, right = problem.prompt.partition(":")[2].split()[:3]
    assert len(left) == len(right) == 1
    assert problem.prompt.endswith("\nAnswer:")
    expected = int(left) + int(right) * (1 if sign == "+" else -1)
    texts = [f" {expected}\n\nAnswer: 1234", "1234\n" + str(expected), ""]
    assert [v.score for v in task.verify([problem] * 3, texts)] == [1.0, 0.0, 0.0]


def test_unknown_generator() -> None:
    with pytest.raises(ConfigError, match=r"no generator 'chain_sums'; did you mean chain_sum"):
        make_task("reasoning_gym:chain_sums")


def test_unknown_option_of_the_generator() -> None:
    with pytest.raises(ConfigError, match=r"does not take .*max_term.* it has: .*max_terms"):
        make_task("reasoning_gym:chain_sum", options={"max_term": 3})
    with pytest.raises(ConfigError, match=r"no \{problem\} in it"):
        make_task("reasoning_gym:chain_sum", options={"template": "Go:"})
