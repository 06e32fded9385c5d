"""Interrupting rules that run too long: by signals on the main thread, from outside on others."""

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from lictor.core.errors import DeadlineError, SlowRequestError, TooSlowError
from lictor.core.model.result import Verdict

_AGAIN_SECONDS = 0.01


class SignalAlarm:
    """By signals. Interrupts Python code; native code only once it comes back."""

    def __init__(self) -> None:
        self._has_rung = False
        self._began_cpu = self._allowed_cpu = 0.0
        signal.signal(signal.SIGALRM, self._ring)
        signal.signal(signal.SIGPROF, self._ring_cpu)

    def set(self, seconds: float) -> None:
        """Ring once, so many seconds from now."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def set_cpu(self, seconds: float) -> None:
        """Ring after this thread has computed for so long: waiting does not count.

        It rings again and again, as the interrupted code may have suppressed the error.
        """
        self._began_cpu, self._allowed_cpu = time.thread_time(), seconds
        signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN_SECONDS)

    def clear(self) -> None:
        """Do not ring."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def clear_cpu(self) -> bool:
        """Do not ring for what is computed; has it rung already?"""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        has_rung, self._has_rung = self._has_rung, False
        return has_rung

    def _ring(self, _number: int, _frame: FrameType | None) -> NoReturn:
        raise TooSlowError("the rule took too long")

    def _ring_cpu(self, _number: int, _frame: FrameType | None) -> None:
        # The timer counts what other threads compute, too: hundreds of them may verify images.
        if time.thread_time() - self._began_cpu < self._allowed_cpu:
            return
        self._has_rung = True
        raise SlowRequestError("the rules took too long")


# Of the time that it had: a rule that waits computes for less, even if many share a core.
_BUSY_SHARE = 0.05


class ThreadWork:
    """Runs once, on the thread that takes it."""

    def __init__(self, evaluate: Callable[[], Verdict]) -> None:
        self._evaluate = evaluate
        # Held while it is known which thread runs, so that no other work is interrupted.
        self._lock = threading.Lock()
        self._thread = 0
        self._began = self._began_cpu = 0.0

    def run(self) -> Verdict:
        """Evaluate, on this thread."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()
        self._thread = threading.get_ident()
        try:
            return self._evaluate()
        finally:
            with self._lock:
                self._thread = 0

    @property
    def computed(self) -> float:
        """Seconds of the processor that it has taken so far."""
        with self._lock:
            if not self._thread:
                return 0.0
            clock = time.pthread_getcpuclockid(self._thread)
            return time.clock_gettime(clock) - self._began_cpu

    def interrupt(self) -> DeadlineError:
        """End it as soon as it stops waiting; returns the error with the reason."""
        with self._lock:
            if not self._thread:
                return DeadlineError("no answer from outside in time")
            clock = time.pthread_getcpuclockid(self._thread)
            computed = time.clock_gettime(clock) - self._began_cpu
            is_busy = computed > (time.monotonic() - self._began) * _BUSY_SHARE
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(SlowRequestError)
            )
        if is_busy:
            return TooSlowError("the rules took too long")
        return DeadlineError("no answer from outside in time")
