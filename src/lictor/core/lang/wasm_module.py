"""A compiled Wasm module, and the Protocol of module sources."""

from typing import TYPE_CHECKING, Protocol

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.lang.wasm_records import ExecutionMode
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    import wasmtime


# Address space in bytes, for each engine of this process.
reserved: list[int] = []


def reserved_bytes() -> int:
    """The part of RLIMIT_DATA's count that is only reserved, not used."""
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
    """One module; many policies may run it, each in its own sandbox."""

    # sha256 of the whole file: modules with equal code and different metadata are different.
    digest: str
    metadata: ModuleMetadata | None
    native: "wasmtime.Module"
    engine: "wasmtime.Engine"

    @property
    def execution_mode(self) -> ExecutionMode:
        return self.metadata.execution_mode if self.metadata else ExecutionMode.WAPC


class Modules(Protocol):
    """A source of modules."""

    def load(self, address: str, namespace: str = "") -> WasmModule:
        """The module at `file://`, `https://` or `registry://`, with interruption enabled.

        `namespace` is that of the policy that names it, empty if it has none. Raises ModuleError if
        it is no module, LookupFailedError if it is unavailable, NotYetError if it is still loading.
        """
        ...


class NoModules:
    """Nowhere."""

    def load(self, address: str, namespace: str = "") -> WasmModule:  # noqa: ARG002
        raise NotProvidedError(f"module {address} is not given")
