"""Generated facts of one release of Kubernetes, read section by section on demand.

`scripts/make_facts.py` writes them (`make facts`) and documents each section.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
import orjson

from lictor.core.raw import JsonObject
from lictor.core.release import REFERENCES

RELEASE = REFERENCES["kubernetes"]
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class SubresourceFacts(msgspec.Struct, frozen=True):
    """Verbs, and apiVersion and kind of the body if it is another kind."""

    verbs: tuple[str, ...]
    kind: tuple[str, str] | None = None


class KindFacts(msgspec.Struct, frozen=True):
    """Discovery data of one kind of one version."""

    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, SubresourceFacts] = {}


class TypeFacts(msgspec.Struct, frozen=True):
    """Facts about the fields of a type besides their names and merge strategies."""

    required: tuple[str, ...] = ()
    # Other numbers are int32.
    formats: Mapping[str, str] = {}
    enums: Mapping[str, tuple[str, ...]] = {}
    # Fields that are omitted if they are "", 0 or false.
    silent: tuple[str, ...] = ()
    # Lists and maps that are written even if they are empty.
    kept: tuple[str, ...] = ()
    # Strategy and, for lists of objects, the key.
    patches: Mapping[str, tuple[str, ...]] = {}


NO_FACTS = TypeFacts()


@cache
def _read_file() -> bytes:
    # Imports much of the standard library; most runs never need it.
    from importlib.resources import files

    return b"\n" + files(__package__).joinpath("facts.jsonl").read_bytes()


@cache
def load_section(name: str) -> JsonObject:
    """The entries of a section by key; decodes only its lines, which are contiguous."""
    data, mark = _read_file(), f'\n["{name}",'.encode()
    lines = data[data.index(mark) + 1 : data.index(b"\n", data.rindex(mark) + 1)]
    entries = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
    return {key: value for _, key, value in entries}


def find_type_name(api_version: str, kind: str) -> str | None:
    """The type of a built-in kind; None for other kinds."""
    found: str | None = load_section("kinds").get(api_version, {}).get(kind)
    return found


# Built now: msgspec would crash if threads built it on first use at the same time.
msgspec.json.Decoder(tuple[TypeFacts, KindFacts])


@cache
def load_type_facts() -> Mapping[str, TypeFacts]:
    """The facts about the fields of each type; NO_FACTS if there are none."""
    return msgspec.convert(load_section("fields"), dict[str, TypeFacts])


@cache
def load_served_kinds() -> Mapping[str, Mapping[str, KindFacts]]:
    """The kinds that the API server serves, by apiVersion and kind."""
    return msgspec.convert(load_section("served"), dict[str, dict[str, KindFacts]])
