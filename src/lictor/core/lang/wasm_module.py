"""A Wasm module that was read and compiled, and where such modules come from."""

from typing import TYPE_CHECKING, Protocol

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.lang.wasm_records import ExecutionMode
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    import wasmtime


# Address space in bytes, for each engine that this process made.
reserved: list[int] = []


def reserved_bytes() -> int:
    """How much of what RLIMIT_DATA counts is only reserved, and nothing that this process uses."""
    return sum(reserved)


class ModuleMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The custom section `io.kubewarden.metadata`."""

    protocol_version: str | None = None
    rules: tuple[JsonObject, ...] = ()
    annotations: dict[str, str] | None = None
    mutating: bool = False
    background_audit: bool = True
    execution_mode: ExecutionMode = ExecutionMode.WAPC
    policy_type: str = "kubernetes"
    context_aware_resources: tuple[JsonObject, ...] = ()
    host_capabilities: tuple[str, ...] = ()
    minimum_kubewarden_version: str | None = None


class WasmModule(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One module; many policies may run it, each in a sandbox of its own."""

    # sha256 of the whole file: two modules of equal code and different metadata are two.
    digest: str
    metadata: ModuleMetadata | None
    native: "wasmtime.Module"
    engine: "wasmtime.Engine"

    @property
    def execution_mode(self) -> ExecutionMode:
        return self.metadata.execution_mode if self.metadata else ExecutionMode.WAPC


class Modules(Protocol):
    """Where modules come from."""

    def load(self, address: str, namespace: str = "") -> WasmModule:
        """The module at `file://`, `https://` or `registry://`; its engine is ticked.

        `namespace` is that of the policy that names it, empty where it has none. ModuleError
        where it is no module, LookupFailedError where it cannot be had, NotYetError where it is on
        its way.
        """
        ...


class NoModules:
    """Nowhere."""

    def load(self, address: str, namespace: str = "") -> WasmModule:  # noqa: ARG002
        raise NotProvidedError(f"module {address} was not given")
