"""The C functions of wasmtime that every request needs, without the layers before them.

wasmtime's own classes look types up and convert values one by one: calling a function through them
costs as much as the whole of a small policy. Types are checked once here, when a module is linked.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

from lictor.core.errors import ModuleError

# A value between guest and host takes 16 bytes; numbers of 32 bits stand in the first four.
VALUE_STRIDE: Final = 4

_POINTER: Final = ctypes.c_void_p
_SIZE: Final = ctypes.c_size_t

# What wasmtime calls when a guest calls its host: env, caller, values in and out, their number.
# The answer is a trap, or 0.
HostCallback = ctypes.CFUNCTYPE(_SIZE, _POINTER, _POINTER, ctypes.POINTER(ctypes.c_uint32), _SIZE)


class Frame(ctypes.Structure):
    """Where wasmtime puts what it gives back; made once for each sandbox, at a fixed place."""

    _fields_ = (
        ("instance", ctypes.c_uint64 * 2),
        ("memory", ctypes.c_uint64 * 4),
        ("function", ctypes.c_uint64 * 4),
        ("trap", ctypes.c_void_p),
        ("values", ctypes.c_uint32 * (8 * VALUE_STRIDE)),
    )


class NativeFunctions:
    """The functions, each with the types of its arguments.

    Those that run guests, or free much memory, let other threads go on meanwhile. All others keep
    Python's lock: getting it back from a thread that computes takes longer than they do.
    """

    def __init__(self) -> None:
        from wasmtime import _ffi as ffi

        _check_layout(ffi)
        # Separate handles: argument types are set for each handle.
        self._library: ctypes.CDLL = ctypes.PyDLL(str(ffi.filename))
        self._prepare_quick()
        self._library = ctypes.CDLL(str(ffi.filename))
        self._prepare_slow()
        # Kind first, then what it is.
        self.extern_offset: int = ffi.wasmtime_extern_t.of.offset

    def _prepare_slow(self) -> None:
        self.instantiate = self._function(
            _POINTER, "wasmtime_instance_pre_instantiate", *([_POINTER] * 4)
        )
        self.call = self._function(
            _POINTER,
            "wasmtime_func_call_unchecked",
            *(_POINTER, _POINTER, _POINTER, _SIZE, _POINTER),
        )
        self.delete_large_store = self._function(None, "wasmtime_store_delete", _POINTER)

    def _prepare_quick(self) -> None:
        pointers = functools.partial(self._function, _POINTER)
        self.store_new = pointers("wasmtime_store_new", _POINTER, _POINTER, _POINTER)
        self.store_context = pointers("wasmtime_store_context", _POINTER)
        self.delete_store = self._function(None, "wasmtime_store_delete", _POINTER)
        self.store_limiter = self._function(
            None, "wasmtime_store_limiter", _POINTER, *([ctypes.c_int64] * 5)
        )
        self.set_deadline = self._function(
            None, "wasmtime_context_set_epoch_deadline", _POINTER, ctypes.c_uint64
        )
        self.find_export = self._function(
            ctypes.c_bool,
            "wasmtime_instance_export_get",
            *(_POINTER, _POINTER, ctypes.c_char_p, _SIZE, _POINTER),
        )
        self.find_caller_export = self._function(
            ctypes.c_bool,
            "wasmtime_caller_export_get",
            *(_POINTER, ctypes.c_char_p, _SIZE, _POINTER),
        )
        self.memory_data = pointers("wasmtime_memory_data", _POINTER, _POINTER)
        self.memory_size = self._function(_SIZE, "wasmtime_memory_data_size", _POINTER, _POINTER)
        self.trap_new = self._function(_SIZE, "wasmtime_trap_new", ctypes.c_char_p, _SIZE)
        self.define_function = pointers(
            "wasmtime_linker_define_func_unchecked",
            *(_POINTER, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE),
            *(_POINTER, HostCallback, _POINTER, _POINTER),
        )
        self.new_function = self._function(
            None,
            "wasmtime_func_new_unchecked",
            *(_POINTER, _POINTER, HostCallback, _POINTER, _POINTER, _POINTER),
        )

    def _function(self, result: Any, name: str, *arguments: Any) -> Callable[..., Any]:
        function = getattr(self._library, name)
        function.restype = result
        function.argtypes = list(arguments)
        found: Callable[..., Any] = function
        return found


def _check_layout(ffi: Any) -> None:
    """Refuse a release of wasmtime that writes more into a frame than fits."""
    sizes = (
        (ffi.wasmtime_instance_t, Frame.instance.size),
        (ffi.wasmtime_extern_t, Frame.memory.size),
        (ffi.wasmtime_extern_t, Frame.function.size),
    )
    stride = ctypes.sizeof(ctypes.c_uint32) * VALUE_STRIDE
    if ctypes.sizeof(ffi.wasmtime_val_raw_t) != stride or any(
        ctypes.sizeof(kind) > size for kind, size in sizes
    ):
        raise ModuleError("this release of wasmtime is not known: install another one")


@functools.cache
def load_native() -> NativeFunctions:
    """The functions; imports wasmtime."""
    return NativeFunctions()


def address_of(pointer: Any) -> int:
    """Where a pointer of wasmtime points to."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
