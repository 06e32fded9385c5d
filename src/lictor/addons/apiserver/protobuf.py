"""Reader of built-in kinds in Kubernetes' protobuf format, which kubectl sends."""

import base64
import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import TypeAlias

import msgspec
import orjson

from lictor.addons.apiserver.status_errors import bad_request
from lictor.core.facts.facts import NO_FACTS, find_type_name, load_section, load_type_facts
from lictor.core.raw import Json, JsonObject

MEDIA_TYPE = b"application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
# re: trusted - our own table of numbers
_FIELD = re.compile(r"(\d+)([*=~]?)(\S+)")
_INLINE, _POINTER, _BYTES = "~", "*", "="
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 64
_EXTENSIONS = "apiextensions-apiserver.pkg.apis.apiextensions.v1"
_RAW_JSON = frozenset(("runtime.RawExtension", "meta.v1.FieldsV1", f"{_EXTENSIONS}.JSON"))
_SCHEMA = f"{_EXTENSIONS}.JSONSchemaProps"
_SCHEMA_OR = f"{_SCHEMA}Or"
_MAX_VARINT = 10
# Of what is kept as seconds and nanoseconds; later ones no calendar knows.
_MAX_SECONDS = 253402300799

Raw: TypeAlias = int | float | bytes


class _Slot(msgspec.Struct, frozen=True):
    """What stands under a number."""

    name: str
    is_inline: bool = False
    is_pointer: bool = False
    is_bytes: bool = False


class _Fault(Exception):  # noqa: N818  (becomes a refusal at the door)
    pass


def read_protobuf(body: bytes) -> JsonObject:
    """The object of a body; raises RefusedRequestError where it holds none that we know."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not in Kubernetes' protobuf format")
    try:
        api_version, kind, content = _read_envelope(body[len(_MAGIC) :])
        name = _find_type(api_version, kind)
        if name is None or name not in _load_numbers():
            raise _Fault(f"no kind {kind!r} in version {api_version!r} is known in this format")
        document = _read_message(content, name, 0)
    except (_Fault, IndexError, struct.error, UnicodeDecodeError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **document}


def _find_type(api_version: str, kind: str) -> str | None:
    if kind == "DeleteOptions":
        return "meta.v1.DeleteOptions"
    return find_type_name(api_version, kind)


def _read_envelope(data: bytes) -> tuple[str, str, bytes]:
    api_version = kind = ""
    content = b""
    for number, value in _split(data):
        if number == 1 and isinstance(value, bytes):
            names = {inner: _text(text) for inner, text in _split(value)}
            api_version, kind = names.get(1, ""), names.get(2, "")
        elif number == 2 and isinstance(value, bytes):
            content = value
    return api_version, kind, content


# --- the wire


def _split(data: bytes) -> Iterator[tuple[int, Raw]]:
    """Numbers of fields and what stands there, as they come."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _read_varint(data, position)
        kind = tag & 7
        value: Raw
        if kind == _LENGTH:
            size, position = _read_varint(data, position)
            if position + size > end:
                raise _Fault("a field is cut off")
            value = data[position : position + size]
            position += size
        elif kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind == _FIXED64:
            value = struct.unpack_from("<d", data, position)[0]
            position += 8
        elif kind == _FIXED32:
            value = struct.unpack_from("<f", data, position)[0]
            position += 4
        else:
            raise _Fault("an unknown wire type")
        yield tag >> 3, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return value, position
    raise _Fault("a number without an end")


def _text(value: Raw) -> str:
    if not isinstance(value, bytes):
        raise _Fault("a number where text should be")
    return value.decode()


def _number(value: float) -> int | float:
    """As JSON writes it: what is whole has no fraction."""
    if not math.isfinite(value):
        raise _Fault("a number that JSON cannot write")
    return int(value) if value.is_integer() else value


def _whole(value: Raw) -> int:
    if not isinstance(value, int):
        raise _Fault("something else where a whole number should be")
    # Negative ones come as if they had 64 bits.
    return value - (1 << 64) if value >= 1 << 63 else value


# --- messages


@cache
def _load_numbers() -> dict[str, dict[int, _Slot]]:
    return {name: dict(_parse_slots(line)) for name, line in load_section("wire").items()}


def _parse_slots(line: str) -> Iterator[tuple[int, _Slot]]:
    for number, mark, name in _FIELD.findall(line):
        yield int(number), _Slot(name, mark == _INLINE, mark == _POINTER, mark == _BYTES)


def _read_message(data: bytes, name: str, depth: int) -> JsonObject:
    form = load_section("types")[name]
    document: JsonObject = {}
    _fill(document, data, name, form.get("fields", {}), depth)
    return document


def _fill(document: JsonObject, data: bytes, name: str, forms: JsonObject, depth: int) -> None:
    """Read a message into a document; `forms` are those of the document's own type."""
    if depth > _MAX_DEPTH:
        raise _Fault("messages are nested too deeply")
    slots = _load_numbers().get(name, {})
    for number, value in _split(data):
        slot = slots.get(number)
        if slot is None:
            continue
        if slot.is_inline:
            if isinstance(value, bytes):
                _fill(document, value, slot.name, forms, depth + 1)
        elif slot.name in forms:
            _take(document, slot, value, forms[slot.name], depth)
    for field in load_type_facts().get(name, NO_FACTS).required:
        # Other formats always contain required fields, also false ones.
        if forms.get(field) == "boolean":
            document.setdefault(field, False)


def _take(document: JsonObject, slot: _Slot, value: Raw, form: Json, depth: int) -> None:
    element = _find_element(form)
    if element is not None:
        read = _read_value(value, element, slot, depth)
        document.setdefault(slot.name, []).append(read)
    elif isinstance(form, dict) and "map" in form:
        key, inner = _read_entry(value, form["map"], slot, depth)
        document.setdefault(slot.name, {})[key] = inner
    else:
        read = _read_value(value, form, slot, depth)
        # All that is no pointer is always sent: as zero, where it was never set.
        if read is not None and (slot.is_pointer or read not in ("", 0, {})):
            document[slot.name] = read


def _find_element(form: Json) -> Json:
    if not isinstance(form, dict):
        return None
    return form.get("list") or form.get("set") or form.get("keyed")


def _read_entry(value: Raw, form: Json, slot: _Slot, depth: int) -> tuple[str, Json]:
    if not isinstance(value, bytes):
        raise _Fault("a number where an entry of a map should be")
    parts = dict(_split(value))
    inner = parts.get(2, b"")
    element = _find_element(form)
    if element is not None:
        # Go's slices cannot be values of a map: a message is put around them.
        items = [item for _, item in _split(inner)] if isinstance(inner, bytes) else []
        return _text(parts.get(1, b"")), [_read_value(each, element, slot, depth) for each in items]
    return _text(parts.get(1, b"")), _read_value(inner, form, slot, depth)


def _read_value(value: Raw, form: Json, slot: _Slot, depth: int) -> Json:
    if isinstance(form, dict):
        if isinstance(form.get("atomic"), str):
            return _read_value(value, form["atomic"], slot, depth)
        raise _Fault(f"{slot.name} cannot be read")
    match form:
        case "number":
            return _number(value) if isinstance(value, float) else _whole(value)
        case "boolean":
            return bool(value)
        case "string":
            return _read_text(value, slot)
        case _:
            return _read_type(value, form.removeprefix("="), slot, depth)


def _read_text(value: Raw, slot: _Slot) -> str:
    if slot.is_bytes and isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _text(value)


def _read_type(value: Raw, name: str, slot: _Slot, depth: int) -> Json:
    if not isinstance(value, bytes):
        raise _Fault(f"a number where {slot.name} should be")
    match name:
        case "meta.v1.Time":
            return _read_time(value, micro=False)
        case "meta.v1.MicroTime":
            return _read_time(value, micro=True)
        case "api.resource.Quantity":
            return _text(dict(_split(value)).get(1, b""))
        case "util.intstr.IntOrString":
            parts = dict(_split(value))
            return _text(parts.get(3, b"")) if parts.get(1) else _whole(parts.get(2, 0))
        case _ if name in _RAW_JSON:
            return _read_json(dict(_split(value)).get(1, b""))
        case "meta.v1.Duration":
            raise _Fault("durations are not known in this format")
        case _ if name.startswith(_SCHEMA_OR):
            return _read_alternative(value, name.removeprefix(_SCHEMA_OR), slot, depth)
        case _:
            return _read_message(value, name, depth + 1)


def _read_alternative(value: bytes, other: str, slot: _Slot, depth: int) -> Json:
    """What is a schema or something else, such as `additionalProperties`."""
    parts = list(_split(value))
    schemas = [
        [_read_type(part, _SCHEMA, slot, depth + 1) for found, part in parts if found == number]
        for number in ((2,) if other == "Bool" else (1, 2) if other == "Array" else (1,))
    ]
    if other == "StringArray" and not schemas[0]:
        return [_text(part) for found, part in parts if found == 2]
    if other == "Array" and schemas[1]:
        return schemas[1]
    if schemas[0]:
        return schemas[0][0]
    return bool(dict(parts).get(1)) if other == "Bool" else None


def _read_json(value: Raw) -> Json:
    try:
        return orjson.loads(_text(value)) if value else None
    except orjson.JSONDecodeError as error:
        raise _Fault("JSON inside cannot be read") from error


def _read_time(value: bytes, *, micro: bool) -> str | None:
    parts = dict(_split(value))
    seconds, nanos = _whole(parts.get(1, 0)), _whole(parts.get(2, 0))
    if not seconds and not nanos:
        return None
    if not 0 <= seconds <= _MAX_SECONDS or not 0 <= nanos < 10**9:
        raise _Fault("a time that no calendar knows")
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
