"""The clock of Wasm guests: a thread that raises the epoch of their engine."""

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wasmtime

# A guest that runs for long burns CPU. Where the process used less than this since the last tick,
# so many times in a row, nobody needs the clock, and it ticks slowly until somebody does.
_BUSY_SECONDS = 0.001
_QUIET_TICKS = 100
_SLOW_SECONDS = 0.1
# Not more, so that who has just begun is not stopped for the time before.
_MOST_AT_ONCE = 4


class EpochTicker:
    """Ticks an engine from the first `start` on, in each process that the engine lives in."""

    def __init__(self, engine: "wasmtime.Engine", seconds: float) -> None:
        self.engine = engine
        self._seconds = seconds
        self._is_wanted = False
        self.forget()
        _tickers.add(self)

    def forget(self) -> None:
        """Begin anew: the thread belongs to another process, and so may the lock."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Tick from now on; guests without a ticker would never be stopped."""
        self._is_wanted = True
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_tick,
                    args=(weakref.ref(self), self.engine, self._seconds),
                    daemon=True,
                    name="wasm-epochs",
                )
                self._thread.start()

    def restart(self) -> None:
        """In a process that was forked: go on where the parent's thread is missing."""
        self.forget()
        if self._is_wanted:
            self.start()


def _tick(owner: "weakref.ref[EpochTicker]", engine: "wasmtime.Engine", seconds: float) -> None:
    used, quiet = time.process_time(), 0
    while owner() is not None:
        begin = time.monotonic()
        is_slow = quiet >= _QUIET_TICKS
        time.sleep(_SLOW_SECONDS if is_slow else seconds)
        for _ in range(1 if is_slow else count_ticks(time.monotonic() - begin, seconds)):
            engine.increment_epoch()
        now = time.process_time()
        quiet = 0 if now - used > _BUSY_SECONDS else quiet + 1
        used = now


def count_ticks(passed: float, seconds: float) -> int:
    """The ticks of so much time: on a busy machine the thread wakes late, and limits go by them."""
    return max(1, min(int(passed / seconds), _MOST_AT_ONCE))


_tickers: "weakref.WeakSet[EpochTicker]" = weakref.WeakSet()


def _restart_tickers() -> None:
    for ticker in list(_tickers):
        ticker.restart()


os.register_at_fork(after_in_child=_restart_tickers)
