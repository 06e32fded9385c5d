"""A bound on the CPU time of work on one text, for programs with one user."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from lictor.core.errors import TooSlowError

# Where the error is swallowed on its way, it comes again.
_AGAIN_SECONDS = 0.1


@contextlib.contextmanager
def limit_cpu_time(seconds: float, message: str) -> Iterator[None]:
    """Raise TooSlowError in the block after so much CPU time; only the main thread has a timer."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError(message)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
