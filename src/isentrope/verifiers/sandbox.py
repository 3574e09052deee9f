"""Running a program that nobody trusts, on Linux.

A program runs in a process of its own, with limits on time, memory, processes, files and output,
in namespaces without network and with a root folder that holds nothing but the interpreter and an
empty /tmp. It sees no variable of the parent's environment and no file of the machine.

Namespaces need root, or a system that lets users make user namespaces. Isolation "required"
refuses to run anything where they cannot be had; "preferred" then runs with the limits alone: the
network and all files that any user may read are in reach. "none" does that everywhere.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isentrope.errors import ConfigError

__all__ = ["Execution", "Isolation", "Limits", "Program", "run_program"]

JAIL = str(Path(__file__).with_name("jail.py"))
Isolation = Literal["required", "preferred", "none"]
MEBIBYTE = 2**20
STACK_BYTES = 64 * MEBIBYTE
GRACE_S = 10.0  # for a launcher on a busy machine, past the program's own time
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one program may use."""

    time_s: float = 6.0
    """Wall-clock and processor time."""
    memory_bytes: int = 1024 * MEBIBYTE
    """Address space of each process."""
    processes: int = 8
    """Processes and threads at once."""
    open_files: int = 64
    """Open files of a process."""
    output_bytes: int = 4 * MEBIBYTE
    """Size of the output, and of any file."""
    files_bytes: int = 32 * MEBIBYTE
    """All files in its /tmp together."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a program ended. `code` is its exit code, negative for a signal, None for a time-out.

    `failed` is not empty if the sandbox itself could not be set up: the program did not run.
    """

    code: int | None
    output: bytes = b""
    errors: bytes = b""
    failed: str = ""
    isolated: bool = True


def run_program(
    source: str,
    standard_input: str = "",
    limits: Limits | None = None,
    *,
    isolation: Isolation = "required",
) -> Execution:
    """How a Python program ends on this input."""
    with Program(source, standard_input, limits or Limits(), isolation=isolation) as program:
        return program.wait()


class Program:
    """A program in its sandbox; leaving the context ends it. It inherits `keep_fd`."""

    def __init__(
        self,
        source: str,
        standard_input: str,
        limits: Limits,
        *,
        isolation: Isolation = "required",
        arguments: Sequence[str] = (),
        keep_fd: int = 0,
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise ConfigError(f"programs can be judged on Linux only, not on {sys.platform}")
        self.limits = limits
        self.files = {
            name: memory_file(text)
            for name, text in (("source", source), ("in", standard_input), ("out", ""), ("err", ""))
        }
        self.folder = tempfile.TemporaryDirectory()  # of use only without a root folder of its own
        os.chmod(self.folder.name, 0o777)
        self.status, status = os.pipe()
        leash, self.leash = os.pipe()
        settings = {
            "source_fd": self.files["source"],
            "status_fd": status,
            "leash_fd": leash,
            "keep_fd": keep_fd,
            "wall_s": limits.time_s,
            "files_bytes": limits.files_bytes,
            "isolation": isolation,
            "folder": self.folder.name,
            "arguments": list(arguments),
            "readable": sorted({sys.base_prefix, sys.prefix}),
            "limits": kernel_limits(limits),
        }
        inherited = [self.files["source"], status, leash, *([keep_fd] if keep_fd else [])]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-B", JAIL, json.dumps(settings)],
            stdin=self.files["in"],
            stdout=self.files["out"],
            stderr=self.files["err"],
            pass_fds=inherited,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        os.close(status)
        os.close(leash)

    def wait(self) -> Execution:
        """How the program ended, once it has."""
        try:
            self.process.wait(self.limits.time_s + GRACE_S)
        except subprocess.TimeoutExpired:
            return Execution(None, failed="the sandbox did not end in time")
        lines = os.read(self.status, 65536).decode().splitlines()
        if not lines:
            return Execution(None, failed="the sandbox ended without a report")
        status = json.loads(lines[0])
        return Execution(
            status.get("code"),
            os.pread(self.files["out"], self.limits.output_bytes, 0),
            os.pread(self.files["err"], self.limits.output_bytes, 0),
            status.get("failed", ""),
            status.get("isolated", False),
        )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.leash)  # the launcher ends the program
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.status, *self.files.values()):
            os.close(descriptor)
        self.folder.cleanup()


def memory_file(text: str) -> int:
    """A descriptor of a file in memory that holds the text, at its start."""
    descriptor = os.memfd_create("sandbox")
    data = text.encode(errors="surrogatepass")
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def kernel_limits(limits: Limits) -> dict[str, int]:
    """The names and values of the kernel's limits."""
    return {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_CPU": int(limits.time_s) + 1,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.output_bytes,
        "RLIMIT_STACK": min(STACK_BYTES, limits.memory_bytes // 2),
        "RLIMIT_CORE": 0,
    }
