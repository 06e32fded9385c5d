"""Fields and values of objects by the schemas of their kinds: in patterns, patches, files."""

import re
from collections.abc import Iterator

from lictor.addons.editor.outline import Cursor
from lictor.addons.editor.word_help import WordHelp, WordKind, list_patch_fields
from lictor.core.model.finding import FieldPath
from lictor.lint.schema_fields import (
    FieldLocation,
    SchemaField,
    find_field_help,
    find_field_location,
    list_fields,
    list_kinds,
)
from lictor.lint.schema_kinds import KnownSchemas

_POINTER = re.compile(r"(?<![^\s'\"{,])path['\"]?:\s*['\"]?(/[^\s'\"{,]*)$")
_OPERATION = re.compile(r"(?<![^{,\n])[^\S\n]*(?:- *)?[\"']?\w*$")
_AMOUNTS = (("cpu", "500m"), ("memory", "256Mi"), ("ephemeral-storage", "1Gi"))
_EXAMPLES = {
    "boolean": "true",
    "integer": "1",
    "number": "1.5",
    "quantity": "500Mi",
    "string": "text",
    "integer or string": "80",
}


def show_field(field: SchemaField) -> WordHelp:
    """A field of a schema as editors show it."""
    detail = f"{field.type}: {', '.join(field.values)}" if field.values else field.type
    value = field.values[0] if field.values else _EXAMPLES.get(field.type, "")
    example = f"{field.name}: {value}" if value else ""
    return WordHelp(field.name, detail, field.description, example, is_required=field.is_required)


def find_location(cursor: Cursor, path: FieldPath, schemas: KnownSchemas) -> FieldLocation | None:
    """Which object a path of a document leads into; None where it is of no object."""
    found = find_field_location(cursor.body, path, schemas)
    if found is not None or not cursor.kind:
        return found
    return FieldLocation((schemas.of_kind(cursor.api_version, cursor.kind),), path)


def list_pointer_fields(cursor: Cursor, schemas: KnownSchemas) -> Iterator[WordHelp]:
    """What may follow in the `path` of an operation, within the text of a JSON patch."""
    found = _POINTER.search(cursor.text)
    patched = (*cursor.path[:-1], "patchStrategicMerge")
    location = find_field_location(cursor.body, patched, schemas) if found else None
    if found is None:
        yield from list_patch_fields() if _OPERATION.search(cursor.text) else ()
    if found is None or location is None:
        return
    steps = (step.replace("~1", "/").replace("~0", "~") for step in found[1].split("/")[1:-1])
    path = tuple(0 if step.isdigit() or step == "-" else step for step in steps)
    yield from list_object_fields(FieldLocation(location.types, path))


def list_object_fields(location: FieldLocation) -> Iterator[WordHelp]:
    """The fields that may stand there."""
    listed = list_fields(location.types, location.path)
    yield from map(show_field, listed)
    if [field.name for field in listed] == ["metadata"]:
        # An unknown kind: the fields of nearly all objects.
        yield from (WordHelp(name, "any value") for name in ("spec", "status"))
    amounts = find_field_help(location.types, location.path)
    if amounts is not None and amounts.type == "map of quantity":
        yield from (WordHelp(name, "quantity", example=f"{name}: {n}") for name, n in _AMOUNTS)


def list_object_values(location: FieldLocation) -> Iterator[WordHelp]:
    """The words that a value may be."""
    path = location.path
    while path and isinstance(path[-1], int):
        path = path[:-1]
    found = find_field_help(location.types, path)
    words = () if found is None else found.values
    if found is not None and found.type == "boolean":
        words = ("true", "false")
    yield from (WordHelp(word, kind=WordKind.VALUE) for word in words)


def describe_object_field(location: FieldLocation) -> WordHelp | None:
    """What the field at a place is."""
    found = find_field_help(location.types, location.path)
    return None if found is None else show_field(found)


def list_kind_words(schemas: KnownSchemas) -> Iterator[WordHelp]:
    """All kinds; the same name in several groups or versions once, with all of them."""
    versions: dict[str, list[str]] = {}
    for kind, version in list_kinds(schemas):
        versions.setdefault(kind, []).append(version)
    for kind, listed in versions.items():
        yield WordHelp(kind, ", ".join(listed), kind=WordKind.KIND)
