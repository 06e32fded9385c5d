"""Input and output of Wasm policies, for any protocol."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Protocol

import msgspec

from lictor.core.errors import GuestError, GuestTimeError, SlowRequestError
from lictor.core.lang.yaml.plain_json import YamlFault, check_depth
from lictor.core.raw import Json, JsonObject

_MIB = 1024 * 1024

# Set by a thread that serves other requests: a guest that takes longer is stopped with
# SlowRequestError, and evaluated in another process.
brief_seconds: ContextVar[float | None] = ContextVar("brief_seconds", default=None)


def find_end(seconds: float | None) -> float:
    """The deadline of the host for a guest with this time limit."""
    seconds = shorten(seconds)
    return math.inf if seconds is None else time.monotonic() + seconds


def shorten(seconds: float | None) -> float | None:
    """The time limit of a guest on this thread, which may serve other requests."""
    brief = brief_seconds.get()
    return brief if brief is not None and (seconds is None or brief < seconds) else seconds


def time_error(seconds: float | None) -> Exception:
    """The error for a guest that was interrupted."""
    if shorten(seconds) != seconds:
        return SlowRequestError("a Wasm policy is slow")
    return GuestTimeError(
        f"the policy was stopped: it exceeded its time limit of {seconds:g} seconds"
    )


class ExecutionMode(StrEnum):
    """The protocol of a module, from its metadata."""

    WAPC = "kubewarden-wapc"
    OPA = "opa"
    GATEKEEPER = "gatekeeper"
    WASI = "wasi"


class GuestLimits(msgspec.Struct, frozen=True):
    """The limits of one evaluation."""

    # None: unlimited.
    seconds: float | None = 2.0
    memory_bytes: int = 256 * _MIB
    # Of a response, and of everything written before it.
    output_bytes: int = 16 * _MIB
    host_calls: int = 1_000


class GuestAnswer(msgspec.Struct, frozen=True):
    """The response of a policy to a request."""

    accepted: bool
    message: str | None = None
    code: int | None = None
    # The mutated object; None if it is unchanged.
    mutated_object: Json = None
    audit_annotations: Mapping[str, str] | None = None
    warnings: Sequence[str] | None = None


class SettingsAnswer(msgspec.Struct, frozen=True):
    """The response of a policy about its settings."""

    valid: bool
    message: str | None = None


class ContextResource(msgspec.Struct, frozen=True):
    """Objects of one kind in the data of a Rego policy."""

    api_version: str
    kind: str
    plural: str
    objects: Sequence[JsonObject]


class HostCalls(Protocol):
    """The host calls of one policy; thread-safe."""

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:
        """The response; raises HostCallError with the message for the policy."""
        ...

    def context(self) -> Sequence[ContextResource]:
        """The cluster data of a Rego policy; raises HostCallError if it is unavailable."""
        ...


class NoHostCalls:
    """A host that grants no calls."""

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:  # noqa: ARG002
        from lictor.core.errors import HostCallError

        raise HostCallError(f"{namespace}/{operation} is not granted to this policy")

    def context(self) -> Sequence[ContextResource]:
        return ()


class Guest(Protocol):
    """A module in the sandbox of one policy; thread-safe.

    Raises GuestError if there is no valid response, GuestTimeError if it takes too long.
    """

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer: ...

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer: ...


# --- input and output of guests as bytes; anything ambiguous is an error


_HIGHEST_CODE = 65535
# Otherwise the interpreter decides: C code recurses 996 levels deep in Python 3.11, and 9,999 in
# 3.13. More levels than objects may have, with their wrapping.
_MOST_LEVELS = 500
_ANSWER_FIELDS = tuple(f'"{name}"'.encode() for name in GuestAnswer.__struct_fields__)
_SETTINGS_FIELDS = tuple(f'"{name}"'.encode() for name in SettingsAnswer.__struct_fields__)

_decode_answer = msgspec.json.Decoder(GuestAnswer).decode
_decode_settings = msgspec.json.Decoder(SettingsAnswer).decode
# Keys sorted, as Kubewarden does: equal requests are equal text.
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_answer(content: bytes) -> GuestAnswer:
    """Parse the response to a request; raises GuestError if it is invalid."""
    try:
        answer = _decode_answer(content)
        _check_levels(content, answer.mutated_object)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, YamlFault) as error:
        raise GuestError(f"the response of the policy is invalid: {error}") from error
    if answer.code is not None and not 0 <= answer.code <= _HIGHEST_CODE:
        raise GuestError(
            f"the response of the policy is invalid: code {answer.code} is not an HTTP status"
        )
    _refuse_repeated(content, _ANSWER_FIELDS)
    return answer


def read_settings_answer(content: bytes) -> SettingsAnswer:
    """Parse the response about settings; raises GuestError if it is invalid."""
    try:
        answer = _decode_settings(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GuestError(f"the response about the settings is invalid: {error}") from error
    _refuse_repeated(content, _SETTINGS_FIELDS)
    return answer


def write_payload(value: Json) -> bytes:
    """Encode the input of a guest; raises GuestError if it is no JSON."""
    try:
        content = _encode(value)
        _check_levels(content, value)
    except (RecursionError, UnicodeEncodeError, TypeError, YamlFault) as error:
        raise GuestError(f"the request cannot be encoded as JSON: {error}") from error
    return content


def _check_levels(content: bytes, value: Json) -> None:
    if content.count(b"{") + content.count(b"[") > _MOST_LEVELS:
        check_depth(value, _MOST_LEVELS)


def _refuse_repeated(content: bytes, fields: tuple[bytes, ...]) -> None:
    """Reject duplicate members such as two `accepted`. Few texts need to be parsed again for it."""
    if b"\\u" not in content and all(content.count(field) < 2 for field in fields):
        return
    members = _decode_members(content)
    # Guests mostly write no whitespace: then the text is as long as its members together.
    length = 1 + sum(len(name.encode()) + len(value) + 4 for name, value in members.items())
    if length == len(content.strip()):
        return
    try:
        names = [name for name, _ in json.loads(content, object_pairs_hook=list)]
    except RecursionError as error:
        raise GuestError("the response of the policy is invalid: nested too deeply") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        member = ", ".join(repeated)
        raise GuestError(f"the response of the policy is invalid: duplicate {member}")
