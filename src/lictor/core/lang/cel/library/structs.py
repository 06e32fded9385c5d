"""Types with fields: Object{} and JSONPatch{} of mutating policies, and protobuf's own."""

import struct
from typing import Any

from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.functions import Library
from lictor.core.lang.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    UINT,
    CelType,
    list_type,
    map_type,
    struct_type,
    wrapper_type,
)
from lictor.core.lang.cel.values import Opaque, Optional, TypeValue, UInt, Value, decode_key, equal

_PATCH_DEFAULTS: dict[str, Value] = {"op": "", "path": "", "from": "", "value": None}
_PATCH_FIELDS = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}


class ObjectValue(Opaque):
    """`Object{...}` or `JSONPatch{...}`: fields under the name of a type."""

    type_name: str  # type: ignore[misc]  # set for each value
    fields: dict[str, Value]

    def get_field(self, key: Value, missing: Any) -> Value:
        value = self.fields.get(key, missing)
        # Texts of a patch that are empty count as not set.
        return missing if value == "" and self.type_name == "JSONPatch" else value

    def get_default(self, key: Value, missing: Any) -> Value:
        """The value of a field that is not set."""
        return _PATCH_DEFAULTS.get(key, missing) if self.type_name == "JSONPatch" else missing

    @property
    def is_zero(self) -> bool:
        return not self.fields

    def equals(self, other: Value) -> bool:
        return (
            isinstance(other, ObjectValue)
            and self.type_name == other.type_name
            and equal(self.fields, other.fields)
        )


class Record(Opaque):
    """A value with fixed fields."""

    type_name: str  # type: ignore[misc]  # set for each value
    fields: dict[str, Value]

    def get_field(self, key: Value, missing: Any) -> Value:
        return self.fields.get(key, missing)

    def equals(self, other: Value) -> bool:
        return isinstance(other, Record) and self.fields == other.fields


class Answer(Record):
    """An answer to Envoy or to a web server, and its parts."""


def to_json(value: Value) -> Value:
    """Plain JSON for what an expression built; CelError where JSON has no counterpart."""
    if isinstance(value, ObjectValue):
        return {key: to_json(item) for key, item in value.fields.items()}
    if isinstance(value, dict):
        return {_text_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, Optional):
        return to_json(value.value) if value.has_value else None
    return value.name if isinstance(value, TypeValue) else value


def _text_key(key: Value) -> str:
    found = decode_key(key)
    if type(found) is not str:
        raise CelError(f"map key {found} is not a string")
    return found


class Structs:
    """The types with fields that an environment knows."""

    def find(self, name: str) -> CelType | None:
        if name not in _WRAPPERS:
            return None
        kind = _WRAPPERS[name][0]
        return kind if kind.params or kind is DYN else wrapper_type(kind)

    def find_field(self, name: str, field: str) -> CelType | None:
        return _FIELDS.get(name, {}).get(field)

    def make(self, name: str, fields: dict[str, Value]) -> Value:
        """The value of a struct literal."""
        if name in ("google.protobuf.Value",):
            return next(iter(fields.values()), None)
        default = _WRAPPERS[name][1]
        value = next(iter(fields.values()), default)
        if name.endswith("Int32Value"):
            limit = 1 << 32 if "UInt32" in name else 1 << 31
            if not (0 if "UInt32" in name else -limit) <= value < limit:
                raise CelError("integer overflow")
        if name.endswith("FloatValue"):
            return float(struct.unpack("f", struct.pack("f", value))[0])
        return value


class PatchStructs(Structs):
    """Those of mutating policies, where an Object may have any fields."""

    def find(self, name: str) -> CelType | None:
        if name in ("JSONPatch", "Object") or name.startswith("Object."):
            return struct_type(name)
        return super().find(name)

    def find_field(self, name: str, field: str) -> CelType | None:
        if name == "JSONPatch":
            return _PATCH_FIELDS.get(field)
        if name == "Object" or name.startswith("Object."):
            return DYN
        return super().find_field(name, field)

    def make(self, name: str, fields: dict[str, Value]) -> Value:
        if name.startswith("google."):
            return super().make(name, fields)
        return ObjectValue(name, fields)


# Protobuf's wrappers are plain values; JSON reads its numbers as doubles.
_WRAPPERS: dict[str, tuple[CelType, Value]] = {
    f"google.protobuf.{name}": (kind, zero)
    for name, kind, zero in (
        ("BoolValue", BOOL, False), ("BytesValue", BYTES, b""), ("DoubleValue", DOUBLE, 0.0),
        ("FloatValue", DOUBLE, 0.0), ("Int32Value", INT, 0), ("Int64Value", INT, 0),
        ("StringValue", STRING, ""), ("UInt32Value", UINT, UInt(0)),
        ("UInt64Value", UINT, UInt(0)), ("ListValue", list_type(DYN), []),
        ("Struct", map_type(STRING, DYN), {}), ("Value", DYN, None),
    )
}  # fmt: skip
SERVICE_ACCOUNT = "user.ServiceAccount"
_FIELDS: dict[str, dict[str, CelType]] = {
    SERVICE_ACCOUNT: {"Name": STRING, "Namespace": STRING},
    **{name: {"value": kind} for name, (kind, _) in _WRAPPERS.items()},
    "google.protobuf.ListValue": {"values": list_type(DYN)},
    "google.protobuf.Struct": {"fields": map_type(STRING, DYN)},
    "google.protobuf.Value": {
        "null_value": INT, "number_value": DOUBLE, "string_value": STRING, "bool_value": BOOL,
        "struct_value": map_type(STRING, DYN), "list_value": list_type(DYN),
    },
}  # fmt: skip

PATCHES = Library(
    (
        "jsonpatch.escapeKey(string) -> string",
        lambda text: text.replace("~", "~0").replace("/", "~1"),
    ),
)
