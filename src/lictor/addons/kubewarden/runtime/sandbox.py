"""One guest with separate memory: started, called, and stopped after its time limit."""

import contextlib
import ctypes
import math
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Protocol

import msgspec

from lictor.addons.kubewarden.runtime.engine import TICK_SECONDS
from lictor.addons.kubewarden.runtime.native import VALUE_STRIDE, Frame, load_native
from lictor.core.errors import GuestError, HostCallError
from lictor.core.lang.wasm_records import GuestLimits, HostCalls, find_end, shorten, time_error

_MEMORY = b"memory"
_BINDING = b"kubewarden"
# Giving so much memory back takes long enough to let others go on meanwhile.
_LARGE_BYTES = 8 * 1024 * 1024
_NO_MEMORY = memoryview(b"")
# 8 bytes each: tables of Go have one element for each function of the program.
_TABLE_ELEMENTS = 200_000
_TABLES = 4
# wasmtime adds it to the epoch: far enough for ever, and never beyond 64 bits.
_FOR_EVER = 1 << 40
_TRAP_WORDS = {
    "STACK_OVERFLOW": "its stack is full",
    "MEMORY_OUT_OF_BOUNDS": "it reached outside of its memory",
    "UNREACHABLE": "it gave up (unreachable)",
    "INTEGER_DIVISION_BY_ZERO": "it divided by zero",
}


class ExitError(Exception):
    """The guest ended itself with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class GuestRun:
    """What the host keeps while a guest runs; protocols add theirs."""

    sandbox: "Sandbox"

    def __init__(self, limits: GuestLimits, host: HostCalls) -> None:
        self.limits = limits
        # What went wrong in the host while the guest was calling it.
        self.failure: BaseException | None = None
        # Did the guest stop itself, rather than be stopped?
        self.has_trapped = False
        self._ends_at = find_end(limits.seconds)
        self._host = host
        self._host_calls_left = limits.host_calls
        self._output_left = limits.output_bytes

    def take_output(self, size: int) -> None:
        """Count what the guest writes, or has written for it."""
        self._output_left -= size
        if self._output_left < 0:
            raise GuestError(
                f"the policy was stopped: it writes more than the {self.limits.output_bytes} bytes "
                "that it may write"
            )

    def read_output(self, address: int, length: int) -> bytes:
        """Output of the guest; counted."""
        self.take_output(length)
        return self.sandbox.read(address, length)

    def call_host(self, places: Sequence[int]) -> bytes:
        """The host's answer to what stands at four places; HostCallError is for the guest."""
        self._host_calls_left -= 1
        if self._host_calls_left < 0:
            raise GuestError(
                f"the policy was stopped: it makes more than {self.limits.host_calls} host calls"
            )
        pairs = zip(places[::2], places[1::2], strict=True)
        binding, namespace, operation, payload = (self.read_output(*pair) for pair in pairs)
        if binding != _BINDING:
            raise HostCallError(f"unknown binding: {binding.decode('utf-8', 'replace')}")
        try:
            return self._host.call(
                namespace.decode("utf-8", "replace"), operation.decode("utf-8", "replace"), payload
            )
        finally:
            self.check_time()

    def log(self, level: str, text: str) -> None:
        """Log text that the guest wrote to its output, as if it had logged it by its host."""
        line = msgspec.json.encode({"level": level, "message": text})
        # A host that takes no lines is no fault of the policy.
        with contextlib.suppress(HostCallError):
            self._host.call("tracing", "log", line)

    def time_left(self) -> float:
        """How many seconds it may still take; more than any sleep where it may take for ever."""
        return self._ends_at - time.monotonic()

    def check_time(self) -> None:
        """End the guest after its time limit: while it does not compute, epochs may be rare."""
        if self.time_left() < 0:
            raise time_error(self.limits.seconds)


# A guest calls its host on the thread that called the guest, so that this is that guest's.
running: ContextVar[GuestRun] = ContextVar("running_guest")


class StartableModule(Protocol):
    """What a sandbox needs of a linked module: addresses of wasmtime's objects, and limits."""

    engine: int
    prepared: int
    limits: GuestLimits


class Sandbox:
    """A store with one instance in it; used by one thread at a time."""

    _store: int | None = None

    def __init__(self, linked: StartableModule) -> None:
        self._native = load_native()
        self._linked = linked
        self._frame = frame = Frame()
        self._store = None
        self._context = 0
        self.base = 0
        # The size of the memory when it was last read; may be read by any thread.
        self.known_bytes = 0
        self._view = _NO_MEMORY
        start = ctypes.addressof(frame)
        self._places = (
            start + Frame.instance.offset,
            start + Frame.memory.offset,
            start + Frame.function.offset,
            start + Frame.trap.offset,
            start + Frame.values.offset,
        )
        self._memory = self._places[1] + self._native.extern_offset

    def start(self, run: GuestRun) -> None:
        """Make a new instance; what it runs while it is made counts against its time."""
        native = self._native
        run.sandbox = self
        self.close()
        store = self._store = native.store_new(self._linked.engine, None, None)
        self._context = context = native.store_context(store)
        limits = self._linked.limits
        native.store_limiter(store, limits.memory_bytes, _TABLE_ELEMENTS, 1, _TABLES, 1)
        self.set_deadline()
        instance, memory, _, trap, _ = self._places
        token = running.set(run)
        try:
            error = native.instantiate(self._linked.prepared, context, instance, trap)
        finally:
            running.reset(token)
        if error or self._frame.trap:
            self._raise(run, error)
        if native.find_export(context, instance, _MEMORY, len(_MEMORY), memory):
            self.base = native.memory_data(context, self._memory)

    def set_deadline(self) -> None:
        """Give the guest its time, from now on."""
        self._native.set_deadline(self._context, count_ticks(self._linked.limits.seconds))

    def call(self, run: GuestRun, name: bytes, arguments: Iterable[int] = ()) -> int:
        """The first result of an export whose type was checked; the owner's `failure` is raised."""
        native, frame = self._native, self._frame
        instance, _, function, trap, values = self._places
        if not native.find_export(self._context, instance, name, len(name), function):
            raise GuestError(f"the policy has no function {name.decode()}")
        for place, value in enumerate(arguments):
            frame.values[place * VALUE_STRIDE] = value
        run.sandbox = self
        token = running.set(run)
        try:
            error = native.call(self._context, function + native.extern_offset, values, 8, trap)
        finally:
            running.reset(token)
        if error or frame.trap:
            self._raise(run, error)
        first: int = frame.values[0]
        return first

    @property
    def memory_bytes(self) -> int:
        """How much memory the guest has now."""
        size: int = self._native.memory_size(self._context, self._memory) if self.base else 0
        self.known_bytes = size
        return size

    def view(self, address: int, length: int) -> memoryview:
        """The guest's memory, if it reaches so far; GuestError where it does not.

        To be used at once: when the guest ends, its memory does.
        """
        if address + length > len(self._view):
            self._look_again(address + length)
        return self._view

    def read(self, address: int, length: int) -> bytes:
        """What stands in the guest's memory."""
        return self.view(address, length)[address : address + length].tobytes()

    def write(self, address: int, content: bytes) -> None:
        """Put `content` into the guest's memory."""
        length = len(content)
        self.view(address, length)[address : address + length] = content

    def _look_again(self, end: int) -> None:
        """Memory may have grown since it was looked at; it never shrinks and never moves."""
        size = self.memory_bytes
        if end > size:
            raise GuestError("the policy names a place outside of its memory")
        self._view = memoryview((ctypes.c_char * size).from_address(self.base)).cast("B")

    def find_memory(self, caller: int) -> None:
        """A guest that calls its host while it is made has memory, which is not known here yet."""
        place = self._places[1]
        if not self.base and self._native.find_caller_export(caller, _MEMORY, len(_MEMORY), place):
            self.base = self._native.memory_data(self._context, self._memory)

    def close(self) -> None:
        """Give back all that the guest took."""
        if self._store is None:
            return
        native, is_large = self._native, self.memory_bytes > _LARGE_BYTES
        store, self._store, self.base, self._view = self._store, None, 0, _NO_MEMORY
        (native.delete_large_store if is_large else native.delete_store)(store)

    def __del__(self) -> None:
        self.close()

    def _raise(self, run: GuestRun, error: int | None) -> None:
        trap, self._frame.trap = self._frame.trap, None
        message = take_error(error) if error else take_trap(trap)
        failure, run.failure = run.failure, None
        if failure is not None:
            raise failure
        if message == "INTERRUPT":
            raise time_error(self._linked.limits.seconds)
        run.has_trapped = True
        raise trap_error(message, self.memory_bytes, self._linked.limits.memory_bytes)


def count_ticks(seconds: float | None) -> int:
    """How many ticks of the engine a guest may run for; fewer for a thread that serves others."""
    seconds = shorten(seconds)
    if seconds is None:
        return _FOR_EVER
    # The first tick may come at once: one more, so that no guest gets less than its limit.
    return min(_FOR_EVER, math.ceil(seconds / TICK_SECONDS) + 1)


def trap_error(told: str, held: int, limit: int) -> GuestError:
    """What to raise for a guest that trapped with so much memory of that which it may have."""
    words = _TRAP_WORDS.get(told, told)
    memory = f", with {held >> 20} of the {limit >> 20} MiB of memory that it may have"
    return GuestError(f"the policy was stopped: {words}{memory if held * 2 >= limit else ''}")


def take_trap(trap: int) -> str:
    """The name of a trap's code, or its message; the trap is freed."""
    import wasmtime
    from wasmtime import _ffi as ffi

    taken = wasmtime.Trap._from_ptr(  # noqa: SLF001 # no other takes one
        ctypes.cast(trap, ctypes.POINTER(ffi.wasm_trap_t))
    )
    code = taken.trap_code
    return code.name if code is not None else taken.message


def take_error(error: int) -> str:
    """The message of an error of wasmtime; it is freed."""
    import wasmtime
    from wasmtime import _ffi as ffi

    pointer = ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t))
    return str(wasmtime.WasmtimeError._from_ptr(pointer))  # noqa: SLF001 # no other takes one
