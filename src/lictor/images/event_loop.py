"""An event loop on a separate thread, for callers on threads without one.

It starts with the first call in each process: a forked process has none of its parent's threads,
and starts again.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from lictor.core.errors import LookupFailedError


class Closable(Protocol):
    """Has resources to release at the end."""

    def close(self) -> None: ...


State = TypeVar("State", bound=Closable)
T = TypeVar("T")

# Names are resolved on threads: a name server that does not answer must not block them all.
_RESOLVERS = 64


class _Running(msgspec.Struct, frozen=True):
    loop: asyncio.AbstractEventLoop
    # Created and used on the loop's thread only.
    state: Any


class LoopThread(Generic[State]):
    """Runs coroutines on its thread; `build` creates their context, once per process."""

    def __init__(self, name: str, build: Callable[[], State]) -> None:
        self._name = name
        self._build = build
        self.forget()
        _threads.add(self)

    def forget(self) -> None:
        """Start anew: the thread, and perhaps the lock, belongs to another process."""
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def ask(
        self, name: str, work: Callable[[State], Coroutine[None, None, T]], seconds: float
    ) -> T:
        """The result of a coroutine; raises LookupFailedError if `name` does not answer in time."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001  (documented, and raises nothing)
            raise LookupFailedError("registries must not be called on the thread of an event loop")
        if seconds <= 0:
            raise LookupFailedError(f"no time left to call {name}")
        running = self._running or self._start()
        future = asyncio.run_coroutine_threadsafe(work(running.state), running.loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise LookupFailedError(f"{name} did not answer within {seconds:.1f} s") from None
        except CancelledError:
            raise LookupFailedError(f"the request to {name} was cancelled") from None

    def _start(self) -> _Running:
        with self._lock:
            if self._running is None:
                loop = asyncio.new_event_loop()
                loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS, f"{self._name}-names"))
                thread = threading.Thread(target=_run, args=(loop,), daemon=True, name=self._name)
                thread.start()
                state = asyncio.run_coroutine_threadsafe(_call(self._build), loop).result()
                self._running = _Running(loop, state)
                weakref.finalize(self, _end, loop, state, os.getpid())
            return self._running


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    # Let cancelled tasks end, and transports close their sockets.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, state: Closable, process: int) -> None:
    """Stop the thread, in the process that it belongs to."""

    def stop() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        state.close()
        loop.call_soon(loop.stop)

    if process == os.getpid() and not loop.is_closed():
        loop.call_soon_threadsafe(stop)


async def _call(make: Callable[[], T]) -> T:
    return make()


_threads: "weakref.WeakSet[LoopThread[Any]]" = weakref.WeakSet()


def _forget_threads() -> None:
    for thread in _threads:
        thread.forget()


os.register_at_fork(after_in_child=_forget_threads)
