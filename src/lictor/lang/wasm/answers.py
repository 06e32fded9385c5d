"""What goes into a guest as bytes, and what its bytes say; nothing unclear counts as an answer."""

import json

import msgspec

from lictor.errors import GuestError
from lictor.lang.wasm.records import GuestAnswer, SettingsAnswer
from lictor.raw import Json

_HIGHEST_CODE = 65535
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
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
        return _encode(value)
    except (RecursionError, UnicodeEncodeError, TypeError) as error:
        raise GuestError(f"what the policy is asked cannot be written as JSON: {error}") from error


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
