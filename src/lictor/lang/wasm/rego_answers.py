"""What a Rego policy answered, as a GuestAnswer; what cannot be read is a GuestError."""

import base64
import binascii
import json

import msgspec
import orjson

from lictor.errors import GuestError, LictorError
from lictor.lang.patch.strict_json_patch import apply_json_patch
from lictor.lang.wasm.records import GuestAnswer
from lictor.lang.wasm.rego_values import sort_key, write_value
from lictor.raw import Json

_NO_VIOLATION = b'[{"result":[]}]'
_ACCEPTED = GuestAnswer(accepted=True)


def read_violations(content: bytes, _request: Json) -> GuestAnswer:
    """Gatekeeper's answer: a set of violations, each an object with a message."""
    if content == _NO_VIOLATION:
        return _ACCEPTED
    violations = _read_result(content)
    if not isinstance(violations, list):
        raise GuestError(f"the policy's violations are no set, but {_describe(violations)}")
    if len(violations) > 1:
        violations.sort(key=sort_key)
    if not violations:
        return _ACCEPTED
    return GuestAnswer(accepted=False, message=", ".join([_message(each) for each in violations]))


def _message(violation: Json) -> str:
    if not isinstance(violation, dict):
        raise GuestError(f"a violation of the policy is no object, but {_describe(violation)}")
    message = violation.get("msg")
    if message is None:
        return ""
    if not isinstance(message, str):
        raise GuestError(f"the msg of a violation is no text, but {_describe(message)}")
    return message


class _Status(msgspec.Struct):
    message: str | None = None
    code: int | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    response: _Response


# Made now, not when threads first read one at the same time: msgspec would crash.
msgspec.json.Decoder(_Review)


def read_opa_answer(content: bytes, request: Json) -> GuestAnswer:
    """OPA's answer: an object with the response of an AdmissionReview."""
    result = _read_result(content)
    try:
        response = msgspec.convert(result, _Review).response
    except msgspec.ValidationError as error:
        raise GuestError(f"the policy's answer is no AdmissionReview: {error}") from error
    status = response.status or _Status()
    if status.code is not None and not 0 <= status.code <= 65535:
        raise GuestError(f"the policy's answer has the code {status.code}, which is none")
    return GuestAnswer(
        accepted=response.allowed,
        message=status.message,
        code=status.code,
        mutated_object=_apply_patch(response, request),
        audit_annotations=response.audit_annotations,
        warnings=response.warnings,
    )


def _apply_patch(response: _Response, request: Json) -> Json:
    if response.patch is None:
        return None
    if response.patch_type not in (None, "JSONPatch"):
        raise GuestError(f"the policy's patch is of type {response.patch_type}, not JSONPatch")
    given = request.get("object") if isinstance(request, dict) else None
    if given is None:
        raise GuestError("the policy gave a patch for a request without an object")
    try:
        operations = orjson.loads(base64.b64decode(response.patch, validate=True))
        if not isinstance(operations, list):
            raise GuestError("the policy's patch is no list of operations")
        return apply_json_patch(given, operations, must_pass_tests=True)
    except (binascii.Error, ValueError, LictorError) as error:
        raise GuestError(f"the policy's patch cannot be used: {error}") from error


def _read_result(content: bytes) -> Json:
    """The value of the one result; nothing at all is nothing that can be read."""
    try:
        results = orjson.loads(content)
    except orjson.JSONDecodeError:
        results = _read_odd(content)
    if not isinstance(results, list) or len(results) > 1:
        raise GuestError("the policy's answer cannot be read")
    if not results:
        raise GuestError("the policy's answer is undefined: its entrypoint gave no value")
    first = results[0]
    if not isinstance(first, dict) or "result" not in first:
        raise GuestError("the policy's answer has no result")
    return first["result"]


def _read_odd(content: bytes) -> Json:
    # Halves of surrogate pairs, which Go and Wasm let through.
    try:
        from lictor.lang.go_number import decode_json

        return decode_json(content.decode(errors="replace"))
    except (ValueError, json.JSONDecodeError) as error:
        raise GuestError(f"the policy's answer is no JSON: {error}") from error


def _describe(value: Json) -> str:
    text = write_value(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
