"""What goes into a Wasm policy and what comes out, whatever protocol it speaks."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Protocol

import msgspec

from lictor.raw import Json, JsonObject

_MIB = 1024 * 1024

# Set by a thread that serves others: a guest that is not done in so many seconds is stopped with
# SlowRequestError, and judged elsewhere.
brief_seconds: ContextVar[float | None] = ContextVar("brief_seconds", default=None)


class ExecutionMode(StrEnum):
    """How a module is spoken to; written in its metadata."""

    WAPC = "kubewarden-wapc"
    OPA = "opa"
    GATEKEEPER = "gatekeeper"
    WASI = "wasi"


class GuestLimits(msgspec.Struct, frozen=True):
    """What one evaluation may take."""

    # None: for ever.
    seconds: float | None = 2.0
    memory_bytes: int = 256 * _MIB
    # Of an answer, and of everything that it writes on the way.
    output_bytes: int = 16 * _MIB
    host_calls: int = 1_000


class GuestAnswer(msgspec.Struct, frozen=True):
    """What a policy says of a request."""

    accepted: bool
    message: str | None = None
    code: int | None = None
    # The object as it should be; None where it stays as it is.
    mutated_object: Json = None
    audit_annotations: Mapping[str, str] | None = None
    warnings: Sequence[str] | None = None


class SettingsAnswer(msgspec.Struct, frozen=True):
    """What a policy says of its settings."""

    valid: bool
    message: str | None = None


class ContextResource(msgspec.Struct, frozen=True):
    """Objects of one kind that a Rego policy finds in its data."""

    api_version: str
    kind: str
    plural: str
    objects: Sequence[JsonObject]


class HostCalls(Protocol):
    """What a policy may ask while it runs; made for one policy, used by any thread."""

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:
        """The answer; HostCallError with the text that the policy is told."""
        ...

    def context(self) -> Sequence[ContextResource]:
        """What a Rego policy may read of the cluster; HostCallError where it cannot be had."""
        ...


class NoHostCalls:
    """A host that grants nothing."""

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:  # noqa: ARG002
        from lictor.errors import HostCallError

        raise HostCallError(f"{namespace}/{operation} is not granted to this policy")

    def context(self) -> Sequence[ContextResource]:
        return ()


class Guest(Protocol):
    """A module in the sandbox of one policy; used by any thread.

    GuestError where it gives no answer that can be read, GuestTimeError where it runs too long.
    """

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer: ...

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer: ...
