"""Rego modules opened for a test, with a cluster that holds what the test says."""

import os
from collections.abc import Iterable, Sequence
from functools import cache

import wasmtime
from opa_program import module_folder

from lictor.addons.kubewarden.runtime.engine import (
    compile_module,
    deserialize,
    digest_content,
    make_engine,
    serialize,
    settings_key,
)
from lictor.addons.kubewarden.runtime.rego import RegoGuest
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import (
    ContextResource,
    ExecutionMode,
    GuestLimits,
    HostCalls,
    NoHostCalls,
)
from lictor.core.raw import JsonObject


@cache
def _engine() -> wasmtime.Engine:
    return make_engine()


@cache
def compile_once(content: bytes) -> WasmModule:
    """The module; compiling takes long on a busy machine, and what was compiled is kept."""
    kept = module_folder() / f"{digest_content(content)}.{settings_key()}"
    if kept.exists():
        return deserialize(content, kept.read_bytes(), _engine())
    module = compile_module(content, _engine())
    kept.parent.mkdir(parents=True, exist_ok=True)
    made = kept.with_suffix(f".{os.getpid()}")
    made.write_bytes(serialize(module))
    made.replace(kept)
    return module


def open_rego(
    content: bytes,
    mode: ExecutionMode,
    limits: GuestLimits = GuestLimits(),  # noqa: B008  (frozen)
    host: HostCalls | None = None,
) -> RegoGuest:
    return RegoGuest(compile_once(content), mode, limits, host or NoHostCalls())


class Cluster(NoHostCalls):
    """A host that gives these objects and keeps what the policy says on the way."""

    def __init__(self, resources: Sequence[ContextResource] = ()) -> None:
        self.resources = resources
        self.calls: list[tuple[str, str, bytes]] = []

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:
        self.calls.append((namespace, operation, payload))
        return b""

    def context(self) -> Sequence[ContextResource]:
        return self.resources


def group_objects(objects: Iterable[JsonObject]) -> tuple[ContextResource, ...]:
    """Objects by kind, as a host lists them."""
    kinds: dict[tuple[str, str], list[JsonObject]] = {}
    for each in objects:
        kinds.setdefault((each["apiVersion"], each["kind"]), []).append(each)
    return tuple(
        ContextResource(version, kind, f"{kind.lower()}s", found)
        for (version, kind), found in kinds.items()
    )
