"""Which fields and values do policies and files of the command line have? From their records."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import inspect

from lictor.editor.word_help import WordHelp, WordKind, find_field_note
from lictor.families.registry import registry
from lictor.model import matching, signatures
from lictor.model.finding import FieldPath
from lictor.offline.records import FILE_RECORDS


def find_record(api_version: str, kind: str) -> type[msgspec.Struct] | None:
    """The record of a kind of policy or of file; None of other kinds."""
    found = registry().find(api_version.rpartition("/")[0], kind)
    if found is None and not api_version:
        # Not yet written, or the line that is being written.
        found = next((each for each in registry().kinds if each.kind == kind), None)
    return found.load_record() if found else FILE_RECORDS.get(kind)


def find_record_type(record: type[msgspec.Struct], path: FieldPath) -> inspect.Type:
    """What may stand at a path."""
    place: inspect.Type = inspect.type_info(record)
    for step in path:
        place = _step_into(_unwrap(place, step), step)
    return _unwrap(place)


def _step_into(place: inspect.Type, step: str | int) -> inspect.Type:
    match place:
        case inspect.StructType(fields=fields):
            found = [each.type for each in fields if each.encode_name == step]
            return found[0] if found else inspect.AnyType()
        case inspect.VarTupleType(item_type=inner) if isinstance(step, int):
            return inner
        case inspect.DictType(value_type=inner):
            return inner
        case _:
            return inspect.AnyType()


def _unwrap(place: inspect.Type, step: str | int | None = None) -> inspect.Type:
    """The type itself; what comes next tells an object of free form from a list of such."""
    while True:
        match place:
            case inspect.Metadata(extra={"shape": str(shape), "items": str(items)}):
                name = items if isinstance(step, int) else shape
                place = _read_shape(name, is_list=isinstance(step, int))
            case inspect.Metadata(type=inner):
                place = inner
            case inspect.UnionType(types=types):
                place = next(t for t in types if not isinstance(t, inspect.NoneType))
            case inspect.StructType(cls=cls, fields=()):
                # The type of a class is not looked into where it nests itself.
                return inspect.type_info(cls)
            case _:
                return place


def _read_shape(name: str, *, is_list: bool) -> inspect.Type:
    record = getattr(matching, name, None) or getattr(signatures, name, None)
    if record is None:
        return inspect.AnyType()
    found = inspect.type_info(record)
    return inspect.VarTupleType(found) if is_list else found


def list_record_fields(place: inspect.Type) -> Iterator[WordHelp]:
    """The fields of an object."""
    if not isinstance(place, inspect.StructType):
        return
    for field in place.fields:
        note, example = find_field_note(place.cls, field.encode_name)
        detail = _name_type(_unwrap(field.type))
        if isinstance(field.default, (bool, int)) or (field.default and _is_word(field.default)):
            detail += f", default {str(field.default).lower()}"
        yield WordHelp(
            field.encode_name,
            detail,
            note or _read_note(_unwrap(field.type)),
            example,
            is_required=field.required,
        )


def _is_word(value: object) -> bool:
    return isinstance(value, str)


def list_record_values(place: inspect.Type) -> Iterator[WordHelp]:
    """The words that a value may be."""
    if isinstance(place, inspect.VarTupleType):
        place = _unwrap(place.item_type)
    if isinstance(place, inspect.LiteralType):
        yield from (WordHelp(str(each), kind=WordKind.VALUE) for each in place.values if each)
    elif isinstance(place, inspect.BoolType):
        yield from (WordHelp(each, kind=WordKind.VALUE) for each in ("true", "false"))


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
