"""The pool: every way for a call to go wrong costs that call and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isentrope.verifiers.pool import Reply, Status, WorkerPool

LIMIT_S = 0.5


@pytest.fixture(scope="module", autouse=True)
def chores_on_path() -> Iterator[None]:
    """Workers import the chores by name."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(Path(__file__).parent))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def pool(chores_on_path: None) -> Iterator[WorkerPool]:
    with WorkerPool("chores:behave", workers=2, timeout_s=LIMIT_S, memory_bytes=2 * 2**30) as pool:
        yield pool


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"  # an orphan's corpse waits for init


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def test_values_come_back_in_order(pool: WorkerPool) -> None:
    assert [reply.value for reply in pool.map(list(range(50)))] == list(range(0, 100, 2))


@pytest.mark.parametrize("chore", ["hang", "sleep"])
def test_late_call_is_a_timeout(pool: WorkerPool, chore: str) -> None:
    start = time.monotonic()
    reply = pool.call(chore)
    assert reply == Reply(Status.TIMEOUT, detail="no result after 0.5 s")
    assert LIMIT_S <= time.monotonic() - start < LIMIT_S + 1
    assert pool.call(4) == Reply(Status.DONE, 8)


@pytest.mark.parametrize(
    ("chore", "detail"),
    [
        ("exit", "the worker process crashed"),
        ("crash", "the worker process crashed"),
        ("raise", "ValueError: told to"),
        ("memory", "MemoryError: "),
    ],
)
def test_crash_and_exception_are_errors(pool: WorkerPool, chore: str, detail: str) -> None:
    assert pool.call(chore) == Reply(Status.ERROR, detail=detail)
    assert pool.call(5) == Reply(Status.DONE, 10)


def test_print_is_no_answer(pool: WorkerPool) -> None:
    assert pool.call("print") == Reply(Status.DONE, None)


def test_large_values_pass(pool: WorkerPool) -> None:
    text = "x" * 1_000_000
    assert pool.call(text) == Reply(Status.DONE, text)


def test_bad_calls_among_good_ones_from_threads(pool: WorkerPool) -> None:
    chores = [*range(200)]
    bad = {20: "hang", 90: "exit", 150: "raise"}
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(pool.call, [bad.get(number, number) for number in chores]))
    for number, reply in enumerate(replies):
        if number in bad:
            assert reply.status != Status.DONE
        else:
            assert reply == Reply(Status.DONE, 2 * number)


def test_close_leaves_no_process(chores_on_path: None) -> None:
    pool = WorkerPool("chores:behave", workers=1, timeout_s=5)
    pids = [pool.call(word).value for word in ("pid", "parent")]
    pool.close()
    assert not any(alive(pid) for pid in pids if isinstance(pid, int))
    assert pool.call(1).value == 2  # and a closed pool starts again
    pool.close()


def test_worker_killed_from_outside_is_replaced(chores_on_path: None) -> None:
    with WorkerPool("chores:behave", workers=1, timeout_s=5) as pool:
        parent = pool.call("parent").value
        assert isinstance(parent, int)
        os.killpg(parent, signal.SIGKILL)
        assert gone_within(parent, 5)
        assert pool.call(1).status == Status.ERROR
        assert pool.call(1) == Reply(Status.DONE, 2)


SCRIPT = """
import sys
from isentrope.verifiers.pool import WorkerPool
pool = WorkerPool("chores:behave", workers=1, timeout_s=60)
print(pool.call("pid").value, pool.call("parent").value, flush=True)
pool.call(sys.argv[1])
"""


@pytest.mark.parametrize("chore", ["1", "hang"])
def test_no_process_survives_its_owner(chores_on_path: None, chore: str) -> None:
    """With "1" the owner exits by itself; with "hang" it is killed while it waits."""
    folder = str(Path(__file__).parent)
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": f"{folder}:{source}"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, chore], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        if chore == "hang":
            owner.kill()
    assert len(pids) == 2
    assert all(gone_within(pid, 5) for pid in pids)


def test_function_that_does_not_exist(chores_on_path: None) -> None:
    with WorkerPool("chores:nothing", workers=1, timeout_s=5) as pool:
        assert pool.call(1) == Reply(Status.ERROR, detail="the worker process did not start")
