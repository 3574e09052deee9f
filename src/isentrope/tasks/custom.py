"""Rewards and tasks of one's own, named as `file.py:name` or `package.module:name`.

A reward function is called as TRL calls its own: prompts, completions and every column of the rows
as lists, by name. It returns a number for each completion, or None where it cannot judge one; it
may be async. It runs in a process of its own with a time limit, and never ends a run by itself.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import resource
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from isentrope.errors import ConfigError, DataError
from isentrope.tasks.problem import Problem, Task, conversation
from isentrope.verifiers.pool import Reply, Status, WorkerPool
from isentrope.verifiers.verdict import Outcome, Verdict

__all__ = ["Note", "Reward", "RewardTask", "call", "is_named", "load"]

CALL = f"{__name__}:call"
FEWEST = 64
"""Completions before a share of faults is looked at."""

Note = Callable[[str], None]
Reward = str | Callable[..., Any]
"""Its name, or the function itself: that runs in this process, without a time limit."""


def is_named(text: str) -> bool:
    """Whether it is `file.py:name` or `package.module:name`, and no path or name of a data set."""
    place, colon, name = text.rpartition(":")
    return (
        bool(colon)
        and name.isidentifier()
        and (place.endswith(".py") or place.replace(".", "").isidentifier())
    )


def load(text: str) -> Any:
    """What `file.py:name` or `package.module:name` names; ConfigError where it names nothing."""
    place, _, name = text.rpartition(":")
    if not is_named(text):
        raise ConfigError(f"{text!r} names no object; write file.py:name or package.module:name")
    module = load_file(Path(place)) if place.endswith(".py") else load_module(place)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        near = get_close_matches(name, own, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(own) or 'none'}"
        raise ConfigError(f"{place} has no {name!r}; {advice}")
    return getattr(module, name)


def load_file(path: Path) -> ModuleType:
    """The module that a file is; those beside it can be imported by it."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path} (in {Path.cwd()})")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return load_module(path.stem, path)


def load_module(name: str, path: Path | None = None) -> ModuleType:
    """The module of a name, or of a file; ConfigError with the place where it fails."""
    try:
        if path is None:
            if "" not in sys.path:
                sys.path.insert(0, "")  # the current folder
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # as an import would, for dataclasses and pickle
        spec.loader.exec_module(module)
    except Exception as error:  # of any kind: it is the user's code
        raise ConfigError(f"{path or name} cannot be loaded: {last_lines(error)}") from None
    return module


def last_lines(error: BaseException) -> str:
    """Kind and text of an exception, and the line of code where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) or not frames:
        return text.strip()
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line})"


_loaded: dict[str, Callable[..., Any]] = {}


def call(request: Mapping[str, Any]) -> dict[str, object]:
    """One call in the process of a reward function: {"scores": list}, or {"fault": traceback}.

    Without completions the function is loaded and not called.
    """
    name = request["reward"]
    try:
        if name not in _loaded:
            _loaded[name] = load(name)
        function = _loaded[name]
        if not callable(function):
            raise ConfigError(f"{name} is a {type(function).__name__}, no function")
    except ConfigError as error:
        return {"fault": str(error)}
    return scored(function, request)


class Here:
    """What a pool is to a function that is called in this process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def call(self, request: Mapping[str, Any]) -> Reply:
        """The reply to one call."""
        return Reply(Status.DONE, scored(self.function, request))


def scored(function: Callable[..., Any], request: Mapping[str, Any]) -> dict[str, object]:
    """The scores of a call, or its fault."""
    if not request["completions"]:
        return {"scores": []}
    try:
        scores = function(**accepted(function, request))
        if inspect.isawaitable(scores):
            with ThreadPoolExecutor(1) as thread:  # a notebook's own has a loop already
                scores = thread.submit(asyncio.run, awaited(scores)).result()
    except Exception as error:  # of any kind: it is the user's code
        inner = error.__traceback__ and error.__traceback__.tb_next  # without this function
        return {"fault": "".join(traceback.format_exception(error.with_traceback(inner))).strip()}
    try:
        return {"scores": plain(scores, len(request["completions"]))}
    except (TypeError, ValueError) as error:
        return {"fault": str(error)}


async def awaited(scores: Any) -> Any:
    """What an async function returns."""
    return await scores


def accepted(function: Callable[..., Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name; without those that the function does not take."""
    names = ("prompts", "completions")
    arguments = {**request["columns"], **{name: request[name] for name in names}}
    parameters = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def plain(scores: Any, count: int) -> list[float | None]:
    """The scores as JSON has them; a TypeError or ValueError names what is wrong with them."""
    if isinstance(scores, str) or not hasattr(scores, "__len__"):
        raise TypeError(f"returned a {type(scores).__name__}; a list of numbers is wanted")
    if len(scores) != count:
        raise ValueError(f"returned {len(scores)} numbers for {count} completions")
    numbers = [None if score is None else float(score) for score in scores]
    if any(number is not None and not math.isfinite(number) for number in numbers):
        raise ValueError(f"returned {next(n for n in numbers if n and not math.isfinite(n))}")
    return numbers


@dataclass(frozen=True, slots=True)
class Judged:
    """What a reward function says of one completion."""

    score: float | None
    fault: str = ""
    late: bool = False


class RewardTask:
    """A task whose problems are judged by reward functions; their weighted sum is the reward.

    A completion that no function can judge has no reward, and stays out of means and advantages. A
    call that raises is made again in halves, so that one completion costs no others their reward.
    """

    def __init__(
        self,
        task: Task,
        rewards: Sequence[Reward],
        *,
        weights: Sequence[float] = (),
        right_score: float = 1.0,
        timeout_s: float = 60.0,
        fault_limit: float = 0.5,
        chat: bool = False,
        system: str | None = None,
        note: Note | None = None,
    ) -> None:
        if weights and len(weights) != len(rewards):
            raise ConfigError(
                f"task.reward_weights has {len(weights)} numbers for {len(rewards)} functions in "
                "task.reward; give one for each, or none"
            )
        self.task = task
        self.rewards = [r if isinstance(r, str) else r.__name__ for r in rewards]
        self.weights = list(weights) or [1.0] * len(rewards)
        self.right_score = right_score
        self.fault_limit = fault_limit
        self.chat, self.system = chat, system
        self.note = note or (lambda text: None)
        self.asked = self.faults = 0
        self.pools: dict[str, WorkerPool | Here] = {
            name: WorkerPool(
                CALL, workers=1, timeout_s=timeout_s, memory_bytes=resource.RLIM_INFINITY
            )
            if isinstance(reward, str)
            else Here(reward)
            for name, reward in zip(self.rewards, rewards, strict=True)
        }
        for reward in self.rewards:  # a name that is not there is an error now
            self.answer(reward, [], [])

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name

    def train(self, index: int) -> Problem:
        """The training problem at `index`."""
        return self.task.train(index)

    def test(self) -> Sequence[Problem]:
        """The held-out problems."""
        return self.task.test()

    def verify(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """One verdict per completion, in order."""
        judged = [self.judge(reward, problems, completions) for reward in self.rewards]
        verdicts = [self.verdict(each) for each in zip(*judged, strict=True)]
        faults = [one.detail for one in verdicts if one.detail]
        if faults and not self.faults:
            self.note(
                f"a reward function failed, and what it was to judge has no reward: {faults[0]}"
            )
        self.asked, self.faults = self.asked + len(verdicts), self.faults + len(faults)
        if self.asked >= FEWEST and self.faults > self.fault_limit * self.asked:
            raise DataError(
                f"{self.faults} of {self.asked} completions could not be judged by "
                f"{', '.join(self.rewards)}, more than task.reward_fault_limit ({self.fault_limit:g})"
                f" allows; the last: {faults[-1] if faults else 'unknown'}"
            )
        return verdicts

    def verdict(self, judged: Sequence[Judged]) -> Verdict:
        """The weighted sum of the functions that could judge a completion."""
        parts = [
            weight * one.score
            for weight, one in zip(self.weights, judged, strict=True)
            if one.score is not None
        ]
        detail = next((one.fault for one in judged if one.fault), "")
        if parts:
            score = sum(parts)
            right = score >= self.right_score
            return Verdict(score, Outcome.RIGHT if right else Outcome.WRONG, detail)
        if not detail:
            return Verdict(None, Outcome.UNJUDGEABLE)
        late = any(one.late for one in judged)
        return Verdict(None, Outcome.TIMEOUT if late else Outcome.ERROR, detail)

    def judge(
        self, reward: str, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Judged]:
        """What one function says of each completion."""
        if not completions:
            return []
        answer = self.answer(reward, problems, completions)
        if not answer.fault:
            return answer.judged
        if answer.late or len(completions) == 1:
            return [Judged(None, answer.fault, answer.late)] * len(completions)
        half = len(completions) // 2
        return [
            *self.judge(reward, problems[:half], completions[:half]),
            *self.judge(reward, problems[half:], completions[half:]),
        ]

    def answer(
        self, reward: str, problems: Sequence[Problem], completions: Sequence[str]
    ) -> "Answer":
        """The answer to one call; a ConfigError where the function cannot be loaded."""
        names = dict.fromkeys(key for problem in problems for key in problem.columns)
        columns = {key: [problem.columns.get(key) for problem in problems] for key in names}
        columns.setdefault("answer", [problem.answer for problem in problems])
        request = {
            "reward": reward,
            "prompts": [self.prompt(problem.prompt) for problem in problems],
            "completions": [self.completion(text) for text in completions],
            "columns": columns,
        }
        reply = self.pools[reward].call(json.loads(json.dumps(request, default=str)))
        if reply.status is not Status.DONE and not completions:
            raise ConfigError(f"task.reward: {reward} cannot be loaded: {reply.detail}")
        if reply.status is not Status.DONE:
            late = reply.status is Status.TIMEOUT
            return Answer([], f"{reward}: {reply.detail}", late)
        assert isinstance(reply.value, dict)
        fault = reply.value.get("fault")
        if fault and not completions:
            raise ConfigError(f"task.reward: {fault}")
        if fault:
            return Answer([], f"{reward}: {fault}")
        return Answer([Judged(score) for score in reply.value["scores"]])

    def prompt(self, text: str) -> Any:
        """As TRL hands it to a reward function: text, or the messages of a chat."""
        return conversation(text, self.system) if self.chat else text

    def completion(self, text: str) -> Any:
        """The same of a completion."""
        return [{"role": "assistant", "content": text}] if self.chat else text


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one call of a reward function."""

    judged: list[Judged]
    fault: str = ""
    late: bool = False
