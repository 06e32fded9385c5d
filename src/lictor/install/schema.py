"""Records and shapes -> structural schemas, as a CustomResourceDefinition has them.

Types, enums and required fields follow from the records of the model; what a record cannot express
(defaults that the API server fills in, limits, how lists are merged, descriptions) stands in
`fields.txt`. What has no record stands in `shapes.txt` as a whole.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module, resources
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec import inspect
from msgspec.structs import FieldInfo, fields

from lictor.core.errors import LoadError
from lictor.core.families.family import AbsentFields
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject

FLAGS = frozenset(("atomic", "free", "nullable", "open", "set"))
_DASHES = "--"
_STEP = 2


class Note(msgspec.Struct):
    """What is written about one field, and about the fields inside it."""

    name: str
    type: str = ""
    required: bool = False
    attributes: dict[str, str] = {}
    description: str = ""
    fields: dict[str, "Note"] = {}


def parse_notes(text: str) -> dict[str, Note]:
    """The notes of a text by name, in order."""
    top = Note("")
    path = [top]
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // _STEP
        if words.startswith(_DASHES):
            _continue_description(path[-1], words.removeprefix(_DASHES).strip())
            continue
        if depth >= len(path):
            raise LoadError("a field is indented too far", where=f"line {number}")
        note = parse_line(words)
        del path[depth + 1 :]
        path[-1].fields[note.name] = note
        path.append(note)
    return top.fields


def parse_line(line: str) -> Note:
    """One line without its indentation."""
    head, _, description = line.partition(f" {_DASHES} ")
    name, *words = head.split()
    kind = words.pop(0) if words and not _is_attribute(words[0]) else ""
    attributes = dict(_read_attribute(word) for word in words)
    return Note(name.removesuffix("!"), kind, name.endswith("!"), attributes, description.strip())


def _is_attribute(word: str) -> bool:
    return word in FLAGS or "=" in word


def _read_attribute(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _continue_description(note: Note, text: str) -> None:
    note.description = f"{note.description} {text}".strip()


Record: TypeAlias = type[msgspec.Struct]

_OPEN = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE = "x-kubernetes-list-type"
_SCALARS: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "any": {_OPEN: True},
}
_NUMBERS = {
    "min": "minimum",
    "max": "maximum",
    "maxLength": "maxLength",
    "minLength": "minLength",
    "minItems": "minItems",
}
_FLAGS: dict[str, JsonObject] = {
    "nullable": {"nullable": True},
    "open": {_OPEN: True},
    "set": {_LIST_TYPE: "set"},
}
_NONE: Mapping[str, JsonObject] = MappingProxyType({})
# The records that all kinds share; those of a kind are found by its declaration.
_SHARED = (
    *("policy", "matching", "signatures", "metadata", "constraints"),
    *("cel_policy", "image_validation", "exception"),
)


# The same records are parts of many kinds.
_describe_type = cache(inspect.type_info)


class SchemaWriter:
    """Writes schemas for one version of a kind; fields that this version lacks are left out."""

    def __init__(
        self,
        version: str,
        absent: AbsentFields | None = None,
        parts: Mapping[str, JsonObject] = _NONE,
    ) -> None:
        self._version = version
        self._absent = absent or {}
        # Schemas that shapes call by name.
        self._parts = parts

    def write_record(self, record: Record) -> JsonObject:
        """The schema of a record."""
        described = _describe_type(record)
        if not isinstance(described, inspect.StructType):
            raise TypeError(f"{record.__name__} is no record")
        notes = self._find_notes(record)
        absent = self._absent.get(record, frozenset())
        fields = [field for field in described.fields if field.encode_name not in absent]
        properties = {
            field.encode_name: self._write_field(field, notes.get(field.encode_name))
            for field in fields
        }
        required = [field.encode_name for field in fields if field.required]
        schema = _build_object(" ".join((record.__doc__ or "").split()), properties, required)
        return _add_attributes(schema, _read_notes()[0].get(name_record(record), Note("")))

    def write_shape(self, name: str) -> JsonObject:
        """The schema of a shape in `shapes.txt`, or of a record by name."""
        if name in self._parts:
            return dict(self._parts[name])
        record = _list_records().get(name)
        if record is not None:
            return self.write_record(record)
        shapes = _read_notes()[1]
        shape = shapes.get(f"{name}@{self._version}", shapes.get(name))
        if shape is None:
            raise LoadError(f"there is no shape {name}")
        return self._write_note(msgspec.structs.replace(shape, type="object"))

    def _find_notes(self, record: Record) -> dict[str, Note]:
        """The notes on a record's fields; those on this version's go before."""
        notes = _read_notes()[0]
        found: dict[str, Note] = {}
        # A record has the fields of those that it extends.
        for each in reversed(record.__mro__):
            for name in (each.__name__, f"{each.__name__}@{self._version}"):
                found |= notes[name].fields if name in notes else {}
        return found

    def _write_field(self, field: inspect.Field, note: Note | None) -> JsonObject:
        if note is None:
            return self._write_type(field.type)
        schema = self._write_word(note.type, note) if note.type else self._write_type(field.type)
        return _add_attributes(schema, note)

    def _write_type(self, kind: inspect.Type) -> JsonObject:
        match kind:
            case inspect.StructType():
                return self.write_record(kind.cls)
            case inspect.VarTupleType():
                return {"type": "array", "items": self._write_type(kind.item_type)}
            case inspect.DictType():
                return _build_map(self._write_type(kind.value_type))
            case inspect.UnionType():
                return self._write_type(_find_value_type(kind))
            case inspect.Metadata():
                return self._write_type(kind.type)
            case _:
                return _write_scalar(kind)

    def _write_note(self, note: Note) -> JsonObject:
        return _add_attributes(self._write_word(note.type, note), note)

    def _write_word(self, word: str, note: Note) -> JsonObject:
        if word.startswith("["):
            return {"type": "array", "items": self._write_word(word[1:-1], note)}
        if word.startswith("{"):
            return _build_map(self._write_word(word[1:-1], note))
        if word == "object":
            properties = {name: self._write_note(field) for name, field in note.fields.items()}
            required = [name for name, field in note.fields.items() if field.required]
            return _build_object("", properties, required)
        scalar = _SCALARS.get(word)
        return dict(scalar) if scalar is not None else self.write_shape(word)


def name_record(record: Record) -> str:
    """What a record is called in our tables: `Rule`."""
    return record.__name__


def keep_defaults(schema: JsonObject) -> JsonObject:
    """A schema that only fills in defaults and takes everything else as it is.

    For copies of a rule in a status: readers find what the API server would have filled
    in, and the schema is a hundredth of the rule's own.
    """
    slim: JsonObject = {key: schema[key] for key in ("type", "default") if key in schema}
    kind = schema.get("type")
    if kind == "array":
        return {**slim, "items": keep_defaults(schema["items"])}
    if kind not in (None, "object"):
        return slim
    properties = {
        name: keep_defaults(part)
        for name, part in schema.get("properties", {}).items()
        if _has_default(part)
    }
    slim[_OPEN] = True
    return {**slim, "properties": properties} if properties else slim


def _has_default(schema: JsonObject) -> bool:
    if "default" in schema or ("items" in schema and _has_default(schema["items"])):
        return True
    return any(_has_default(part) for part in schema.get("properties", {}).values())


@cache
def _list_records() -> dict[str, Record]:
    """All records that a schema may need, by name."""
    modules = {f"lictor.core.model.{name}" for name in _SHARED}
    for record in (kind.family.get_record(kind) for kind in registry().kinds):
        modules |= {record.__module__, *(_find_module(field) for field in fields(record))}
    found = (value for name in modules for value in vars(import_module(name)).values())
    return {
        name_record(value): value
        for value in found
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }


@cache
def _read_notes() -> tuple[dict[str, Note], dict[str, Note]]:
    """The notes on records, and the shapes."""
    folder = resources.files(__package__)
    fields = folder.joinpath("fields.txt").read_text(encoding="utf-8")
    shapes = folder.joinpath("shapes.txt").read_text(encoding="utf-8")
    return parse_notes(fields), parse_notes(shapes)


def _find_module(field: FieldInfo) -> str:
    """Where the type of a field is from; a spec may stand apart from its record."""
    return str(getattr(field.type, "__module__", "builtins"))


def _build_object(description: str, properties: JsonObject, required: list[str]) -> JsonObject:
    schema: JsonObject = {"type": "object"}
    if description:
        schema["description"] = description
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = sorted(required)
    return schema


def _build_map(values: JsonObject) -> JsonObject:
    return {"type": "object", "additionalProperties": values}


def _find_value_type(kind: inspect.UnionType) -> inspect.Type:
    """The one type beside None."""
    return next(part for part in kind.types if not isinstance(part, inspect.NoneType))


def _write_scalar(kind: inspect.Type) -> JsonObject:
    match kind:
        case inspect.StrType():
            return {"type": "string"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer"}
        case inspect.AnyType():
            return {_OPEN: True}
        case inspect.LiteralType():
            return {"type": "string", "enum": [value for value in kind.values if value]}
        case _:
            raise TypeError(f"no schema for {kind}")


def _add_attributes(schema: JsonObject, note: Note) -> JsonObject:
    """A schema with the fields of a note; an enum on a list applies to the list's entries."""
    schema = dict(schema)
    if note.description:
        schema["description"] = note.description
    entries = schema["items"] if schema.get("type") == "array" else schema
    for name, value in note.attributes.items():
        if name == "free":
            entries.pop("enum", None)
        elif name == "enum":
            entries["enum"] = value.split("|")
        else:
            schema.update(_write_attribute(schema, name, value))
    return schema


def _write_attribute(schema: JsonObject, name: str, value: str) -> JsonObject:
    if name in _NUMBERS:
        return {_NUMBERS[name]: int(value)}
    if name in _FLAGS:
        return dict(_FLAGS[name])
    words = value.split("|")
    match name:
        case "format" | "pattern":
            return {name: value}
        case "default":
            return {"default": json.loads(value)}
        case "keys":
            return {_LIST_TYPE: "map", "x-kubernetes-list-map-keys": words}
        case "atomic":
            is_list = schema.get("type") == "array"
            return {_LIST_TYPE if is_list else "x-kubernetes-map-type": "atomic"}
        case "oneOf":
            return {"oneOf": [{"required": [word]} for word in words]}
        case "notBoth":
            return {"not": {"required": words}}
        case _:
            raise LoadError(f"unknown attribute {name}")
