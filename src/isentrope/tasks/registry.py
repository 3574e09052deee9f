"""Tasks by name."""

from isentrope.config import Scalar, build
from isentrope.errors import ConfigError
from isentrope.tasks.problem import Task

__all__ = ["make_task"]


def make_task(name: str, *, seed: int, options: dict[str, Scalar]) -> Task:
    """The task of that name, or a ConfigError that names a wrong option."""
    from isentrope.tasks.countdown import Countdown

    if name != "countdown":
        raise ConfigError(f"task.name is {name!r}; choose countdown")
    return build(Countdown, {"seed": seed, **options}, "task.options")
