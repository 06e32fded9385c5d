"""Checks the fields of a document against a record: finds unknown, missing and mistyped ones.

One walk serves all records. It is built once per record from its types, and returns the document
as `msgspec` expects it: without nulls, as an API server drops them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from lictor.core.lang.json_type import name_json_type
from lictor.core.lang.yaml.scalars import write_key
from lictor.core.model import matching, signatures
from lictor.core.model.finding import FieldPath, Finding, Severity
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

Record = TypeVar("Record", bound=msgspec.Struct)
Absent: TypeAlias = Mapping[type[msgspec.Struct], frozenset[str]]


class _Walk(msgspec.Struct):
    """The findings of one walk, and its strictness."""

    # Fields that the record has, but not in the version of this document.
    absent: Absent = msgspec.field(default_factory=dict)
    # As Go reads its configuration files: names in any case, and numbers for strings.
    lenient: bool = False
    faults: list[Finding] = msgspec.field(default_factory=list)

    def refuse(self, path: FieldPath, message: str, suggestion: str = "") -> None:
        self.faults.append(Finding(path, message, suggestion))


_Reader: TypeAlias = Callable[[Json, FieldPath, _Walk], Json]


def describe(value: Json) -> str:
    """A value as text for a message: `a list`, `the string "x"`."""
    name = name_json_type(value)
    if isinstance(value, (dict, list)) or value is None:
        return name
    text = _write(value) if isinstance(value, (bool, int, float)) else f'"{value}"'
    return f"the {name.partition(' ')[2]} {text if len(text) <= 40 else text[:37] + '...'}"


def _write(value: float) -> str:
    # Python integers may be larger than any key.
    return str(value) if type(value) is int else write_key(value)


def suggest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The most similar known word, ignoring case; empty if there is none."""
    return _suggest(word, tuple(known), cutoff)


# The same mistake often occurs in many places, and again with each edit.
@lru_cache(maxsize=256)
def _suggest(word: str, known: tuple[str, ...], cutoff: float) -> str:
    # Imported on demand: invalid words are rare.
    from difflib import get_close_matches

    folded = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else ""


def _read_anything(value: Json, path: FieldPath, walk: _Walk) -> Json:  # noqa: ARG001
    return value


def _scalar_reader(kind: type, name: str) -> _Reader:
    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        if type(value) is kind:
            return value
        if kind is str and walk.lenient and isinstance(value, (bool, int, float)):
            return _write(value)
        walk.refuse(path, f"expected {name}, found {describe(value)}")
        return None

    return read


def _literal_reader(values: tuple[Json, ...]) -> _Reader:
    known = [value for value in values if value]

    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        # A literal's value is never a list or an object, which are not hashable.
        if isinstance(value, str) and value in values:
            return value
        options = ", ".join(known)
        suggestion = suggest(value, known) if isinstance(value, str) else ""
        walk.refuse(path, f"expected one of {options}, found {describe(value)}", suggestion)
        return None

    return read


def _list_reader(item: _Reader) -> _Reader:
    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        if not isinstance(value, list):
            walk.refuse(path, f"expected a list, found {describe(value)}")
            return None
        return [item(entry, (*path, index), walk) for index, entry in enumerate(value)]

    return read


def _map_reader(item: _Reader) -> _Reader:
    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        if not isinstance(value, dict):
            walk.refuse(path, f"expected an object, found {describe(value)}")
            return None
        entries = value.items() if item is _read_anything else _without_nulls(value).items()
        return {key: item(entry, (*path, key), walk) for key, entry in entries}

    return read


def _without_nulls(value: JsonObject) -> JsonObject:
    return {key: entry for key, entry in value.items() if entry is not None}


def _find_shape(name: str) -> type[msgspec.Struct]:
    """The record that a free-form field should look like."""
    module = next(each for each in (matching, signatures) if hasattr(each, name))
    found: type[msgspec.Struct] = getattr(module, name)
    return found


def _shape_reader(extra: Mapping[str, str]) -> _Reader:
    """Free form: unknown fields are reported here, other problems by `compile`."""

    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        whole = isinstance(value, dict)
        shape = extra["shape"] if whole else extra.get("items", "")
        entries = [(value, path)] if whole else []
        if isinstance(value, list) and shape:
            entries = [(entry, (*path, index)) for index, entry in enumerate(value)]
        inner = _Walk(walk.absent, walk.lenient)
        for entry, place in entries:
            if isinstance(entry, dict):
                _struct_reader(_find_shape(shape))(entry, place, inner)
        walk.faults.extend(f for f in inner.faults if f.severity is Severity.WARNING)
        return value

    return read


def _nested_reader(record: type[msgspec.Struct]) -> _Reader:
    """Records are recursive: look the walk up on use, not now."""

    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        return _struct_reader(record)(value, path, walk)

    return read


def _reader(kind: Any) -> _Reader:
    """The reader of one field, by its annotation; nested records are resolved on use."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        notes = [note.extra or {} for note in parts[1:] if isinstance(note, msgspec.Meta)]
        shape = next((extra for extra in notes if "shape" in extra), None)
        return _reader(parts[0]) if shape is None else _shape_reader(shape)
    if origin in (Union, UnionType):
        return _reader(next(part for part in parts if part is not NoneType))
    if origin is Literal:
        return _literal_reader(tuple(sorted(parts)))
    if origin is tuple and parts[-1] is ...:
        return _list_reader(_reader(parts[0]))
    if origin in (dict, Mapping):
        return _map_reader(_reader(parts[1]))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _nested_reader(kind)
    return _scalar_reader(kind, _SCALARS[kind]) if kind in _SCALARS else _read_anything


_SCALARS: dict[Any, str] = {str: "a string", bool: "a boolean", int: "an integer"}


def _find_lenient(key: str, names: Mapping[str, _Reader], walk: _Walk) -> str | None:
    if walk.lenient:
        return next((name for name in names if name.lower() == key.lower()), None)
    return None


@cache
def _struct_reader(record: type[msgspec.Struct]) -> _Reader:
    # Not `msgspec.inspect`, which traverses everything below the record, each time.
    fields = msgspec.structs.fields(record)
    names = {field.encode_name: _reader(field.type) for field in fields}
    required = [field.encode_name for field in fields if field.required]
    nothing: frozenset[str] = frozenset()

    def read(value: Json, path: FieldPath, walk: _Walk) -> Json:
        if not isinstance(value, dict):
            walk.refuse(path, f"expected an object, found {describe(value)}")
            return None
        made: JsonObject = {}
        absent = walk.absent.get(record, nothing)
        for key, entry in value.items():
            name = key if key in names else _find_lenient(key, names, walk)
            if name is None or name in absent:
                known = [n for n in names if n not in absent]
                message = f'unknown field "{key}"'
                walk.faults.append(
                    Finding((*path, key), message, suggest(key, known), Severity.WARNING)
                )
            elif entry is not None:
                made[name] = names[name](entry, (*path, key), walk)
        for name in required:
            if name not in made:
                walk.refuse(path, f'required field "{name}" is missing')
        return made

    return read


def check_fields(
    body: Json, record: type[msgspec.Struct], *, absent: Absent | None = None, lenient: bool = False
) -> list[Finding]:
    """All problems of a document's fields, for this record."""
    walk = _Walk(absent or {}, lenient)
    _walk_body(body, record, walk)
    return walk.faults


def _walk_body(body: Json, record: type[msgspec.Struct], walk: _Walk) -> Json:
    try:
        return _struct_reader(record)(body, (), walk)
    except RecursionError:
        walk.refuse((), "nested too deep")
        return None


def read_record(
    body: Json, record: type[Record], *, absent: Absent | None = None, lenient: bool = False
) -> tuple[Record | None, list[Finding]]:
    """The record, and the problems of the document; None if an error prevents a record."""
    walk = _Walk(absent or {}, lenient)
    settled = _walk_body(body, record, walk)
    if any(fault.severity is Severity.ERROR for fault in walk.faults):
        return None, walk.faults
    try:
        return convert_record(settled, record), walk.faults
    except (msgspec.ValidationError, RecursionError) as error:
        # The walk knows every type that records use; this catches a new one.
        walk.refuse((), str(error))
        return None, walk.faults
