"""Policies in WebAssembly: modules in, answers out. Protocols waPC, WASI and Rego compiled to Wasm.

Nothing here starts threads or reads files: the owner of modules ticks their engine and keeps what
was compiled.
"""

from typing import assert_never

from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import ExecutionMode, Guest, GuestLimits, HostCalls


def open_guest(
    module: WasmModule, mode: ExecutionMode, limits: GuestLimits, host: HostCalls
) -> Guest:
    """The guest; ModuleError where the module does not speak the protocol of `mode`."""
    match mode:
        case ExecutionMode.WAPC:
            from lictor.addons.kubewarden.runtime.wapc import WapcGuest

            return WapcGuest(module, limits, host)
        case ExecutionMode.WASI:
            from lictor.addons.kubewarden.runtime.wasi import WasiGuest

            return WasiGuest(module, limits, host)
        case ExecutionMode.OPA | ExecutionMode.GATEKEEPER:
            from lictor.addons.kubewarden.runtime.rego import RegoGuest

            return RegoGuest(module, mode, limits, host)
        case _:
            assert_never(mode)
