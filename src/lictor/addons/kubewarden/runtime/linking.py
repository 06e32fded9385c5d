"""A module and the functions that its host offers, brought together once for all its instances."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lictor.addons.kubewarden.runtime.native import (
    VALUE_STRIDE,
    HostCallback,
    address_of,
    load_native,
)
from lictor.addons.kubewarden.runtime.sandbox import running, take_error
from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import GuestLimits

if TYPE_CHECKING:
    import wasmtime


class HostFunction(NamedTuple):
    """What a guest can import: its values in order, `i` for 32 bits and `I` for 64.

    `run` gets the sandbox's owner, then the low 32 bits of each value, unsigned.
    """

    parameters: str
    results: str
    run: Callable[..., int | None]


HostFunctions = Mapping[tuple[str, str], HostFunction]


class LinkedModule:
    """A module whose imports are resolved, to be started as often as it is needed."""

    def __init__(self, module: WasmModule, functions: HostFunctions, limits: GuestLimits) -> None:
        import wasmtime

        self.module = module
        self.limits = limits
        self._callbacks: list[Any] = []
        self.exports = {export.name: export.type for export in module.native.exports}
        linker = wasmtime.Linker(module.engine)
        wanted = {(item.module, item.name or "") for item in module.native.imports}
        for module_name, name in sorted(wanted):
            self._define(linker, module_name, name, functions)
        try:
            self._prepared = linker.instantiate_pre(module.native)
        except wasmtime.WasmtimeError as error:
            raise ModuleError(f"the module does not fit its host: {error}") from error
        self.prepared = address_of(self._prepared.ptr())
        self.engine = address_of(module.engine.ptr())

    def _define(
        self, linker: "wasmtime.Linker", module: str, name: str, functions: HostFunctions
    ) -> None:
        function = functions.get((module, name))
        if function is None:
            raise ModuleError(f"the module needs {module}.{name}, which no host of policies has")
        callback, kind = _make_callback(function), _function_type(function)
        self._callbacks.append(callback)
        error = load_native().define_function(
            address_of(linker.ptr()),
            *(module.encode(), len(module.encode()), name.encode(), len(name.encode())),
            *(address_of(kind.ptr()), callback, None, None),
        )
        if error:
            raise ModuleError(f"{module}.{name} cannot be given to the module: {take_error(error)}")

    def has_function(self, name: str, parameters: str, results: str) -> bool:
        """Does it export this function? ModuleError where it has another type."""
        import wasmtime

        kind = self.exports.get(name)
        if kind is None:
            return False
        if isinstance(kind, wasmtime.FuncType):
            found = [_letters(kind.params), _letters(kind.results)]
            if found == [parameters, results]:
                return True
        raise ModuleError(f"the module exports {name} with a type that no host can call")

    def require_memory(self) -> None:
        """ModuleError if the host could not read the guest's output."""
        import wasmtime

        if not isinstance(self.exports.get("memory"), wasmtime.MemoryType):
            raise ModuleError("the module exports no memory")


@functools.cache
def _make_callback(function: HostFunction) -> Any:  # a ctypes function
    run_function = function.run
    end = len(function.parameters) * VALUE_STRIDE
    trap_new = load_native().trap_new

    def callback(_env: int, caller: int, values: Any, _count: int) -> int:  # a ctypes pointer
        run = running.get()
        try:
            if not run.sandbox.base:
                run.sandbox.find_memory(caller)
            # An empty slice of a pointer has one element.
            result = run_function(run, *values[0:end:VALUE_STRIDE]) if end else run_function(run)
            if result is not None:
                values[0] = result
        except BaseException as error:  # noqa: BLE001 # nothing may fly through the guest
            run.failure = error
            trap: int = trap_new(b"host", 4)
            return trap
        return 0

    return HostCallback(callback)


def _function_type(function: HostFunction) -> "wasmtime.FuncType":
    import wasmtime

    kinds = {"i": wasmtime.ValType.i32, "I": wasmtime.ValType.i64}
    return wasmtime.FuncType(
        [kinds[letter]() for letter in function.parameters],
        [kinds[letter]() for letter in function.results],
    )


def _letters(kinds: "Iterable[wasmtime.ValType]") -> str:
    return "".join({"i32": "i", "i64": "I"}.get(str(kind), "?") for kind in kinds)
