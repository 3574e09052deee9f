"""The child's side of the sandbox: run as a script by sandbox.py, standard library only.

The launcher leaves the parent's namespaces and forks; the fork is the first process of its own
process namespace, so that whatever it starts, however detached, ends with it. It sees a root
folder of its own (the interpreter and system libraries, read-only, and an empty /tmp), no network,
and loses every privilege before it runs a line of the program.

    argv[1]   JSON: the settings (see sandbox.py)
    fd 0 1 2  the program's standard streams
    others    source, status and leash, as the settings say
"""

import ctypes
import json
import os
import resource
import select
import signal
import stat
import sys
import time
import types
from typing import Any

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CAPABILITY_VERSION = 0x20080522
ROOT = "/tmp"  # where the new root is put together, in a mount namespace that nobody else sees
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
)
FIRST_USER = (
    1_000_000  # users that no system has; one of its own each time, so that limits count it alone
)
LIBC = ctypes.CDLL(None, use_errno=True)


def main(settings: dict[str, Any]) -> None:
    """Runs the program and writes one JSON object to the status descriptor."""
    status = settings["status_fd"]
    isolated = settings["isolation"] != "none" and leave_namespaces()
    if settings["isolation"] == "required" and not isolated:
        report(
            status,
            {
                "failed": "this system lets the process make no namespaces (docs/verifiers.md, isolation)"
            },
        )
        return
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        run_child(settings, isolated)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    deadline = time.monotonic() + settings["wall_s"]
    code = wait(child, deadline, settings["leash_fd"])
    end_strays()
    report(status, {"code": code, "isolated": isolated})


def leave_namespaces() -> bool:
    """Moves to new namespaces; False where the system does not allow it."""
    own = NEWNS | NEWIPC | NEWPID | NEWNET
    if os.geteuid() == 0:
        return LIBC.unshare(own) == 0
    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(own | NEWUSER) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"1000 {user} 1"),
        ("gid_map", f"1000 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def wait(child: int, deadline: float, leash: int) -> int | None:
    """The child's exit code (negative for a signal); None if it was ended for its time.

    The child is ended as well when the leash is closed: its parent is gone or wants no more.
    """
    wakeups, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    poller = select.poll()
    poller.register(leash, 0)
    poller.register(wakeups, select.POLLIN)
    late = False
    while True:
        pid, code = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return None if late else os.waitstatus_to_exitcode(code)
        left = deadline - time.monotonic()
        events = poller.poll(max(left, 0) * 1000)
        if left <= 0 or any(descriptor == leash for descriptor, _ in events):
            late = True
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None


def end_strays() -> None:
    """Ends what outlived the program: without a process namespace, its orphans come here."""
    try:
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, FileNotFoundError):
        return


def run_child(settings: dict, isolated: bool) -> None:
    """Shuts the process in and runs the program; does not return."""
    try:
        os.setsid()
        if isolated:
            make_root([*SYSTEM, *settings["readable"]], settings["files_bytes"])
            os.chroot(ROOT)
        os.chdir("/tmp" if isolated else settings["folder"])
        source = read_all(settings["source_fd"])
        set_limits(settings)
        drop_privileges(isolated)
        close_but(settings["keep_fd"])
    except OSError as error:
        report(settings["status_fd"], {"failed": f"the sandbox could not be set up: {error}"})
        os._exit(1)
    run_source(source, settings)


def close_but(kept: int) -> None:
    """Closes every descriptor but the standard streams and the one that the program may use."""
    last = os.sysconf("SC_OPEN_MAX")
    if kept:
        os.closerange(3, kept)
        os.closerange(kept + 1, last)
    else:
        os.closerange(3, last)


def make_root(readable: list[str], files_bytes: int) -> None:
    """A root folder in ROOT with the readable paths, an empty /tmp, and /proc of this namespace."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # held open, since the new root covers what is below /tmp
    sources = {path: os.open(path, os.O_PATH) for path in outermost(readable)}
    mount("tmpfs", ROOT, "tmpfs", MS_NOSUID, "size=1m,mode=755")
    # before the readable paths: the interpreter itself may lie below /tmp
    os.makedirs(ROOT + "/tmp", exist_ok=True)
    mount(
        "tmpfs",
        ROOT + "/tmp",
        "tmpfs",
        MS_NOSUID | MS_NODEV,
        f"size={files_bytes},nr_inodes=1024,mode=1777",
    )
    for path, descriptor in sources.items():
        target = ROOT + path
        if os.path.islink(path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(path), target)
            continue
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # the path may be covered by now
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND)
        if not path.startswith("/dev/"):
            flags = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV)
            mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
    for descriptor in sources.values():
        os.close(descriptor)
    os.makedirs(ROOT + "/proc", exist_ok=True)
    mount("proc", ROOT + "/proc", "proc", MS_NOSUID | MS_NODEV)
    mount(None, ROOT, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def outermost(paths: list[str]) -> list[str]:
    """The paths that exist and lie below none of the others."""
    found = [path for path in paths if os.path.exists(path)]
    return [p for p in found if not any(p != q and p.startswith(q + "/") for q in found)]


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """mount(2), or OSError."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    if LIBC.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def set_limits(settings: dict[str, Any]) -> None:
    """Limits of the kernel, hard and soft."""
    for name, value in settings["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def drop_privileges(isolated: bool) -> None:
    """Gives up root, every capability, and the means to get them back."""
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() == 0:
        user = FIRST_USER + int.from_bytes(os.urandom(4), "big") % 10**9
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if isolated and LIBC.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_source(source: bytes, settings: dict[str, Any]) -> None:
    """Runs the program as __main__ and ends the process as the interpreter would."""
    sys.argv = ["solution.py", *settings["arguments"]]
    code = 0
    try:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(source, "solution.py", "exec"), module.__dict__)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 1
    os._exit(code & 0xFF)


def read_all(descriptor: int) -> bytes:
    """What a descriptor holds, from its start."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


def report(descriptor: int, status: dict[str, Any]) -> None:
    """Writes the status."""
    os.write(descriptor, json.dumps(status).encode() + b"\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
