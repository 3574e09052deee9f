"""The command line: `isentrope COMMAND ...`.

The table below is all that `isentrope --help` needs. A command's module is imported when it is
called; it holds a dataclass of its options and a `run` function that imports the heavy parts.
"""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from isentrope import __version__
from isentrope.errors import IsentropeError

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    # name: (module of isentrope.commands, what it does)
    "train": ("train", "train a model with entropy control, into a run folder"),
    "compare": ("compare", "train several recipes and seeds side by side; one table at the end"),
    "fit": ("fit", "fit R = -a e^H + b to a run log of any trainer; forecast its end"),
    "scale": ("scale", "a and b against model size; predict a larger model"),
    "probe": (
        "probe",
        "covariance of log-prob and advantage of a model on a task, without training",
    ),
    "eval": ("eval", "score a model on benchmarks: the paper's suite, a subset, or a file"),
    "verify": ("verify", "audit the gold answers of a data set"),
    "report": ("report", "one HTML page about a run, several arms and seeds, or a log"),
    "watch": ("watch", "follow a run in the terminal"),
    "doctor": ("doctor", "check the installation, device, memory and built-in model"),
}

USAGE_ERROR = 2

INTERRUPTED = 128 + 2
"""Exit code of a process that Ctrl-C ended."""

STORAGE_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
)
"""A full or read-only disk, or a folder that cannot be: a message, not a traceback."""

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 2 when the input was wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(help_text())  # noqa: T201
        return 0
    if arguments[0] == "--version":
        print(f"isentrope {__version__}")  # noqa: T201
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return complain(f"there is no command {name!r}; the commands are: {', '.join(COMMANDS)}")
    try:
        command = importlib.import_module(f"isentrope.commands.{COMMANDS[name][0]}")
        parse = getattr(command, "parse", None) or partial(parse_options, command.Options, name)
        return command.run(parse(rest))
    except IsentropeError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        complain(str(stop) or "stopped by Ctrl-C")
        return INTERRUPTED
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        return complain(f"{error.filename or 'a file'} cannot be used: {error.strerror}")


def parse_options(options: type[T], name: str, arguments: Sequence[str]) -> T:
    """The options of a command, from its arguments; tyro exits with code 2 on a wrong one."""
    import tyro

    return tyro.cli(options, prog=f"isentrope {name}", args=arguments)


def help_text() -> str:
    """The text of `isentrope --help`."""
    width = max((len(name) for name in COMMANDS), default=0)
    rows = [f"  {name:<{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: isentrope COMMAND [options]",
            "",
            "Measure, predict and control policy entropy in RL of language models.",
            "",
            *rows,
            "",
            "isentrope COMMAND --help shows the options of a command.",
        ]
    )


def complain(message: str) -> int:
    """Prints an error for the user and returns the exit code that says so."""
    print(f"isentrope: {message}", file=sys.stderr)  # noqa: T201
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
