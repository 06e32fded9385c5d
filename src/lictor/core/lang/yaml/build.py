"""Parses YAML text to plain JSON, by the rules of the library that Kubernetes uses.

libyaml produces the events; Kubernetes' parser is a port of an older libyaml. If the two differ,
the text is read as Kubernetes reads it, or refused.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec
from yaml._yaml import CParser
from yaml.error import YAMLError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from lictor.core.lang.go_number import is_number, settle_number
from lictor.core.lang.yaml.dialect import (
    BYTE_ORDER_MARK,
    YamlEvent,
    has_bare_tag,
    may_hold_bare_tags,
    repair_text,
    replace_marks,
)
from lictor.core.lang.yaml.nodes import is_excessive, locate, point_at
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth
from lictor.core.lang.yaml.scalars import (
    CAREFUL,
    MEANINGFUL,
    read_plain,
    resolve_plain,
    resolve_tagged,
    settle,
    write_key,
)
from lictor.core.raw import Json, JsonObject

# What libyaml accepts and Kubernetes rejects: a tag that is not followed by whitespace.
# re: linear - tried once at each tag, over its letters only
_JOINED_TAG: Final = re.compile(r"(?:&[A-Za-z0-9_-]+\s+)?!(?!<)[^\s,\[\]]*[,\[\]]")
# A null key, which is an error if it remains. No text contains it.
_NULL_KEY: Final = "\ud800"
# The number of duplicate keys to record for a document.
_MOST_DUPLICATES: Final = 1000
# How often a text is parsed again for what only libyaml rejects.
_MOST_REPAIRS: Final = 16
_MERGE: Final = "tag:yaml.org,2002:merge"
_NO_TYPES: Final[dict[str, Json]] = {}


def parse_yaml_text(text: str) -> Json:
    """Parse the first document; raises ValueError if it is invalid, or JSON cannot represent it."""
    try:
        built = build_yaml(text)
    except YamlFault as fault:
        raise ValueError(f"yaml: line {fault.line + 1}: {fault.message}") from fault
    return None if built is None else _settle_numbers(built.body)


def _settle_numbers(value: Json) -> Json:
    """Numbers as in expressions: every number is a 64-bit float in Go there."""
    if is_number(value):
        return settle_number(value)
    if isinstance(value, dict):
        return {key: _settle_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settle_numbers(item) for item in value]
    return value


class Duplicate(msgspec.Struct, frozen=True):
    """A duplicate key in a mapping; line and column count from zero."""

    key: str
    line: int
    column: int


class BuiltDocument(msgspec.Struct, frozen=True):
    """The value of a document, its first line, counted from zero, and its duplicate keys."""

    body: Json
    line: int
    # The last one is used.
    duplicates: list[Duplicate]


def build_yaml(text: str) -> BuiltDocument | None:
    """The first document of a text; as in Kubernetes, the rest is not parsed."""
    replaced: dict[int, str] = {}
    if BYTE_ORDER_MARK in text:
        text, replaced = replace_marks(text)
    for _ in range(_MOST_REPAIRS):
        try:
            return _Builder(text, replaced).build()
        except YAMLError as error:
            repaired = repair_text(text, error, replaced)
            if not repaired:
                raise locate(error) from error
            text = repaired
        except UnicodeEncodeError as error:
            raise YamlFault("not valid Unicode") from error
    raise YamlFault("too many colons or escapes that other readers of YAML refuse")


class _Anchored(msgspec.Struct):
    """The target of an anchor: its first event, and its value when complete."""

    event: YamlEvent
    value: Json = None
    is_open: bool = True
    # The number of values in it, including those of aliases.
    size: int = 0


class _Builder:
    """Builds the first document of a text from its events."""

    def __init__(self, text: str, replaced: dict[int, str]) -> None:
        self._text = text
        self._replaced = replaced
        self._next: Callable[[], YamlEvent] = CParser(text).get_event
        # A question mark starts a key in flow collections, at any position.
        self._may_hold_keys = "?" in text and ("{" in text or "[" in text)
        self._may_hold_bare_tags = "!" in text and may_hold_bare_tags(text)
        self._may_be_misspelt = "!" in text or "\\/" in text
        # Every scalar is plain: without tag and anchor.
        self._is_simple = not (
            replaced or self._may_hold_keys or "!" in text or "&" in text or "\\/" in text
        )
        self._anchors: dict[str, _Anchored] = {}
        # The number of values, if there may be aliases, and how many come from those.
        self._count = 0
        self._aliased = 0
        # Of mappings with keys that are no texts: these keys.
        self._typed: dict[int, dict[str, Json]] = {}
        self._null_key: YamlEvent | None = None
        self._duplicates: list[Duplicate] = []

    def build(self) -> BuiltDocument | None:
        self._next()
        start = self._next()
        if isinstance(start, StreamEndEvent):
            return None
        if start.version not in (None, (1, 1)):
            raise point_at(start.start_mark, "found incompatible YAML document: use %YAML 1.1")
        root = self._next()
        body = self._read(root, 0, in_flow=False)
        # The end of the document may be invalid.
        self._next()
        if self._null_key and _has_key(body, _NULL_KEY):
            raise point_at(self._null_key.start_mark, "null cannot be a key")
        if self._aliased:
            check_depth(body)
        return BuiltDocument(body, root.start_mark.line, self._duplicates)

    def _read(self, event: YamlEvent, depth: int, *, in_flow: bool) -> Json:
        kind = event.__class__
        before = self._count
        self._count += 1
        if kind is AliasEvent:
            return self._expand(event)
        anchored = None
        if event.anchor is not None:
            anchored = self._anchors[event.anchor] = _Anchored(event)
        if kind is ScalarEvent:
            value = self._read_scalar(event, in_flow=in_flow)
        elif depth >= MAX_DEPTH:
            raise point_at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        elif kind is MappingStartEvent:
            value = self._read_mapping(depth + 1, in_flow=event.flow_style)
        else:
            value = self._read_sequence(depth + 1, in_flow=event.flow_style)
        if anchored is not None:
            anchored.value, anchored.is_open = value, False
            anchored.size = self._count - before
        return value

    def _read_sequence(self, depth: int, *, in_flow: bool) -> list[Json]:
        items: list[Json] = []
        following, is_simple = self._next, self._is_simple
        while (event := following()).__class__ is not SequenceEndEvent:
            # Most scalars are definitely strings.
            if is_simple and event.__class__ is ScalarEvent:
                text = event.value
                if text and text[0] not in MEANINGFUL:
                    items.append(text)
                    continue
            items.append(self._read(event, depth, in_flow=in_flow))
        return items

    def _read_mapping(self, depth: int, *, in_flow: bool) -> JsonObject:
        made: JsonObject = {}
        typed: dict[str, Json] = {}
        merged: set[str] = set()
        following, is_simple = self._next, self._is_simple
        while (event := following()).__class__ is not MappingEndEvent:
            key = event.value if is_simple and event.__class__ is ScalarEvent else ""
            if not key or key[0] in CAREFUL:
                if event.__class__ is ScalarEvent and event.value == "<<" and _is_merge(event):
                    merged |= self._merge(made, typed, depth)
                    continue
                key = self._read_key(event, made, typed, in_flow=in_flow)
            elif key in typed:
                raise _clash(event, key)
            if key in made and key not in merged and len(self._duplicates) < _MOST_DUPLICATES:
                mark = event.start_mark
                self._duplicates.append(Duplicate(key, mark.line, mark.column))
            # Like `_read`, without a call: this is the bulk of any file.
            event = following()
            if is_simple and event.__class__ is ScalarEvent:
                text = event.value
                if text and text[0] not in MEANINGFUL:
                    made[key] = text
                    continue
            if event.__class__ is ScalarEvent and not event.value and _is_omitted(event):
                made[key] = None
                self._count += 1
                continue
            made[key] = self._read(event, depth, in_flow=in_flow)
        if typed:
            self._typed[id(made)] = typed
        return made

    def _read_key(
        self, event: YamlEvent, made: JsonObject, typed: dict[str, Json], *, in_flow: bool
    ) -> str:
        """A key as text. If two different values have the same text, either might win."""
        self._count += 1
        if event.__class__ is ScalarEvent and not event.value and _is_omitted(event):
            self._null_key = event
            return _NULL_KEY
        scalar = self._find(event).event if event.__class__ is AliasEvent else event
        if scalar.__class__ is not ScalarEvent:
            raise point_at(event.start_mark, "a mapping or a list cannot be a key")
        if scalar is event and event.anchor is not None:
            self._read(event, 0, in_flow=in_flow)
        try:
            value = self._resolve(scalar, in_flow=in_flow)
            key = _NULL_KEY
            if value is not None:
                key = value if value.__class__ is str else write_key(value)
        except ValueError as error:
            raise point_at(event.start_mark, str(error)) from error
        if value is None:
            self._null_key = event
        elif isinstance(value, str):
            if key in typed:
                raise _clash(event, key)
        else:
            if key in made and not _is_same(typed.get(key, key), value):
                raise _clash(event, key)
            typed[key] = value
        return key

    def _merge(self, made: JsonObject, typed: dict[str, Json], depth: int) -> set[str]:
        """Merge other mappings below this one; returns their keys."""
        event = self._next()
        value = self._read(event, depth, in_flow=False)
        # An alias of a list is no list of mappings.
        is_list = event.__class__ is SequenceStartEvent
        merged: set[str] = set()
        # Of several the first wins, so it is merged last.
        for source in reversed(value if is_list else [value]):
            if not isinstance(source, dict):
                raise point_at(
                    event.start_mark, "map merge requires map or sequence of maps as the value"
                )
            others = self._typed.get(id(source), _NO_TYPES)
            for key in source.keys() & made.keys() & (typed.keys() | others.keys()):
                if not _is_same(typed.get(key, key), others.get(key, key)):
                    raise _clash(event, key)
            made.update(source)
            typed.update(others)
            merged.update(source)
        return merged

    def _find(self, alias: YamlEvent) -> _Anchored:
        found = self._anchors.get(alias.anchor)
        if found is None:
            raise point_at(alias.start_mark, f"unknown anchor '{alias.anchor}' referenced")
        if found.is_open:
            raise point_at(alias.start_mark, "an anchor's value contains itself")
        return found

    def _expand(self, alias: YamlEvent) -> Json:
        """A copy of an alias's target; refuses documents that aliases expand excessively."""
        found = self._find(alias)
        self._count += found.size
        self._aliased += found.size
        if is_excessive(self._aliased, self._count):
            raise point_at(alias.start_mark, "document contains excessive aliasing")
        check_depth(found.value)
        return self._copy(found.value)

    def _copy(self, value: Json) -> Json:
        if isinstance(value, dict):
            copied = {key: self._copy(item) for key, item in value.items()}
            if id(value) in self._typed:
                self._typed[id(copied)] = self._typed[id(value)]
            return copied
        return [self._copy(item) for item in value] if isinstance(value, list) else value

    def _read_scalar(self, event: YamlEvent, *, in_flow: bool) -> Json:
        try:
            if self._is_simple and event.implicit[0]:
                return read_plain(event.value)
            value = self._resolve(event, in_flow=in_flow)
            return value if value.__class__ is str else settle(value)
        except ValueError as error:
            raise point_at(event.start_mark, str(error)) from error

    def _check_spelling(self, event: YamlEvent) -> None:
        start, end = event.start_mark, event.end_mark
        written = self._text[start.index : end.index] if event.style == '"' else ""
        if "\\/" in written and "\\/" in written.replace("\\\\", ""):
            raise point_at(start, "found unknown escape character: write / without a backslash")
        if event.tag is not None and _JOINED_TAG.match(self._text, start.index):
            raise point_at(start, "expected a space after the tag")

    def _resolve(self, event: YamlEvent, *, in_flow: bool) -> Json:
        """The value of a scalar, before `settle`."""
        text: str = event.value
        if in_flow and self._may_hold_keys and "?" in text and not event.style:
            raise point_at(event.start_mark, "found unexpected '?': put the text in quotes")
        if self._may_be_misspelt:
            self._check_spelling(event)
        if self._replaced:
            text = text.translate(self._replaced)
        if event.tag is not None:
            return resolve_tagged(event.tag, text)
        if not event.implicit[0]:
            return text
        if self._may_hold_bare_tags and has_bare_tag(self._text, event):
            return text
        return resolve_plain(text)


def _has_key(value: Json, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_has_key(item, key) for item in value.values())
    return isinstance(value, list) and any(_has_key(item, key) for item in value)


def _is_omitted(scalar: YamlEvent) -> bool:
    """Whether a scalar is omitted, as after `a:`; it has neither tag nor anchor."""
    return bool(scalar.start_mark.index == scalar.end_mark.index)


def _is_merge(scalar: YamlEvent) -> bool:
    return bool(scalar.implicit[0] or scalar.tag == _MERGE)


def _is_same(value: Json, other: Json) -> bool:
    return type(value) is type(other) and bool(value == other)


def _clash(event: YamlEvent, key: str) -> YamlFault:
    return point_at(event.start_mark, f"two keys become the same text: {key!r}")
