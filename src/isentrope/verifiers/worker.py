"""The process behind one slot of the pool: it loads a function once and forks to run it.

A supervisor imports the function's module and forks a child that shares its standard input and
output. The child answers requests, one JSON line each. The supervisor only watches:

    SIGUSR1 from the pool     the answer is late: the child is killed and another one forked
    the child is gone         another one is forked
    standard input is closed  the pool, or its whole process, is gone: both end

A new child costs milliseconds, because nothing is imported again. It says `{"ready": true}`, which
tells a pool still waiting for an answer that the last child died of the request.
"""

import importlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["main"]

Function = Callable[[object], object]


def main(target: str, memory_bytes: int) -> None:
    """Serves `module:function` until standard input closes."""
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not pass for an answer
    module, _, name = target.partition(":")
    function: Function = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wakeups, wake = os.pipe()
    for end in (wakeups, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, ignore_signal)
    signal.signal(signal.SIGUSR1, ignore_signal)
    supervise(lambda: serve(function, replies, memory_bytes), wakeups)


def supervise(child_main: Callable[[], None], wakeups: int) -> None:
    """Keeps one child running; returns once standard input is closed and the child is gone."""
    poller = select.poll()
    poller.register(0, 0)  # only whether it hangs up; the child reads
    poller.register(wakeups, select.POLLIN)
    child = fork(child_main)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if wakeups in ready and signal.SIGUSR1 in os.read(wakeups, 4096):
            os.kill(child, signal.SIGKILL)
        if 0 in ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        if os.waitpid(child, os.WNOHANG)[0] == child:
            child = fork(child_main)


def fork(child_main: Callable[[], None]) -> int:
    """The process id of a new child that runs `child_main` and exits."""
    child = os.fork()
    if child:
        return child
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    child_main()
    os._exit(0)


def serve(function: Function, replies: int, memory_bytes: int) -> None:
    """Answers requests until standard input closes."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    send(replies, {"ready": True})
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            send(replies, answer(function, line))


def answer(function: Function, line: bytes) -> dict[str, object]:
    """The function's value, or the error that it raised."""
    try:
        return {"value": function(json.loads(line))}
    except Exception as error:  # what a request raises is its answer, of whatever kind
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def send(descriptor: int, reply: dict[str, object]) -> None:
    """Writes one line; the leading newline ends what a killed child may have left half-written."""
    data = b"\n" + json.dumps(reply).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def ignore_signal(number: int, frame: FrameType | None) -> None:
    """Nothing: the wakeup pipe has the signal's number."""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
