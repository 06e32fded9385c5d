"""Parses text to YAML nodes with positions."""

from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from yaml._yaml import CParser
from yaml._yaml import Mark as ParserMark
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    MappingStartEvent,
    ScalarEvent,
    StreamEndEvent,
)
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.core.lang.yaml.dialect import YamlEvent, has_bare_tag
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault

# The tag of a scalar that is text, by quotes or the tag `!`. A plain scalar has none (None): its
# type is resolved later.
TEXT: Final = "text"


def point_at(mark: Mark | ParserMark | None, message: str) -> YamlFault:
    """A fault at a libyaml mark."""
    return YamlFault(message, mark.line, mark.column) if mark else YamlFault(message)


def locate(error: YAMLError) -> YamlFault:
    """A libyaml error as a fault."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "not YAML"
        return point_at(mark, message)
    return YamlFault(getattr(error, "reason", "") or "not YAML")


def compose(text: str) -> Iterator[Node]:
    """The documents of a text as nodes. Raises YamlFault at the first broken one."""
    try:
        parser = CParser(text)
        parser.get_event()
        while not isinstance(parser.get_event(), StreamEndEvent):
            yield _compose_document(parser.get_event, text)
    except YAMLError as error:
        raise locate(error) from error
    except UnicodeEncodeError as error:
        raise YamlFault("not valid Unicode") from error


def _compose_document(following: Callable[[], YamlEvent], text: str) -> Node:
    anchors: dict[str, Node] = {}
    parts: list[list[Node]] = [[]]
    open_nodes: list[Node] = []
    while not isinstance(event := following(), DocumentEndEvent):
        if isinstance(event, CollectionEndEvent):
            node, held = open_nodes.pop(), parts.pop()
            is_mapping = isinstance(node, MappingNode)
            node.value = list(zip(held[::2], held[1::2], strict=True)) if is_mapping else held
            node.end_mark = event.end_mark
            continue
        if isinstance(event, AliasEvent):
            if event.anchor not in anchors:
                raise point_at(event.start_mark, f"unknown anchor '{event.anchor}' referenced")
            parts[-1].append(anchors[event.anchor])
            continue
        node = _make_node(event, text)
        parts[-1].append(node)
        # Of a duplicate anchor, the last one before an alias counts.
        if event.anchor is not None:
            anchors[event.anchor] = node
        if isinstance(event, CollectionStartEvent):
            open_nodes.append(node)
            parts.append([])
            if len(open_nodes) > MAX_DEPTH:
                raise point_at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
    return parts[0][0]


def _make_node(event: YamlEvent, text: str) -> Node:
    start, end = event.start_mark, event.end_mark
    if isinstance(event, ScalarEvent):
        tag: YamlEvent = event.tag
        if tag is None and (not event.implicit[0] or has_bare_tag(text, event)):
            tag = TEXT
        return ScalarNode(tag, event.value, start, end, event.style)
    kind = MappingNode if isinstance(event, MappingStartEvent) else SequenceNode
    return kind(event.tag, [], start, end, event.flow_style)


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for entry in node.value for part in entry]
    return list(node.value) if isinstance(node, SequenceNode) else []


def is_excessive(aliased: int, size: int) -> bool:
    """Whether too much of a document comes from aliases; large documents may have fewer."""
    few, many = 400_000, 4_000_000
    allowed = 0.99 - 0.89 * (min(max(size, few), many) - few) / (many - few)
    return aliased > 100 and size > 1000 and aliased / size > allowed


def check_aliases(root: Node) -> None:
    """Refuse a document that contains itself, or that aliases expand excessively.

    Sizes are computed on the shared nodes, without expanding them.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, is_measured = stack.pop()
        if is_measured:
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            open_nodes.discard(id(node))
        elif id(node) in open_nodes:
            raise point_at(node.start_mark, "an anchor's value contains itself")
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in _children(node))
    size = sizes[id(root)]
    aliased = size - len(sizes)
    if is_excessive(aliased, size):
        raise YamlFault("document contains excessive aliasing")


# Callers that read one field of a mapping mostly read all of them.
_ENTRIES: "WeakKeyDictionary[MappingNode, dict[str | int, tuple[Node, Node]]]" = WeakKeyDictionary()


def _index_entries(mapping: MappingNode) -> dict[str | int, tuple[Node, Node]]:
    """By their keys; of equal ones the first counts."""
    entries = _ENTRIES.get(mapping)
    if entries is None:
        scalars = (each for each in reversed(mapping.value) if isinstance(each[0], ScalarNode))
        entries = _ENTRIES[mapping] = {key.value: (key, value) for key, value in scalars}
    return entries


def find_node(root: Node, path: tuple[str | int, ...]) -> Node:
    """The node at a path, or its nearest parent: for a mapping's entry, its key."""
    found = root
    for step in path:
        if isinstance(root, MappingNode):
            entry = _index_entries(root).get(step)
            if entry is None:
                return found
            found, root = entry
        elif isinstance(root, SequenceNode) and isinstance(step, int) and step < len(root.value):
            found = root = root.value[step]
        else:
            return found
    return found
