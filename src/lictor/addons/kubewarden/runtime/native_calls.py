"""Functions and memory of an instance that the host links, called without conversions.

Only functions whose parameters and results are all i32 go through here, and callers check the types
of a module's exports first (`check_signature`): a call of another type would read foreign memory.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lictor.addons.kubewarden.runtime.native import (
    VALUE_STRIDE,
    HostCallback,
    address_of,
    load_native,
)
from lictor.addons.kubewarden.runtime.sandbox import take_error, take_trap
from lictor.core.errors import GuestError, ModuleError

if TYPE_CHECKING:
    import wasmtime

_FIRST_READ = 1024
_OUTSIDE = "the policy names a place outside of its memory"


class StoppedError(Exception):
    """The guest was stopped: the name of its trap, or wasmtime's message."""


def check_signature(
    name: str, found: "wasmtime.FuncType", parameters: int, results: int, *, place: str
) -> None:
    """ModuleError unless the function takes and gives just so many i32."""
    import wasmtime

    i32 = wasmtime.ValType.i32()
    kinds = [*found.params, *found.results]
    fits = len(found.params) == parameters and len(found.results) == results
    if not fits or any(kind != i32 for kind in kinds):
        raise ModuleError(f"the module's {place} {name} has not the type of the protocol")


def find_context(store: "wasmtime.Store") -> int:
    """What wasmtime's own functions want of a store."""
    return address_of(store._context())  # noqa: SLF001 # no other gives it


class NativeFunction:
    """An exported function; not to be entered again while it runs."""

    __slots__ = ("_call", "_context", "_function", "_length", "_place", "_slots", "_trap")

    def __init__(self, context: int, function: "wasmtime.Func", parameters: int) -> None:
        self._length = max(parameters, 1)
        self._slots = (ctypes.c_uint32 * (self._length * VALUE_STRIDE))()
        self._trap = ctypes.c_void_p()
        self._function = function._func  # noqa: SLF001 # what wasmtime's own calls take
        self._context = context
        self._place = (
            ctypes.addressof(self._function),
            ctypes.addressof(self._slots),
            self._length,
            ctypes.addressof(self._trap),
        )
        self._call = load_native().call

    def __call__(self, *values: int) -> int:
        """The return value of the function; undefined if it returns nothing."""
        slots = self._slots
        place = 0
        for value in values:
            slots[place] = value
            place += VALUE_STRIDE
        error = self._call(self._context, *self._place)
        if error or self._trap:
            self._raise(error)
        result: int = slots[0]
        return result

    def _raise(self, error: int | None) -> None:
        trap, self._trap.value = self._trap.value, None
        raise StoppedError(take_error(error) if error else take_trap(trap or 0))


class NativeMemory:
    """The memory of an instance; every access is inside it or a GuestError."""

    __slots__ = ("_base", "_context", "_memory", "_place", "_size", "_view")

    def __init__(self, context: int, memory: "wasmtime.Memory") -> None:
        native = load_native()
        self._context = context
        self._memory = memory._memory  # noqa: SLF001 # what wasmtime's own calls take
        self._place = ctypes.addressof(self._memory)
        # The engine never moves a memory.
        self._base: int = native.memory_data(context, self._place) or 0
        self._size = native.memory_size
        self._view = memoryview(b"")

    def size(self) -> int:
        """How many bytes there are now."""
        held: int = self._size(self._context, self._place)
        return held

    def _look(self, at: int, length: int) -> memoryview:
        if at + length > len(self._view):
            held = self.size()
            if at + length > held:
                raise GuestError(_OUTSIDE)
            self._view = memoryview((ctypes.c_char * held).from_address(self._base)).cast("B")
        return self._view

    def write(self, at: int, content: bytes) -> None:
        """Put bytes there."""
        length = len(content)
        self._look(at, length)[at : at + length] = content

    def read_text(self, at: int, limit: int) -> bytes:
        """The bytes up to the next zero, of which there may be `limit`."""
        if at == 0:
            raise GuestError(_OUTSIDE)
        length = _FIRST_READ
        if at + length < len(self._view):
            # Most texts are short, and where memory is known already.
            content = self._view[at : at + length].tobytes()
            end = content.find(0)
            if 0 <= end <= limit:
                return content[:end]
        left = self.size() - at
        while True:
            length = min(length, left, limit + 1)
            content = self._look(at, length)[at : at + max(length, 0)].tobytes()
            end = content.find(0)
            if end >= 0:
                return content[:end]
            if length > limit:
                raise GuestError(
                    f"the policy was stopped: it writes more than the {limit} bytes "
                    "that it may write"
                )
            if length >= left:
                raise GuestError("the policy gave a text without an end")
            length *= 8


class CallbackTable:
    """Python functions as imports of one instance, and what the last of them raised."""

    __slots__ = ("_kept", "context", "raised", "store")

    def __init__(self, store: "wasmtime.Store") -> None:
        self.store = store
        self.context = find_context(store)
        self._kept: list[Any] = []
        self.raised: BaseException | None = None

    def define(
        self, function: Callable[..., int | None], parameters: int, results: int
    ) -> "wasmtime.Func":
        """A function of so many i32; its exception ends the guest and is kept in `raised`."""
        import wasmtime
        from wasmtime import _ffi as ffi

        i32 = wasmtime.ValType.i32()
        kind = wasmtime.FuncType([i32] * parameters, [i32] * results)
        callback = HostCallback(self._wrap(function, parameters))
        made = ffi.wasmtime_func_t()
        load_native().new_function(
            self.context, address_of(kind.ptr()), callback, None, None, ctypes.addressof(made)
        )
        # Freed by Python without a reference: it must live as long as the store.
        self._kept.append(callback)
        return wasmtime.Func._from_raw(made)  # noqa: SLF001 # no other makes one

    def _wrap(
        self, function: Callable[..., int | None], parameters: int
    ) -> Callable[[int, int, Any, int], int]:
        end = parameters * VALUE_STRIDE
        trap_new = load_native().trap_new

        def call(_environment: int, _caller: int, values: Any, _length: int) -> int:
            try:
                result = function(*values[0:end:VALUE_STRIDE])
                if result is not None:
                    values[0] = result
            except BaseException as error:  # noqa: BLE001 # nothing may fly through the guest
                self.raised = error
                trap: int = trap_new(b"host", 4)
                return trap
            return 0

        return call
