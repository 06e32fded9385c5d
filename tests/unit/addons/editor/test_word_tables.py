"""The tables of words: nothing is left out, nothing is too many, and examples are right."""

import msgspec
import pytest
import yaml
from msgspec import inspect

from lictor.addons.editor.word_help import find_field_note, load_field_notes, load_words
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.families.registry import registry
from lictor.core.lang.cel import kubernetes
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.functions import Overload
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import authorization_environment, kyverno_environment
from lictor.core.lang.cel.library import lists, texts
from lictor.core.lang.cel.library import math as cel_math
from lictor.core.lang.condition import OPERATORS
from lictor.core.model import matching

# Libraries of CEL itself; the most useful of their functions have notes of another table.
OWN = (
    *kubernetes.LANGUAGE, texts.STRINGS, lists.SETS, lists.EXTENDED_LISTS, cel_math.MATH,
    cel_math.ENCODERS, lists.OPTIONALS,
)  # fmt: skip
OWN_NAMES = {Overload(*row).name for library in OWN for row in library.rows} - {
    "string",
    "math.round",
}
ENVIRONMENTS = (
    kubernetes_environment(),
    *(kyverno_environment(each) for each in ("mutating", "generating", "deleting", "image")),
    *(authorization_environment(mode) for mode in ("Envoy", "HTTP")),
)


def list_parts(place: inspect.Type) -> tuple[inspect.Type, ...]:
    match place:
        case inspect.Metadata(type=inner) | inspect.VarTupleType(item_type=inner):
            return (inner,)
        case inspect.DictType(value_type=inner):
            return (inner,)
        case inspect.UnionType(types=types):
            return types
        case inspect.StructType(fields=fields):
            return tuple(field.type for field in fields)
    return ()


def list_records() -> dict[str, type[msgspec.Struct]]:
    kinds = [kind.family.get_record(kind) for kind in registry().kinds]
    own = [record for record in kinds if record.__module__.startswith("lictor.")]
    waiting = [
        inspect.type_info(record)
        for record in (*own, *FILE_RECORDS.values(), matching.Condition, matching.AnyAllConditions)
    ]
    found: dict[str, type[msgspec.Struct]] = {}
    while waiting:
        place = waiting.pop()
        if isinstance(place, inspect.StructType):
            if place.cls.__name__ in found:
                continue
            found[place.cls.__name__] = place.cls
        waiting.extend(list_parts(place))
    return found


def list_fields(record: type[msgspec.Struct]) -> list[str]:
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    return [field.encode_name for field in info.fields]


def test_every_field_has_a_note() -> None:
    records = list_records().values()
    assert len(records) > 100
    missing = [
        f"{record.__name__}.{field}"
        for record in records
        for field in list_fields(record)
        if not find_field_note(record, field)[0]
    ]
    assert missing == []


def test_no_note_is_about_a_field_that_is_not_there() -> None:
    records = list_records()
    known = {field for record in records.values() for field in list_fields(record)}
    for name, notes in load_field_notes().items():
        fields = known if name == "*" else list_fields(records[name])
        assert set(notes) <= set(fields), name


def test_examples_of_fields_are_yaml_of_that_field() -> None:
    for name, notes in load_field_notes().items():
        for field, note in notes.items():
            if not isinstance(note, str):
                assert list(yaml.safe_load(note[1])) == [field], f"{name}.{field}"


def test_operators_are_those_of_conditions() -> None:
    assert set(load_words().operators) == set(OPERATORS)


def test_every_function_of_the_libraries_has_a_note() -> None:
    words = load_words()
    known = {name.lower() for name in words.library}
    names = {
        f".{each.name}" if each.is_member else each.name
        for environment in ENVIRONMENTS
        for each in environment.list_overloads()
        if each.name[0].isalpha() and "@" not in each.name and each.name not in OWN_NAMES
    }
    missing = {
        name
        for name in names
        # The older spelling with a capital letter is not offered.
        if name.lower() not in known
        and name.lstrip(".") not in words.members
        and name not in words.functions
    }
    assert missing == set()
    assert set(words.library) - names == set()


@pytest.mark.parametrize("table", ["functions", "members"])
def test_examples_of_functions_compile(table) -> None:
    for name, function in getattr(load_words(), table).items():
        assert name in function.example
        compile_expression(function.example, kyverno_environment("validating"))
