"""An alarm clock for the main thread: a rule that takes for ever is interrupted."""

import signal
from types import FrameType
from typing import NoReturn

from lictor.errors import TooSlowError


class SignalAlarm:
    """By signals. Interrupts Python code; native code only once it comes back."""

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, _ring)
        signal.signal(signal.SIGPROF, _ring)

    def set(self, seconds: float) -> None:
        """Ring once, so many seconds from now."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def set_cpu(self, seconds: float) -> None:
        """Ring once, after this process has computed for so long: waiting does not count."""
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def clear(self) -> None:
        """Do not ring."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def clear_cpu(self) -> bool:
        """Do not ring for what is computed; has it rung already?"""
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0.0)
        return left == 0.0


def _ring(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TooSlowError("the rule took too long")
