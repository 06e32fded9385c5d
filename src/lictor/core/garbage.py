"""When does Python look for garbage? Not while policies are loaded and compiled."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector:
    """Off while anyone keeps garbage, and on again after the last of them, where it was on.

    Several threads compile. Each by itself could see what another has set for a moment, and leave
    the collector off for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeping = 0
        self._was_on = False

    def turn_off(self) -> None:
        with self._lock:
            if not self._keeping:
                self._was_on = gc.isenabled()
                gc.disable()
            self._keeping += 1

    def turn_on(self) -> None:
        with self._lock:
            self._keeping -= 1
            if not self._keeping and self._was_on:
                gc.enable()


_COLLECTOR = _Collector()


@contextmanager
def keeping_garbage(*, freezing: bool = False) -> Iterator[None]:
    """Leave the collector off: whatever is made here stays, and it would walk through all of it
    again and again.

    With `freezing` it never walks through what is there at the end: right for a process that makes
    it once. Elsewhere what is replaced later has to be found.
    """
    _COLLECTOR.turn_off()
    try:
        yield
    finally:
        if freezing:
            gc.freeze()
        _COLLECTOR.turn_on()
