"""What is known of built-in kinds, read from tables: names, verbs, formats, enumerations."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec
import orjson

from lictor.raw import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Subresource(msgspec.Struct, frozen=True):
    """Verbs, and apiVersion and kind of what is sent there, where that is another kind."""

    verbs: tuple[str, ...]
    kind: tuple[str, str] | None = None


class KindFacts(msgspec.Struct, frozen=True):
    """What is special about one kind of one version."""

    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = {}


class TypeFacts(msgspec.Struct, frozen=True):
    """What is known of the fields of a type besides their names and how they are merged."""

    required: tuple[str, ...] = ()
    # Numbers that are not told here are int32.
    formats: Mapping[str, str] = {}
    enums: Mapping[str, tuple[str, ...]] = {}
    # Fields that are not there where they are "", 0 or false.
    silent: tuple[str, ...] = ()
    # Strategy and, for lists of objects, the key.
    patches: Mapping[str, tuple[str, ...]] = {}


NO_FACTS = TypeFacts()


class BuiltinTable(msgspec.Struct, frozen=True):
    """Everything."""

    # Versions of each group, the preferred one first; in the order of discovery.
    groups: Mapping[str, tuple[str, ...]]
    # apiVersion -> kind -> facts
    kinds: Mapping[str, Mapping[str, KindFacts]]
    types: Mapping[str, TypeFacts]


@cache
def load_builtin_table() -> BuiltinTable:
    """Read the table; once."""
    data = files(__package__).joinpath("builtin_kinds.json").read_bytes()
    return msgspec.json.decode(data, type=BuiltinTable)


@cache
def load_fields() -> JsonObject:
    """Fields of all types as `lang/kind_schemas.json` has them: `kinds` and `types`."""
    fields: JsonObject = orjson.loads(
        files("lictor.lang").joinpath("kind_schemas.json").read_bytes()
    )
    return fields
