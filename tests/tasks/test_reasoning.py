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


def test_unknown_generator() -> None:
    with pytest.raises(ConfigError, match="no generator 'nothing'"):
        make_task("reasoning_gym:nothing")
