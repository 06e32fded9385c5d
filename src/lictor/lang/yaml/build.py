"""YAML nodes into plain JSON, by the rules of the library that Kubernetes reads with."""

from collections.abc import Callable

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.lang.go_number import is_number, settle_number
from lictor.lang.yaml.nodes import QUOTED, check_aliases, compose, point_at
from lictor.lang.yaml.plain_json import MAX_DEPTH, YamlFault
from lictor.lang.yaml.scalars import (
    CAREFUL,
    MEANINGFUL,
    read_plain,
    resolve_plain,
    resolve_tagged,
    settle,
    write_key,
)
from lictor.raw import Json, JsonObject


def parse_yaml_text(text: str) -> Json:
    """Read the first document; ValueError where it is none, or none that JSON can hold."""
    try:
        root = next(compose(text), None)
        if root is None:
            return None
        check_aliases(root)
        return _settle_numbers(Builder().build(root))
    except YamlFault as fault:
        raise ValueError(f"yaml: line {fault.line + 1}: {fault.message}") from fault


def _settle_numbers(value: Json) -> Json:
    """Numbers as expressions have them: every number is a float of 64 bits in Go there."""
    if is_number(value):
        return settle_number(value)
    if isinstance(value, dict):
        return {key: _settle_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settle_numbers(item) for item in value]
    return value


_MERGE = "tag:yaml.org,2002:merge"


def _read_scalar(node: ScalarNode) -> Json:
    if node.tag is None:
        return read_plain(node.value)
    return settle(resolve_tagged(node.tag, node.value))


class Duplicate(msgspec.Struct, frozen=True):
    """A key that stands twice in one mapping; line and column count from zero."""

    key: str
    line: int
    column: int


class Builder(msgspec.Struct):
    """Builds one document, and notes the keys that stand twice (the last one wins)."""

    duplicates: list[Duplicate] = msgspec.field(default_factory=list)

    def build(self, node: Node, depth: int = 0) -> Json:
        if isinstance(node, ScalarNode):
            text: str = node.value
            # Most scalars are strings beyond doubt.
            if node.tag is QUOTED or (node.tag is None and text and text[0] not in MEANINGFUL):
                return text
            return _read_at(node, _read_scalar)
        if depth >= MAX_DEPTH:
            raise point_at(node.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, MappingNode):
            made: JsonObject = {}
            self._fill(made, node, depth + 1)
            return made
        build = self.build
        return [build(item, depth + 1) for item in node.value]

    def _fill(self, made: JsonObject, node: MappingNode, depth: int) -> None:
        build = self.build
        merged: set[str] = set()
        for key_node, value_node in node.value:
            key = key_node.value
            tag = key_node.tag
            if key_node.__class__ is not ScalarNode:
                raise point_at(key_node.start_mark, "a mapping or a list cannot be a key")
            if tag is not QUOTED and (tag is not None or not key or key[0] in CAREFUL):
                if key == "<<" and (tag is None or tag == _MERGE):
                    merged |= self._merge(made, value_node, depth)
                    continue
                key = _read_at(key_node, _read_key)
            if key in made and key not in merged:
                self.duplicates.append(
                    Duplicate(key, key_node.start_mark.line, key_node.start_mark.column)
                )
            # As in `build`, without a call: this is what most of any file is.
            if value_node.__class__ is ScalarNode:
                text, tag = value_node.value, value_node.tag
                if tag is QUOTED or (tag is None and text and text[0] not in MEANINGFUL):
                    made[key] = text
                    continue
            made[key] = build(value_node, depth)

    def _merge(self, made: JsonObject, node: Node, depth: int) -> set[str]:
        merged: set[str] = set()
        # Of several the first wins, so it is laid on last.
        sources = reversed(node.value) if isinstance(node, SequenceNode) else (node,)
        for source in sources:
            if not isinstance(source, MappingNode):
                raise point_at(
                    source.start_mark, "map merge requires map or sequence of maps as the value"
                )
            if depth >= MAX_DEPTH:
                raise point_at(source.start_mark, f"nested deeper than {MAX_DEPTH} levels")
            part = self.build(source, depth)
            made.update(part)
            merged.update(part)
        return merged


def _read_at(node: ScalarNode, read: Callable[[ScalarNode], Json]) -> Json:
    try:
        return read(node)
    except ValueError as error:
        raise point_at(node.start_mark, str(error)) from error


def _read_key(node: ScalarNode) -> str:
    tagless = node.tag is None
    return write_key(resolve_plain(node.value) if tagless else resolve_tagged(node.tag, node.value))
