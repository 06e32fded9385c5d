"""Bytes of a module to machine code, for the engine that all guests of a process share."""

import functools
import hashlib
import mmap
import resource
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

from lictor.addons.kubewarden.runtime.metadata import read_metadata, refuse_long_lists
from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_module import WasmModule, reserved

if TYPE_CHECKING:
    import wasmtime

# The owner of an engine raises its epoch this often while guests run: the grain of time limits.
TICK_SECONDS = 0.01

# Changes whenever `make_engine` does in a way that older machine code does not know.
_SETTINGS = "2"
_CONFIGURATION: dict[str, bool | int] = {
    "epoch_interruption": True,
    "max_wasm_stack": 512 * 1024,
    # Sandboxes keep the address of a guest's memory: growing must never move it.
    "memory_may_move": False,
    # What no compiler of policies emits is off: each is code of wasmtime that a guest could attack.
    "wasm_threads": False,
    "wasm_memory64": False,
    "wasm_multi_memory": False,
    "wasm_gc": False,
    "wasm_function_references": False,
    "wasm_exceptions": False,
    "wasm_stack_switching": False,
    "wasm_custom_page_sizes": False,
    "wasm_wide_arithmetic": False,
    "wasm_component_model": False,
}
# Guests that run at a time, and those that stay warm. Each has 4 GiB of addresses and a guard, so
# that no access to memory needs to be checked.
_MEMORIES = 200
_RESERVED_BYTES = (4 << 30) + (64 << 20)
_POOL = {
    "total_memories": _MEMORIES,
    # Instances and tables of Rego, which bring their own memory, stay warm for each policy.
    "total_core_instances": 5_000,
    "total_tables": 5_000,
    "table_elements": 200_000,
    "max_core_instance_size": 16 << 20,
    # No guest has a stack or a heap of that kind.
    "total_stacks": 0,
    "total_gc_heaps": 0,
    # Each policy has its own limits, which are lower.
    "max_memory_size": 4 << 30,
    # Unused memory that is kept for new guests: up to so much of so many.
    "linear_memory_keep_resident": 4 << 20,
    "table_keep_resident": 256 << 10,
    "max_unused_warm_slots": 16,
}
_ELEMENT_BYTES = 8
_TABLE_BYTES = _POOL["total_tables"] * _POOL["table_elements"] * _ELEMENT_BYTES
# As wasmtime requests it: no swap is reserved. The number is Linux's, which Python does not name.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_MAGIC = b"\x00asm"
_CORE_VERSION = b"\x01\x00\x00\x00"


def make_engine() -> "wasmtime.Engine":
    """An engine whose guests stop when their epoch is over; one is enough for a process."""
    import wasmtime

    config = wasmtime.Config()
    for name, value in _CONFIGURATION.items():
        setattr(config, name, value)
    if _reserve_addresses():
        _reuse_memory(config)
    return wasmtime.Engine(config)


def compile_module(content: bytes, engine: "wasmtime.Engine") -> WasmModule:
    """The module in `content`; ModuleError where it is none. May take seconds."""
    import wasmtime

    problem = "module cannot be compiled"
    return _load(content, engine, lambda: wasmtime.Module(engine, content), problem)


def serialize(module: WasmModule) -> bytes:
    """The machine code of `module`, for `deserialize` under the same `settings_key`."""
    return bytes(module.native.serialize())


def deserialize(content: bytes, machine_code: bytes, engine: "wasmtime.Engine") -> WasmModule:
    """The module in `content` from what `serialize` gave for it; ModuleError where it does not fit.

    Machine code is run as it is: it must come from a place that no other user can write to.
    """
    import wasmtime

    return _load(content, engine, lambda: wasmtime.Module.deserialize(engine, machine_code))


def deserialize_file(content: bytes, path: str, engine: "wasmtime.Engine") -> WasmModule:
    """As `deserialize`, from a file that is mapped: processes share its pages.

    The file must not change while the module is in use.
    """
    import wasmtime

    return _load(content, engine, lambda: wasmtime.Module.deserialize_file(engine, path))


def digest_content(content: bytes) -> str:
    """The sha256 of a module's file, in hex."""
    return hashlib.sha256(content).hexdigest()


@functools.cache
def settings_key() -> str:
    """What compiled modules depend on beside their digest, to be part of their name on disk."""
    return f"wasmtime-{version('wasmtime')}-{_SETTINGS}"


def _reserve_addresses() -> bool:
    """Is there enough address space for all guests? Otherwise wasmtime would end the process.

    Tables can be written to from the beginning, so that they count against RLIMIT_DATA, which the
    processes of the webhook have: the limit is moved by what is no use of memory.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    unbacked = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_DATA, (soft + _TABLE_BYTES, hard))
        # Nothing is taken: no page of it is touched.
        mmap.mmap(-1, _MEMORIES * _RESERVED_BYTES, flags=mmap.MAP_PRIVATE, prot=0).close()
        mmap.mmap(-1, _TABLE_BYTES, flags=unbacked, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()
    except (OSError, ValueError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        return False
    reserved.append(_TABLE_BYTES)
    return True


def _reuse_memory(config: "wasmtime.Config") -> None:
    """Let instances take over memory that others gave back, wiped.

    Getting fresh pages from the kernel for every request takes half of the time of a guest in Go.
    """
    from wasmtime import _ffi as ffi

    pool = ffi.wasmtime_pooling_allocation_config_new()
    for name, value in _POOL.items():
        getattr(ffi, f"wasmtime_pooling_allocation_config_{name}_set")(pool, value)
    ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), pool)
    ffi.wasmtime_pooling_allocation_config_delete(pool)


def _load(
    content: bytes,
    engine: "wasmtime.Engine",
    load: Callable[[], "wasmtime.Module"],
    problem: str = "compiled module cannot be used",
) -> WasmModule:
    import wasmtime

    _refuse_others(content)
    try:
        native = load()
    except wasmtime.WasmtimeError as error:
        raise ModuleError(f"the {problem}: {_first_line(error)}") from error
    return WasmModule(digest_content(content), read_metadata(content), native, engine)


def _refuse_others(content: bytes) -> None:
    # wasmtime would take text for WAT and compile it.
    if content[:4] != _MAGIC:
        raise ModuleError("this is no WebAssembly module: it does not start with \\0asm")
    if content[4:8] != _CORE_VERSION:
        raise ModuleError("this is a WebAssembly component or of an unknown version, no module")
    refuse_long_lists(content)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join(lines[:3])
