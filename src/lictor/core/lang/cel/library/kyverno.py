"""Kyverno's functions that need nothing from outside: documents, hashes, time, texts."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Callable
from hashlib import md5, sha1, sha256
from typing import Any

import orjson

from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.functions import Implementation, Library
from lictor.core.lang.cel.library.conversions import format_seconds, format_timestamp
from lictor.core.lang.cel.library.kubernetes import QuantityValue
from lictor.core.lang.cel.library.net import CIDR, IP
from lictor.core.lang.cel.library.structs import SERVICE_ACCOUNT, Record
from lictor.core.lang.cel.values import (
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    decode_key,
    type_name,
)
from lictor.core.lang.go_number import format_number
from lictor.core.lang.gotime import GoTime
from lictor.core.lang.yaml.build import parse_yaml_text

_ACCOUNT_PREFIX = "system:serviceaccount:"
_MAX_DEPTH = 200


class Namespace(Opaque):
    """A variable that is there only for its methods, such as `json`."""

    type_name: str  # type: ignore[misc]  # set for each value


def _parse_account(user: str) -> Record:
    namespace, colon, name = user.removeprefix(_ACCOUNT_PREFIX).partition(":")
    if not colon or not user.startswith(_ACCOUNT_PREFIX):
        namespace = name = ""
    return Record(SERVICE_ACCOUNT, {"Name": name, "Namespace": namespace})


def to_text(value: Value) -> str:
    """A text that a function takes as dyn; an optional counts as its value."""
    if type(value) is Optional:
        value = value.value
    if type(value) is not str:
        raise CelError(f"unsupported type conversion from '{type_name(value)}' to string")
    return value


# -- JSON and YAML


def with_doubles(value: Value) -> Value:
    """Numbers of JSON are doubles, as Go's decoder reads them."""
    if isinstance(value, dict):
        return {key: with_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_doubles(item) for item in value]
    return float(value) if type(value) is int else value


def _unmarshal(_: Namespace, value: Value) -> Value:
    text = to_text(value)
    try:
        return with_doubles(orjson.loads(text))
    except (ValueError, RecursionError) as error:
        reason = "unexpected end of JSON input" if not text.strip() else f"invalid JSON: {error}"
        raise CelError(reason) from None


def _marshal(_: Namespace, value: Value) -> str:
    return _dump(_native(value, 0))


def _old_marshal(namespace: Namespace, value: Value) -> str:
    return "0" if value is None else _marshal(namespace, value)


_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def _dump(value: Value) -> str:
    """JSON as Go writes it: keys in order, no blanks, signs of HTML escaped."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode("utf-8", "surrogatepass"))
        return "{" + ",".join(f"{_dump(key)}:{_dump(item)}" for key, item in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dump, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)
    if type(value) is float:
        if not math.isfinite(value):
            raise CelError("json: unsupported value")
        return format_number(value)
    return json.dumps(value)


def _native(value: Value, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        raise CelError("json: the value is nested too deeply")
    if isinstance(value, dict):
        made = {}
        for key, item in value.items():
            name = decode_key(key)
            if type(name) is not str:
                raise CelError(f"json: unsupported map key type {type_name(name)}")
            made[name] = _native(item, depth + 1)
        return made
    if isinstance(value, list):
        return [_native(item, depth + 1) for item in value]
    return _native_scalar(value, depth)


def _native_scalar(value: Value, depth: int) -> Value:
    convert = _NATIVE.get(type(value))
    if convert is not None:
        return convert(value)
    if type(value) is Optional:
        return _native(value.value, depth + 1) if value.has_value else None
    return {} if isinstance(value, Opaque) else value


_NATIVE: dict[type, Callable[[Any], Value]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    UInt: int,
    Timestamp: format_timestamp,
    Duration: lambda value: value.nanoseconds,
    Record: lambda value: {key.lower(): item for key, item in value.fields.items() if item},
    TypeValue: lambda value: value.name,
    IP: lambda value: str(value.address),
    CIDR: lambda value: f"{value.address}/{value.bits}",
    QuantityValue: lambda value: str(value.quantity),
}


def _encode(value: Value) -> str:
    """json.encode(): integers beyond what a double holds become texts."""
    return _dump(_encodable(value))


def _encodable(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in _native(value, 0).items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, int) and abs(value) > (1 << 53) - 1:
        return str(int(value))
    if isinstance(value, Duration):
        return format_seconds(value)
    if isinstance(value, Opaque) and not isinstance(value, Timestamp | Optional):
        raise CelError(f"type conversion error from '{value.type_name}' to '*structpb.Value'")
    return _native(value, 0)


def _parse_yaml(_: Namespace, text: str) -> Value:
    try:
        return with_doubles(parse_yaml_text(text))
    except ValueError as error:
        raise CelError(f"error converting YAML to JSON: {error}") from None


DOCUMENTS = Library(
    ("json.Json::unmarshal(dyn) -> dyn", _unmarshal),
    ("json.Json::marshal(dyn) -> string", _marshal),
    ("yaml.Yaml::parse(string) -> dyn", _parse_yaml),
)
# As policies on requests to web servers write it.
OTHER_SPELLING = Library(("json.Json::Unmarshal(dyn) -> dyn", _unmarshal))
ENCODING = Library(("json.encode(dyn) -> string", _encode))
OLD_MARSHAL = Library(("json.Json::marshal(dyn) -> string", _old_marshal))


# -- gzip and hashes

_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# A few kilobytes can unpack to gigabytes.
_MAX_UNPACKED = 16 << 20


def _compress(value: Value) -> bytes:
    data = to_text(value).encode("utf-8", "surrogatepass")
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(data) + packer.flush()
    return _GZIP_HEADER + packed + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _decompress(data: bytes) -> str:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(data, _MAX_UNPACKED)
    except zlib.error:
        raise CelError("gzip: invalid header") from None
    if len(text) == _MAX_UNPACKED:
        raise CelError("gzip: the text is too large")
    if not unpacker.eof:
        raise CelError("unexpected EOF")
    return text.decode("utf-8", "replace")


def _digest(algorithm: Callable[..., Any]) -> Implementation:
    return lambda text: algorithm(
        text.encode("utf-8", "surrogatepass"), usedforsecurity=False
    ).hexdigest()


HASHES = Library(
    ("gzip.decompress(bytes) -> string", _decompress),
    ("gzip.compress(dyn) -> bytes", _compress),
    *[
        (f"{prefix}{name}(string) -> string", _digest(algorithm))
        for prefix in ("", "hash.")
        for name, algorithm in (("sha1", sha1), ("sha256", sha256), ("md5", md5))
    ],
)


# -- lists, accounts and times


def _to_map(keys: list[Value], values: list[Value], key_field: str, value_field: str) -> Value:
    if len(keys) != len(values):
        raise CelError(
            "listObjToMap must take lists of equal length."
            f" list1: {len(keys)}, list2: {len(values)}"
        )
    made: dict[Value, Value] = {}
    for key_entry, entry in zip(keys, values, strict=True):
        key = _fields_of(key_entry).get(key_field)
        if type(key) is not str:
            raise CelError(
                "the passed key name cannot be handled as a string in the key object list"
            )
        made[key] = _fields_of(entry).get(value_field)
    return made


def _fields_of(entry: Value) -> dict[Value, Value]:
    if type(entry) is not dict or not all(type(key) is str for key in entry):
        raise CelError("object cannot be handled as a map string to any")
    if any(type(item) is Optional and not item.has_value for item in entry.values()):
        raise CelError("optional.none() dereference")
    return entry


def _to_cron(moment: Timestamp) -> str:
    there = GoTime(moment.nanoseconds, moment.offset)
    _, month, day, hour, minute, _ = there.civil()
    return f"{minute} {hour} {day} {month} {there.weekday()}"


def _truncate(moment: Timestamp, step: Duration) -> Timestamp:
    cut = GoTime(moment.nanoseconds, moment.offset).truncate(step.nanoseconds)
    return Timestamp(cut.nanoseconds, cut.offset)


COLLECTIONS = Library(
    ("time.toCron(timestamp) -> string", _to_cron),
    ("time.truncate(timestamp, duration) -> timestamp", _truncate),
    *[
        (f"{name}(list(dyn), list(dyn), string, string) -> map(dyn, dyn)", _to_map)
        for name in ("listObjToMap", "transform.listObjToMap")
    ],
)
ACCOUNTS = Library(
    *[
        (f"{prefix}parseServiceAccount(string) -> user.ServiceAccount", _parse_account)
        for prefix in ("", "user.")
    ],
)
