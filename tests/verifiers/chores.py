"""What the pool's tests have workers do: one function, told by its argument how to behave."""

import os
import signal
import sys
import time


def behave(argument: object) -> object:
    """Doubles a number, or does what a word says."""
    if isinstance(argument, int | float):
        return 2 * argument
    return CHORES[argument]() if isinstance(argument, str) and argument in CHORES else argument


def hang() -> None:
    while True:
        pass


def fail() -> None:
    raise ValueError("told to")


CHORES = {
    "hang": hang,
    "sleep": lambda: time.sleep(1000),
    "exit": lambda: os._exit(3),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "raise": fail,
    "print": lambda: sys.stdout.write('{"value": "forged"}\n') and None,
    "memory": lambda: len(bytearray(3 * 2**30)),
    "pid": os.getpid,
    "parent": os.getppid,
}
