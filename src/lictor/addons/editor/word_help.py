"""Help for words: the tables of this package, and how words are shown."""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TypeAlias

import msgspec


class WordKind(StrEnum):
    """What editors draw beside a word."""

    FIELD = "field"
    VALUE = "value"
    KIND = "kind"
    FUNCTION = "function"
    VARIABLE = "variable"
    OPERATOR = "operator"


class WordHelp(msgspec.Struct, frozen=True):
    """A word that may stand at a place: what it is in short, what it is for, and an example."""

    word: str
    detail: str = ""
    note: str = ""
    example: str = ""
    kind: WordKind = WordKind.FIELD
    is_required: bool = False


class CelMember(msgspec.Struct, frozen=True, array_like=True):
    """A function after a dot: what may stand before it, its signature, a note, an example."""

    receivers: str
    signature: str
    note: str
    example: str


class CelFunction(msgspec.Struct, frozen=True, array_like=True):
    """A function that CEL brings: its signature, a note, an example."""

    signature: str
    note: str
    example: str


class WordTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words of conditions and expressions; variables with type and note."""

    operators: Mapping[str, str]
    annotations: Mapping[str, str]
    json_patch: Mapping[str, str]
    jmespath: Mapping[str, tuple[str, str]]
    cel: Mapping[str, tuple[str, str]]
    functions: Mapping[str, CelFunction]
    members: Mapping[str, CelMember]
    library: Mapping[str, str]


def _read(name: str) -> Mapping[str, object]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def load_words() -> WordTable:
    """The words of conditions and expressions."""
    return msgspec.convert(_read("words.toml"), WordTable)


FieldNotes: TypeAlias = Mapping[str, Mapping[str, str | tuple[str, str]]]


@cache
def load_field_notes() -> FieldNotes:
    """What fields of records are for, by record and field; `*` for all records."""
    notes: FieldNotes = msgspec.convert(_read("field_notes.toml"), FieldNotes)
    return notes


def find_field_note(record: type, field: str) -> tuple[str, str]:
    """What a field is for, and an example; empty where there is none."""
    notes = load_field_notes()
    for name in (*(each.__name__ for each in record.__mro__), "*"):
        found = notes.get(name, {}).get(field)
        if found is not None:
            return (found, "") if isinstance(found, str) else found
    return "", ""


def list_patch_fields() -> list[WordHelp]:
    """Fields of the operations of a JSON patch."""
    return [WordHelp(name, "JSON patch", note) for name, note in load_words().json_patch.items()]


def list_annotations() -> list[WordHelp]:
    """Annotations of policies."""
    notes = load_words().annotations
    return [WordHelp(name, "annotation", note) for name, note in notes.items()]


def list_operators() -> list[WordHelp]:
    """Operators of conditions."""
    return [
        WordHelp(name, "operator", note, kind=WordKind.OPERATOR)
        for name, note in load_words().operators.items()
    ]
