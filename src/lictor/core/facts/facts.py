"""Generated facts of one release of Kubernetes, read section by section when first needed.

`scripts/make_facts.py` writes them (`make facts`), and says what each section holds.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
import orjson

from lictor.core.raw import JsonObject

# The release whose behaviour is followed; the generator pins the same one.
RELEASE = "v1.34.3"
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class SubresourceFacts(msgspec.Struct, frozen=True):
    """Verbs, and apiVersion and kind of what is sent there, where that is another kind."""

    verbs: tuple[str, ...]
    kind: tuple[str, str] | None = None


class KindFacts(msgspec.Struct, frozen=True):
    """What discovery tells of one kind of one version."""

    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, SubresourceFacts] = {}


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


@cache
def _read_file() -> bytes:
    # Loads much of the standard library, and most runs never come here.
    from importlib.resources import files

    return b"\n" + files(__package__).joinpath("facts.jsonl").read_bytes()


@cache
def load_section(name: str) -> JsonObject:
    """The entries of a section by their keys; only its lines, which stand together, are decoded."""
    data, mark = _read_file(), f'\n["{name}",'.encode()
    lines = data[data.index(mark) + 1 : data.index(b"\n", data.rindex(mark) + 1)]
    entries = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
    return {key: value for _, key, value in entries}


def find_type_name(api_version: str, kind: str) -> str | None:
    """The type of a built-in kind; None for kinds that Kubernetes itself does not have."""
    found: str | None = load_section("kinds").get(api_version, {}).get(kind)
    return found


# Made now, not when threads first read one at the same time: msgspec would crash.
msgspec.json.Decoder(tuple[TypeFacts, KindFacts])


@cache
def load_type_facts() -> Mapping[str, TypeFacts]:
    """What is known of the fields of each type; NO_FACTS where nothing is."""
    return msgspec.convert(load_section("fields"), dict[str, TypeFacts])


@cache
def load_served_kinds() -> Mapping[str, Mapping[str, KindFacts]]:
    """The kinds that the API server serves, by apiVersion and kind."""
    return msgspec.convert(load_section("served"), dict[str, dict[str, KindFacts]])
