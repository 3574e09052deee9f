"""SIGTERM, which clusters send before they take a machine away, and Ctrl-C end a run in a checkpoint."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["Interruption"]


class Interruption:
    """A context in which the signals are noted instead of obeyed; the loop looks after each step.

    A second Ctrl-C is obeyed at once.
    """

    def __init__(self) -> None:
        self.requested = 0
        """Number of the signal; 0: none came."""
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # only there are they allowed
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = number
