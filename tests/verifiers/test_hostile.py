"""Programs that mean harm: each scores 0 (or its honest score), and nothing outside changes.

Every program is bounded by the sandbox and, where that matters, by itself, so that a broken
sandbox fails a test and does not take the machine down.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isentrope.verifiers.code import CodeVerifier
from isentrope.verifiers.sandbox import Limits, run_program
from isentrope.verifiers.verdict import Outcome

LIMITS = Limits(
    time_s=0.8, memory_bytes=256 * 2**20, processes=8, output_bytes=2**20, files_bytes=2 * 2**20
)
FIRST_SANDBOX_USER = 1_000_000
VERIFIER = CodeVerifier(limits=LIMITS, workers=1)
STREAM = json.dumps({"inputs": ["5\n"], "outputs": ["25\n"]})
CALL = json.dumps({"fn_name": "square", "inputs": [[5], [6]], "outputs": [25, 36]})
ASSERTS = "assert square(5) == 25\nassert square(6) == 36"

STREAM_ATTACKS = {
    "endless loop": "while True: pass",
    "sleep": "import time; time.sleep(1000)",
    "wait for input": "import sys, time\nsys.stdin.read()\nwhile not sys.stdin.read(): time.sleep(.01)",
    "fork bomb": "import os\nfor _ in range(2000):\n    try: os.fork()\n    except OSError: pass",
    "fork and stay": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\nprint(24)",
    "threads": "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(60,)).start()",
    "memory": "x = []\nfor _ in range(100): x.append(bytearray(50 * 2**20))\nprint(25)",
    "memory in children": "import os, time\nfor _ in range(4): os.fork()\nx = bytearray(400 * 2**20)\nprint(25)",
    "huge output": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "huge error output": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "huge file": "f = open('/tmp/x', 'wb')\nfor _ in range(100): f.write(bytes(2**20)); f.flush()\nprint(25)",
    "many files": "for n in range(100_000): open(f'/tmp/{n}', 'w').close()\nprint(25)",
    "many open files": "x = [open('/dev/null') for _ in range(1000)]\nprint(25)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "exit 0 early": "raise SystemExit(0)",
    "os._exit": "import os; os._exit(0)",
    "kill everything": "import os, signal\nfor p in (0, -1): \n    try: os.kill(p, signal.SIGKILL)\n    except OSError: pass",
    "ignore signals": "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "crash": "import ctypes; ctypes.string_at(0)",
    "huge power": "print(9 ** 9 ** 9)",
    "regular expression": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "close the streams": "import os\nfor n in (0, 1, 2): os.close(n)",
    "raise the limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))\nprint(25)",
    "become root": "import os\nos.setuid(0)\nprint(25)",
    "mount": "import ctypes\nl = ctypes.CDLL(None)\nassert l.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) == 0\nprint(25)",
    "leave the root folder": "import os\nos.mkdir('/tmp/r'); os.chroot('/tmp/r')\nprint(25)",
    "new namespaces": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0\nassert ctypes.CDLL(None).mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) == 0\nprint(25)",
    "write outside": "open('/usr/harm', 'w')\nprint(25)",
    "write to the interpreter": "import os\nopen(os.__file__, 'a')\nprint(25)",
    "read the password file": "print(open('/etc/passwd').read())\nprint(25)",
}  # fmt: skip

FUNCTION_ATTACKS = {
    "always equal": "class E(int):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\ndef square(x): return E(1)",
    "patched builtins": "import builtins\nbuiltins.len = lambda x: 0\nbuiltins.all = lambda x: True\nbuiltins.isinstance = lambda a, b: True\ndef square(x): return 1",
    "patched repr": "class R(str):\n    def __repr__(self): return '25'\ndef square(x): return R('1')",
    "look for the expected value": "import gc, sys\ndef square(x):\n    f = sys._getframe()\n    while f:\n        for v in f.f_locals.values():\n            if v == 25 or 'assert' in repr(v)[:50]: return 25\n        f = f.f_back\n    return next((o for o in gc.get_objects() if isinstance(o, list) and 25 in o[:3]), 1) and 1",
    "exit in the function": "import os\ndef square(x): os._exit(0)",
    "system exit in the function": "def square(x): raise SystemExit(0)",
    "forged verdict": "import os\ntry: os.write(1, b'[\"right\", \"\"]')\nexcept OSError: pass\ndef square(x):\n    print('[\"right\", \"\"]', flush=True)\n    os._exit(0)",
    "forged replies": "import os, sys, time\ndef square(x): return 1\nos.write(int(sys.argv[1]), b\"('names',['square'])\\n\" + b\"('value',25)\\n\" * 10)",
    "own stop of tests": "import signal, os\ndef square(x):\n    os.kill(os.getppid() or os.getpid(), signal.SIGKILL)\n    return 1",
    "endless function": "def square(x):\n    while True: pass",
    "endless value": "def square(x):\n    return iter(int, 1)",
    "huge value": "def square(x): return 'x' * 100_000_000",
    "deep value": "def square(x):\n    v = []\n    for _ in range(100_000): v = [v]\n    return v",
    "assertions off": "import sys\nsys.flags = None\n__debug__x = False\ndef square(x): return 1",
}  # fmt: skip


def processes_of_sandboxes() -> list[int]:
    """Live processes of users that only sandboxes have."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                user = entry.stat().st_uid
            except FileNotFoundError:
                continue
            if user >= FIRST_SANDBOX_USER:
                found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def unharmed() -> Iterator[None]:
    """Afterwards no process of the program is left, and this one got no signal."""
    received: list[int] = []
    old = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield
    signal.signal(signal.SIGTERM, old)
    deadline = time.monotonic() + 2
    while processes_of_sandboxes() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes_of_sandboxes() == []
    assert received == []


def answer(program: str) -> str:
    return f"```python\n{program}\n```"


@pytest.mark.parametrize("kind", STREAM_ATTACKS)
def test_stream_attack_scores_nothing(kind: str) -> None:
    start = time.monotonic()
    verdict = VERIFIER.judge(STREAM, answer(STREAM_ATTACKS[kind]))
    assert verdict.score == 0.0, verdict
    assert verdict.outcome in (Outcome.WRONG, Outcome.TIMEOUT)
    assert time.monotonic() - start < LIMITS.time_s + 5


@pytest.mark.parametrize("kind", FUNCTION_ATTACKS)
def test_function_attack_scores_nothing(kind: str) -> None:
    verdict = VERIFIER.judge(ASSERTS, answer(FUNCTION_ATTACKS[kind]))
    assert verdict.score == 0.0, verdict


@pytest.mark.parametrize("kind", ["always equal", "forged verdict", "forged replies"])
def test_function_attack_on_calls_scores_nothing(kind: str) -> None:
    verdict = VERIFIER.judge(CALL, answer(FUNCTION_ATTACKS[kind]))
    assert verdict.score == 0.0, verdict


def test_environment_is_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_VALUE", "do-not-read")
    program = """
import os, glob
seen = repr(dict(os.environ))
for path in glob.glob('/proc/*/environ'):
    try: seen += open(path).read()
    except OSError: pass
print('do-not-read' in seen)
"""
    assert run_program(program, limits=LIMITS).output == b"False\n"


def test_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        program = f"""
import socket
import sys
try:
    socket.create_connection(('127.0.0.1', {port}), 1)
    print('connected')
except OSError as error:
    print('refused')
"""
        assert run_program(program, limits=LIMITS).output == b"refused\n"
        with pytest.raises(TimeoutError):
            server.accept()


def test_files_of_the_machine_are_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "tests.json"
    secret.write_text("expected: 25")
    program = f"""
import os
for path in ({str(secret)!r}, {str(Path.home())!r} + '/.bashrc', '/etc/shadow', '/proc/1/root{secret}'):
    print(os.path.exists(path))
os.symlink({str(secret)!r}, '/tmp/link')
try: print(open('/tmp/link').read())
except OSError: print('not there')
"""
    assert run_program(program, limits=LIMITS).output == b"False\n" * 4 + b"not there\n"


def test_folder_is_empty_and_does_not_last() -> None:
    program = "import os\nprint(sorted(os.listdir('/tmp')), sorted(os.listdir('.')))\nopen('/tmp/left', 'w')"
    for _ in range(2):
        # nothing but the way to an interpreter that itself lies below /tmp
        paths = [Path(path).parts for path in (sys.prefix, sys.base_prefix)]
        ways = sorted({parts[2] for parts in paths if parts[:2] == ("/", "tmp")})
        expected = f"{ways} {ways}\n".encode()
        assert run_program(program, limits=LIMITS).output == expected


def test_other_processes_are_not_visible() -> None:
    program = "import os\nprint([n for n in os.listdir('/proc') if n.isdigit()], os.getpid(), os.getppid())"
    assert run_program(program, limits=LIMITS).output == b"['1'] 1 0\n"


def test_input_can_be_read_only_as_input() -> None:
    program = "import sys\nsys.stdin.seek(0)\nprint(sys.stdin.read() * 2, end='')"
    assert run_program(program, "ab", LIMITS).output == b"abab"


def test_attack_does_not_disturb_its_neighbours() -> None:
    honest = answer("print(int(input()) ** 2)")
    attack = answer(STREAM_ATTACKS["fork bomb"])
    verifier = CodeVerifier(limits=Limits(time_s=3), workers=2)
    verdicts = verifier.verify([STREAM] * 6, [honest, attack, honest, attack, honest, honest])
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]


def test_verifier_works_outside_the_main_thread() -> None:
    scores: list[float | None] = []
    program = answer("print(int(input()) ** 2)")
    thread = threading.Thread(target=lambda: scores.append(VERIFIER.judge(STREAM, program).score))
    thread.start()
    thread.join()
    assert scores == [1.0]


def test_descriptors_do_not_leak() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        VERIFIER.judge(CALL, answer("def square(x): return x * x"))
        VERIFIER.judge(STREAM, answer("print(1)"))
    assert len(os.listdir("/proc/self/fd")) == before
