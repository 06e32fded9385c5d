"""Modules made ready to run: each compiled once, for the one engine of this process."""

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lictor.addons.kubewarden.modules.compile_process import compile_apart
from lictor.addons.kubewarden.modules.compiled_modules import CompiledModules
from lictor.addons.kubewarden.runtime.engine import TICK_SECONDS, digest_content, make_engine
from lictor.core.lang.wasm_module import WasmModule

if TYPE_CHECKING:
    import wasmtime

# A guest that runs for long burns CPU. Where the process used less than this since the last tick,
# so many times in a row, no guest needs the clock, and it ticks slowly until one does.
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
        _restarted.add(self)

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


# Compilers that run at the same time: each may take all the memory that it may take. One of them
# is never busy with what a policy of a namespace wants.
_COMPILERS = 2
_MIB = 2**20
_Key: TypeAlias = tuple[str, str]
# Given a module, seconds and bytes of memory: its machine code.
Compiler: TypeAlias = Callable[[bytes, float, int], bytes]


class CompileLimits(msgspec.Struct, frozen=True):
    """What compiling a module may take, and its machine code on disk."""

    seconds: float = 120.0
    # For policies of a namespace: while one of them compiles, those of others wait.
    seconds_in_namespaces: float = 30.0
    memory_bytes: int = 2048 * _MIB
    disk_bytes: int = 4096 * _MIB
    disk_bytes_of_namespaces: int = 1024 * _MIB


@functools.cache
def find_ticker() -> EpochTicker:
    """The clock of this process's engine, and the engine with it."""
    return EpochTicker(make_engine(), TICK_SECONDS)


def find_engine() -> "wasmtime.Engine":
    """The engine of this process."""
    return find_ticker().engine


class ModuleRuntime:
    """Compiles modules; those that are in use are there once. For any thread."""

    def __init__(
        self, folder: Path, limits: CompileLimits, compiler: Compiler = compile_apart
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._compiler = compiler
        # By whether policies of namespaces want it: they must not push others' code out.
        self._compiled: dict[bool, CompiledModules] = {}
        # By the digest of the whole file.
        self._used: weakref.WeakValueDictionary[str, WasmModule] = weakref.WeakValueDictionary()
        self.restart()
        _restarted.add(self)

    def restart(self) -> None:
        """A process that was forked may find locks that another thread of its parent held."""
        self._lock = threading.Lock()
        self._compilers = threading.BoundedSemaphore(_COMPILERS)
        self._compilers_for_namespaces = threading.BoundedSemaphore(_COMPILERS - 1)
        # By namespace and digest: no namespace waits for the modules of another.
        self._busy: dict[_Key, threading.Lock] = {}
        self._namespaces: dict[str, threading.Lock] = {}

    def compile(self, content: bytes, namespace: str = "") -> WasmModule:
        """The module in these bytes, whose clock runs; ModuleError where there is none."""
        digest = digest_content(content)
        # Callers of the same module wait for the one that compiles it.
        with self._hold(self._busy, (namespace, digest)):
            module = self._used.get(digest)
            if module is None:
                loaded = self._open(namespace).load(content, namespace)
                module = self._used.setdefault(digest, loaded)
        find_ticker().start()
        return module

    @contextmanager
    def _hold(self, locks: "dict[_Key, threading.Lock]", key: _Key) -> Iterator[None]:
        with self._lock:
            lock = locks.setdefault(key, threading.Lock())
        try:
            with lock:
                yield
        finally:
            with self._lock:
                locks.pop(key, None)

    def _open(self, namespace: str) -> CompiledModules:
        limits, is_guarded = self._limits, bool(namespace)
        with self._lock:
            if is_guarded not in self._compiled:
                self._compiled[is_guarded] = CompiledModules(
                    self._folder / ("of-namespaces" if is_guarded else "of-cluster"),
                    find_engine(),
                    self._compile_code,
                    limits.disk_bytes_of_namespaces if is_guarded else limits.disk_bytes,
                )
            return self._compiled[is_guarded]

    def _compile_code(self, content: bytes, namespace: str) -> bytes:
        limits = self._limits
        seconds = limits.seconds_in_namespaces if namespace else limits.seconds
        with ExitStack() as stack:
            if namespace:
                # One of each namespace stands in line at a time.
                stack.enter_context(self._find_line(namespace))
                stack.enter_context(self._compilers_for_namespaces)
            stack.enter_context(self._compilers)
            return self._compiler(content, seconds, limits.memory_bytes)

    def _find_line(self, namespace: str) -> threading.Lock:
        with self._lock:
            return self._namespaces.setdefault(namespace, threading.Lock())


# Several stores of one process have the same machine code, and the same few compilers.
_shared: "weakref.WeakValueDictionary[tuple[Path, CompileLimits], ModuleRuntime]" = (
    weakref.WeakValueDictionary()
)


def share_runtime(folder: Path, limits: CompileLimits) -> ModuleRuntime:
    """The runtime of this folder, made where there is none yet."""
    made = ModuleRuntime(folder, limits)
    return _shared.setdefault((folder, limits), made)


_restarted: "weakref.WeakSet[EpochTicker | ModuleRuntime]" = weakref.WeakSet()


def _restart_all() -> None:
    for each in list(_restarted):
        each.restart()


os.register_at_fork(after_in_child=_restart_all)
