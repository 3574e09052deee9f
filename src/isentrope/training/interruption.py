"""SIGTERM, which clusters send before they take a machine away, ends a run in a checkpoint."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["Interruption"]


class Interruption:
    """A context in which SIGTERM is noted instead of obeyed; the loop looks after each step."""

    def __init__(self) -> None:
        self.requested = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # only there are they allowed
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
