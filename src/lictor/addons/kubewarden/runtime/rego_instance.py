"""One running Rego module: its memory, its data, one evaluation after the other.

An instance stays warm: before each evaluation the module's heap is set back to where it stood after
the data was read, so that nothing of the request before is left. One that trapped, ran out of time
or grew large is never used again.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lictor.addons.kubewarden.runtime.native_calls import (
    CallbackTable,
    NativeFunction,
    NativeMemory,
    StoppedError,
    check_signature,
)
from lictor.core.errors import GuestError, ModuleError
from lictor.core.lang.rego.values import RegoValue, dump_value, parse_value

if TYPE_CHECKING:
    import wasmtime

# Answers a builtin by its number; None where it is undefined.
Dispatch = Callable[[int, list[RegoValue]], "tuple[RegoValue] | None"]

_PAGE = 65536
_IMPORTS = {
    "opa_abort": (1, 0),
    "opa_println": (1, 0),
    **{f"opa_builtin{count}": (count + 2, 1) for count in range(5)},
}
# Parameters and results of what a module must offer, and since ABI 1.2 or 1.3 also offers.
_EXPORTS = {
    "builtins": (0, 1),
    "entrypoints": (0, 1),
    "opa_malloc": (1, 1),
    "opa_json_parse": (2, 1),
    "opa_json_dump": (1, 1),
    "opa_heap_ptr_get": (0, 1),
    "opa_heap_ptr_set": (1, 0),
    "opa_eval_ctx_new": (0, 1),
    "opa_eval_ctx_set_input": (2, 0),
    "opa_eval_ctx_set_data": (2, 0),
    "opa_eval_ctx_get_result": (1, 1),
    "eval": (1, 1),
}
_LATER_EXPORTS = {
    "opa_eval": (7, 1),
    "opa_eval_ctx_set_entrypoint": (2, 0),
    "opa_value_dump": (1, 1),
    "opa_value_parse": (2, 1),
}
_VERSIONS = ((1, 0), (1, 1), (1, 2), (1, 3))


def check_module(native: "wasmtime.Module") -> None:
    """ModuleError unless imports and exports are those of OPA's protocol."""
    import wasmtime

    for wanted in native.imports:
        kind, name = wanted.type, wanted.name or ""
        if wanted.module == "env" and name == "memory" and isinstance(kind, wasmtime.MemoryType):
            continue
        if wanted.module != "env" or name not in _IMPORTS:
            raise ModuleError(
                f"the module imports {wanted.module}.{name}, which no Rego policy does"
            )
        if not isinstance(kind, wasmtime.FuncType):
            raise ModuleError(f"the module imports {name}, but not as a function")
        check_signature(name, kind, *_IMPORTS[name], place="import")
    offered = {each.name: each.type for each in native.exports}
    for name, sizes in {**_EXPORTS, **_LATER_EXPORTS}.items():
        export = offered.get(name)
        if isinstance(export, wasmtime.FuncType):
            check_signature(name, export, *sizes, place="export")
        elif name in _EXPORTS:
            raise ModuleError(f"the module has no function {name}: it is no Rego policy")


class RegoInstance:
    """A module with separate memory; used by one thread at a time."""

    def __init__(
        self,
        native: "wasmtime.Module",
        host: CallbackTable,
        dispatch: Dispatch,
        tell: Callable[[str], None],
        *,
        output_bytes: int,
    ) -> None:
        self._dispatch = dispatch
        self._tell = tell
        self._limit = output_bytes
        self._in_builtin = False
        self._host = host
        self._store = host.store
        self._instance, self._memory = self._link(native)
        self._functions = self._find_functions()
        self._read_version()
        # A first allocation sets up the heap.
        self._functions["opa_malloc"](0)
        self._base = self._functions["opa_heap_ptr_get"]()
        self._heap = self._base
        self._data = 0
        # What `_data` was read from.
        self.data_key: object = None
        self._data_size = self._memory.size()

    def _link(self, native: "wasmtime.Module") -> "tuple[wasmtime.Instance, NativeMemory]":
        import wasmtime

        externs: list[wasmtime.Func | wasmtime.Memory] = []
        memory: wasmtime.Memory | None = None
        for wanted in native.imports:
            if isinstance(wanted.type, wasmtime.MemoryType):
                memory = self._make_memory(wanted.type)
                externs.append(memory)
            else:
                externs.append(self._define(wanted.name or ""))
        try:
            # Its start function, if there is one, fails where it calls the host: there is no
            # instance yet.
            instance = wasmtime.Instance(self._store, native, externs)
        except wasmtime.Trap as trap:
            code = trap.trap_code
            raise StoppedError(code.name if code else trap.message) from trap
        except wasmtime.WasmtimeError as error:
            raise ModuleError(f"the module cannot be started: {error}") from error
        exported = instance.exports(self._store).get("memory")
        found = exported if isinstance(exported, wasmtime.Memory) else memory
        if found is None:
            raise ModuleError("the module has no memory: it is no Rego policy")
        return instance, NativeMemory(self._host.context, found)

    def _make_memory(self, kind: "wasmtime.MemoryType") -> "wasmtime.Memory":
        import wasmtime

        try:
            return wasmtime.Memory(self._store, kind)
        except wasmtime.WasmtimeError as error:
            raise ModuleError(f"the module wants more memory than it may have: {error}") from error

    def _define(self, name: str) -> "wasmtime.Func":
        actions: dict[str, Callable[..., int | None]] = {
            "opa_abort": self._abort,
            "opa_println": self._print,
        }
        return self._host.define(actions.get(name, self._call_builtin), *_IMPORTS[name])

    def _find_functions(self) -> Mapping[str, NativeFunction]:
        import wasmtime

        exports = self._instance.exports(self._store)
        found: dict[str, NativeFunction] = {}
        for name, (parameters, _) in {**_EXPORTS, **_LATER_EXPORTS}.items():
            function = exports.get(name)
            if isinstance(function, wasmtime.Func):
                found[name] = NativeFunction(self._host.context, function, parameters)
        return found

    def _read_version(self) -> None:
        import wasmtime

        exports = self._instance.exports(self._store)
        values: list[int] = []
        for name in ("opa_wasm_abi_version", "opa_wasm_abi_minor_version"):
            found = exports.get(name)
            value = found.value(self._store) if isinstance(found, wasmtime.Global) else None
            values.append(value if isinstance(value, int) else -1)
        if tuple(values) not in _VERSIONS:
            raise ModuleError(
                "the module speaks another version of OPA's protocol "
                f"({values[0]}.{values[1]}): 1.0 to 1.3 are known"
            )

    def read_table(self, function: str) -> RegoValue:
        """What `builtins` or `entrypoints` gives: names and their numbers."""
        return self._parse(self._read_json(self._functions[function]()))

    def _read_json(self, address: int) -> bytes:
        return self._memory.read_text(self._functions["opa_json_dump"](address), self._limit)

    def _parse(self, content: bytes) -> RegoValue:
        try:
            return parse_value(content.decode())
        except ValueError as error:
            raise GuestError(f"the policy gave a value that cannot be read: {error}") from error

    def set_data(self, content: bytes, key: object) -> None:
        """Read the data once; it stays for all evaluations until the next call."""
        self._functions["opa_heap_ptr_set"](self._base)
        self._data = self._store_json(content)
        self._heap = self._functions["opa_heap_ptr_get"]()
        self.data_key = key
        self._data_size = self._memory.size()

    def _store_json(self, content: bytes) -> int:
        address = self._functions["opa_malloc"](len(content))
        self._memory.write(address, content)
        value = self._functions["opa_json_parse"](address, len(content))
        if value == 0:
            raise GuestError("the policy could not read what it was given")
        return value

    def evaluate(self, content: bytes) -> bytes:
        """The JSON of the first entrypoint's result for this input."""
        run = self._functions.get("opa_eval")
        if run is None or not self._has_capacity(len(content)):
            return self._evaluate_in_steps(content)
        self._memory.write(self._heap, content)
        end = self._heap + len(content)
        address = run(0, 0, self._data, self._heap, len(content), end, 0)
        return self._memory.read_text(address, self._limit)

    def _has_capacity(self, length: int) -> bool:
        return self._heap + length <= self._memory.size()

    def _evaluate_in_steps(self, content: bytes) -> bytes:
        """As ABI 1.1 has it; also for an input that the memory must first grow for."""
        call = self._functions
        call["opa_heap_ptr_set"](self._heap)
        given = self._store_json(content)
        context = call["opa_eval_ctx_new"]()
        call["opa_eval_ctx_set_input"](context, given)
        call["opa_eval_ctx_set_data"](context, self._data)
        if "opa_eval_ctx_set_entrypoint" in call:
            call["opa_eval_ctx_set_entrypoint"](context, 0)
        call["eval"](context)
        return self._read_json(call["opa_eval_ctx_get_result"](context))

    def memory_bytes(self) -> int:
        """How much memory it has now."""
        return self._memory.size()

    def grown(self) -> int:
        """By how many bytes the memory has grown since the data was read."""
        return self._memory.size() - self._data_size

    def _call_builtin(self, number: int, _context: int, *addresses: int) -> int:
        if self._in_builtin:
            raise GuestError("the policy called a builtin out of a builtin")
        self._in_builtin = True
        arguments = [self._read_argument(address) for address in addresses]
        answer = self._dispatch(number, arguments)
        address = 0 if answer is None else self._store_value(dump_value(answer[0]))
        self._in_builtin = False
        return address

    def _read_argument(self, address: int) -> RegoValue:
        # Only the value's own dump keeps sets; modules of ABI 1.1 may have none.
        dump = self._functions.get("opa_value_dump") or self._functions["opa_json_dump"]
        return self._parse(self._memory.read_text(dump(address), self._limit))

    def _store_value(self, content: bytes) -> int:
        if len(content) > self._limit:
            raise GuestError(f"a builtin made more than {self._limit} bytes")
        address = self._functions["opa_malloc"](len(content))
        self._memory.write(address, content)
        parse = self._functions.get("opa_value_parse") or self._functions["opa_json_parse"]
        value = parse(address, len(content))
        if value == 0:
            raise GuestError("the policy could not read what a builtin gave")
        return value

    def _abort(self, address: int) -> None:
        text = self._memory.read_text(address, _PAGE).decode(errors="replace")
        raise GuestError(f"the policy ended itself: {text}")

    def _print(self, address: int) -> None:
        self._tell(self._memory.read_text(address, self._limit).decode(errors="replace"))
