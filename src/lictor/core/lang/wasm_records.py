"""What goes into a Wasm policy and what comes out, whatever protocol it speaks."""

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

# Set by a thread that serves others: a guest that is not done in so many seconds is stopped with
# SlowRequestError, and judged elsewhere.
brief_seconds: ContextVar[float | None] = ContextVar("brief_seconds", default=None)


def find_end(seconds: float | None) -> float:
    """Until when the host may work for a guest that may take so long from now on."""
    seconds = shorten(seconds)
    return math.inf if seconds is None else time.monotonic() + seconds


def shorten(seconds: float | None) -> float | None:
    """How long a guest may take on this thread, which may serve others."""
    brief = brief_seconds.get()
    return brief if brief is not None and (seconds is None or brief < seconds) else seconds


def time_error(seconds: float | None) -> Exception:
    """What to raise for a guest that was interrupted."""
    if shorten(seconds) != seconds:
        return SlowRequestError("a policy in Wasm takes long")
    return GuestTimeError(
        f"the policy was stopped: it took longer than the {seconds:g} seconds that it may take"
    )


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
        from lictor.core.errors import HostCallError

        raise HostCallError(f"{namespace}/{operation} is not granted to this policy")

    def context(self) -> Sequence[ContextResource]:
        return ()


class Guest(Protocol):
    """A module in the sandbox of one policy; used by any thread.

    GuestError where it gives no answer that can be read, GuestTimeError where it runs too long.
    """

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer: ...

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer: ...


# --- what goes into a guest as bytes, and what its bytes say; nothing unclear counts as an answer


_HIGHEST_CODE = 65535
# Without it the interpreter decides: what is written in C goes 996 levels deep in Python 3.11, and
# 9,999 in 3.13. More levels than objects may have, and what stands around them.
_MOST_LEVELS = 500
_ANSWER_FIELDS = tuple(f'"{name}"'.encode() for name in GuestAnswer.__struct_fields__)
_SETTINGS_FIELDS = tuple(f'"{name}"'.encode() for name in SettingsAnswer.__struct_fields__)

_decode_answer = msgspec.json.Decoder(GuestAnswer).decode
_decode_settings = msgspec.json.Decoder(SettingsAnswer).decode
# Keys in order, as Kubewarden writes them: the same request is the same text.
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_answer(content: bytes) -> GuestAnswer:
    """The answer to a request; GuestError where it cannot be read."""
    try:
        answer = _decode_answer(content)
        _check_levels(content, answer.mutated_object)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, YamlFault) as error:
        raise GuestError(f"the answer of the policy cannot be read: {error}") from error
    if answer.code is not None and not 0 <= answer.code <= _HIGHEST_CODE:
        raise GuestError(f"the answer of the policy cannot be read: code {answer.code} is no code")
    _refuse_repeated(content, _ANSWER_FIELDS)
    return answer


def read_settings_answer(content: bytes) -> SettingsAnswer:
    """The answer about settings; GuestError where it cannot be read."""
    try:
        answer = _decode_settings(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GuestError(f"the answer about the settings cannot be read: {error}") from error
    _refuse_repeated(content, _SETTINGS_FIELDS)
    return answer


def write_payload(value: Json) -> bytes:
    """What a guest is given; GuestError where it cannot be told in JSON."""
    try:
        content = _encode(value)
        _check_levels(content, value)
    except (RecursionError, UnicodeEncodeError, TypeError, YamlFault) as error:
        raise GuestError(f"what the policy is asked cannot be written as JSON: {error}") from error
    return content


def _check_levels(content: bytes, value: Json) -> None:
    if content.count(b"{") + content.count(b"[") > _MOST_LEVELS:
        check_depth(value, _MOST_LEVELS)


def _refuse_repeated(content: bytes, fields: tuple[bytes, ...]) -> None:
    """Of two `accepted`, which one is meant? Few texts need to be read again for it."""
    if b"\\u" not in content and all(content.count(field) < 2 for field in fields):
        return
    members = _decode_members(content)
    # What guests write is mostly without blanks: then it is as long as its members together.
    length = 1 + sum(len(name.encode()) + len(value) + 4 for name, value in members.items())
    if length == len(content.strip()):
        return
    try:
        names = [name for name, _ in json.loads(content, object_pairs_hook=list)]
    except RecursionError as error:
        raise GuestError("the answer of the policy cannot be read: it is nested deeply") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        told = ", ".join(repeated)
        raise GuestError(f"the answer of the policy cannot be read: {told} stands there twice")
