"""What may stand at a place of a file, and what is it for? Help and completion for editors."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import inspect

from lictor.editor.cursor import Cursor
from lictor.families.registry import registry
from lictor.kubernetes.facts import load_served_kinds
from lictor.kubernetes.field_types import FieldType, find_field_type
from lictor.lang.condition import OPERATORS
from lictor.lang.jmespath.functions import FUNCTIONS
from lictor.model.finding import FieldPath
from lictor.offline.records import FILE_RECORDS


class WordHelp(msgspec.Struct, frozen=True):
    """A word that may stand at a place: what it is in short, and what it is for."""

    word: str
    detail: str = ""
    note: str = ""


def list_words(cursor: Cursor) -> list[WordHelp]:
    """The words that may stand at a place."""
    if cursor.in_variable:
        return [
            WordHelp(name, FUNCTIONS[name].signature, FUNCTIONS[name].note) for name in FUNCTIONS
        ]
    if cursor.is_key:
        listed = _list_kinds() if _names_kinds(cursor.path[:-1]) else _list_fields(cursor)
        return list(listed)
    if cursor.path[-1] == "operator":
        return [WordHelp(each, "operator") for each in sorted(OPERATORS)]
    return list(_list_kinds() if _names_kinds(cursor.path) else _list_values(cursor))


def describe_field(cursor: Cursor) -> WordHelp | None:
    """What the last field of a path is; None where nobody knows."""
    if not cursor.path or not isinstance(cursor.path[-1], str):
        return None
    parent = msgspec.structs.replace(cursor, path=cursor.path[:-1])
    return next((each for each in _list_fields(parent) if each.word == cursor.path[-1]), None)


def describe_function(name: str) -> WordHelp | None:
    """What a function of JMESPath does."""
    found = FUNCTIONS.get(name)
    return None if found is None else WordHelp(name, found.signature, found.note)


def _names_kinds(path: FieldPath) -> bool:
    return bool(path) and path[-1] == "kinds"


def _list_kinds() -> Iterator[WordHelp]:
    for version, kinds in load_served_kinds().items():
        yield from (WordHelp(kind, version) for kind in kinds)


def _list_fields(cursor: Cursor) -> Iterator[WordHelp]:
    found = _find_record_type(cursor)
    if isinstance(found, inspect.StructType):
        for field in found.fields:
            inner = _unwrap(field.type)
            yield WordHelp(field.encode_name, _name_type(inner), _read_note(inner))
    elif found is None:
        place = _find_place(cursor)
        for name, each in (place.fields if place else {}).items():
            yield WordHelp(name, _name_place(each))


def _list_values(cursor: Cursor) -> Iterator[WordHelp]:
    found = _find_record_type(cursor)
    if isinstance(found, inspect.LiteralType):
        yield from (WordHelp(str(each)) for each in found.values if each)
    elif isinstance(found, inspect.BoolType):
        yield from (WordHelp(each) for each in ("true", "false"))


# --- records of policies and of files of the command line


def _find_record_type(cursor: Cursor) -> inspect.Type | None:
    group = cursor.api_version.rpartition("/")[0]
    kind = registry().find(group, cursor.kind)
    record = kind.load_record() if kind else FILE_RECORDS.get(cursor.kind)
    if record is None:
        return None
    place: inspect.Type = inspect.type_info(record)
    for step in cursor.path:
        place = _step_into(_unwrap(place), step)
    return _unwrap(place)


def _step_into(place: inspect.Type, step: str | int) -> inspect.Type:
    match place:
        case inspect.StructType(fields=fields):
            found = [each.type for each in fields if each.encode_name == step]
            # The type of a class was not looked into where it nests itself.
            return found[0] if found else inspect.AnyType()
        case inspect.VarTupleType(item_type=inner):
            return inner
        case inspect.DictType(value_type=inner):
            return inner
        case _:
            return inspect.AnyType()


def _unwrap(place: inspect.Type) -> inspect.Type:
    while True:
        match place:
            case inspect.Metadata(type=inner):
                place = inner
            case inspect.UnionType(types=types):
                place = next(t for t in types if not isinstance(t, inspect.NoneType))
            case _:
                return place


_NAMES: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.StructType: "object",
    inspect.DictType: "map",
}


def _name_type(place: inspect.Type) -> str:
    if isinstance(place, inspect.VarTupleType):
        return f"list of {_name_type(_unwrap(place.item_type))}"
    if isinstance(place, inspect.LiteralType):
        return " or ".join(str(each) for each in place.values if each)
    return _NAMES.get(type(place), "any value")


def _read_note(place: inspect.Type) -> str:
    """Records say what they are for."""
    if isinstance(place, inspect.VarTupleType):
        return _read_note(_unwrap(place.item_type))
    return (place.cls.__doc__ or "").strip() if isinstance(place, inspect.StructType) else ""


# --- objects of Kubernetes


def _find_place(cursor: Cursor) -> FieldType | None:
    place = find_field_type(cursor.api_version, cursor.kind)
    for step in cursor.path:
        if place is None:
            return None
        place = place.element if step == 0 else place.fields.get(str(step), place.others)
    return place


def _name_place(place: FieldType) -> str:
    if place.element is not None:
        return f"list of {_name_place(place.element)}"
    if place.is_quantity:
        return "quantity"
    if place.scalar:
        return " or ".join(sorted(each.__name__ for each in place.scalar))
    return "object" if place.fields else "any value"
