"""Worker processes with a hard time limit, for code that may hang, crash or eat memory.

The limit is kept by killing, not by signals inside the interpreter, so that it holds in any
thread and for code that never returns to Python. A hang or a crash costs the one call it
happened in. Workers start at the first call, and none outlives the pool or its process.
"""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

__all__ = ["Reply", "Status", "WorkerPool"]

START_S = 120.0  # an import on a busy machine; a worker that takes longer is broken
END_S = 2.0
MEMORY_BYTES = 4 * 2**30
PACKAGE_ROOT = str(Path(__file__).parents[2])
# The worker takes isentrope from where this process has it, and all else from its own path.
BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from isentrope.verifiers.worker import main; "
    "del sys.path[0]; main(sys.argv[1], int(sys.argv[2]))"
)


class Status(StrEnum):
    """How a call ended."""

    DONE = "done"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reply:
    """The value of a call, or what went wrong in it."""

    status: Status
    value: object = None
    detail: str = ""


class WorkerPool:
    """Calls one function, `module:name`, in worker processes; may be shared between threads.

    The function takes one value and returns one, both of JSON's types.
    """

    def __init__(
        self,
        function: str,
        *,
        workers: int,
        timeout_s: float,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        if workers < 1 or timeout_s <= 0:
            raise ValueError(f"{workers} workers and a limit of {timeout_s} s cannot work")
        self.workers = workers
        self.timeout_s = timeout_s
        self._all = [Worker(function, memory_bytes) for _ in range(workers)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._all:
            self._idle.put(worker)
        self._finalizer = weakref.finalize(self, stop_all, self._all)

    def call(self, argument: object) -> Reply:
        """The reply to one call; waits for an idle worker, then at most `timeout_s` for it."""
        worker = self._idle.get()
        try:
            return worker.ask(argument, self.timeout_s)
        finally:
            self._idle.put(worker)

    def map(self, arguments: Sequence[object]) -> list[Reply]:
        """The replies to many calls, in order, on all workers."""
        if len(arguments) < 2:
            return [self.call(argument) for argument in arguments]
        with ThreadPoolExecutor(min(self.workers, len(arguments))) as threads:
            return list(threads.map(self.call, arguments))

    def close(self) -> None:
        """Ends the workers; a later call starts new ones."""
        stop_all(self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Worker:
    """One worker process, started when first asked. Used by one thread at a time."""

    def __init__(self, function: str, memory_bytes: int) -> None:
        self.arguments = [PACKAGE_ROOT, function, str(memory_bytes)]
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        self.received = b""

    def ask(self, argument: object, timeout_s: float) -> Reply:
        """The reply to one request."""
        request = json.dumps(argument).encode() + b"\n"
        if not self.running() and not self.start():
            return Reply(Status.ERROR, detail="the worker process did not start")
        if not self.write(request):
            self.stop()
            return Reply(Status.ERROR, detail="the worker process has ended")
        reply = self.read(time.monotonic() + timeout_s)
        if reply is None:
            return self.give_up(timeout_s)
        if "ready" in reply:
            return Reply(Status.ERROR, detail="the worker process crashed")
        if "error" in reply:
            return Reply(Status.ERROR, detail=str(reply["error"]))
        return Reply(Status.DONE, reply["value"])

    def running(self) -> bool:
        """Whether there is a process, and it is this process's own and not a parent's."""
        return self.process is not None and self.owner == os.getpid()

    def start(self) -> bool:
        """Starts the process; False if it does not become ready."""
        self.received = b""
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOTSTRAP, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        return self.wait_until_ready()

    def give_up(self, timeout_s: float) -> Reply:
        """Has the late child replaced; the reply says whether it was late or its worker gone."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.stop()
            return Reply(Status.ERROR, detail="the worker process has ended")
        self.process.send_signal(signal.SIGUSR1)
        self.wait_until_ready()
        return Reply(Status.TIMEOUT, detail=f"no result after {timeout_s:g} s")

    def wait_until_ready(self) -> bool:
        """Reads up to the child's first line, past what its predecessor left; stops on failure."""
        deadline = time.monotonic() + START_S
        while (reply := self.read(deadline)) is not None:
            if "ready" in reply:
                return True
        self.stop()
        return False

    def write(self, request: bytes) -> bool:
        """Sends a request; False if nobody reads."""
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(request)
        except BrokenPipeError:
            return False
        return True

    def read(self, deadline: float) -> dict[str, object] | None:
        """The next complete line, or None once the deadline has passed or the pipe is closed."""
        assert self.process is not None
        assert self.process.stdout is not None
        poller = select.poll()
        poller.register(self.process.stdout, select.POLLIN)
        while True:
            line, newline, rest = self.received.partition(b"\n")
            if newline:
                self.received = rest
                if reply := parse(line):
                    return reply
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.received += data

    def stop(self) -> None:
        """Ends the process and its child, and waits for them."""
        if self.process is None or not self.running():
            return
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


def parse(line: bytes) -> dict[str, object] | None:
    """A reply, or None for a line that a killed child left unfinished."""
    try:
        reply = json.loads(line)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None


def stop_all(workers: Sequence[Worker]) -> None:
    """Ends every worker."""
    for worker in workers:
        worker.stop()
