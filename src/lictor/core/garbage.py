"""Pauses Python's garbage collector while policies are loaded and compiled."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector:
    """Disabled while anyone holds it; enabled again after the last release, if it was before.

    Several threads compile: each on its own could restore the state that another one had set,
    and leave the collector disabled.
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
    """Disable the collector: the objects created here stay, and it would traverse them repeatedly.

    With `freezing`, it never traverses what exists at the end: for a process that creates it
    once. Elsewhere, objects that are replaced later must be found.
    """
    _COLLECTOR.turn_off()
    try:
        yield
    finally:
        if freezing:
            gc.freeze()
        _COLLECTOR.turn_on()
