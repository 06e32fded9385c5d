"""When does Python look for garbage? Not while policies are loaded and compiled."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keeping_garbage(*, freezing: bool = False) -> Iterator[None]:
    """Leave the collector off: whatever is made here stays, and it would walk through all of it
    again and again.

    With `freezing` it never walks through what is there at the end: right for a process that makes
    it once. Elsewhere what is replaced later has to be found.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freezing:
            gc.freeze()
        if collects:
            gc.enable()
