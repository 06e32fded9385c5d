"""Text into YAML nodes: the part that libyaml does, made safe against what would crash it."""

from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from yaml._yaml import CParser
from yaml._yaml import Mark as ParserMark
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.lang.yaml.plain_json import MAX_DEPTH, YamlFault

# libyaml's composer recurses on the C stack: a document that could nest deeper than this is
# measured first, without recursion.
_UNSUSPICIOUS: Final = 1000

# The tag of a scalar in quotes. A plain scalar has none (None): what it means is settled later.
QUOTED: Final = "quoted"


class _Composer(CParser):
    """libyaml without PyYAML's resolver, which costs more than all the rest."""

    def resolve(self, kind: type[Node], value: str | None, implicit: object) -> str | None:  # noqa: ARG002
        if kind is ScalarNode and isinstance(implicit, tuple) and not implicit[0]:
            return QUOTED
        return None

    def descend_resolver(self, current_node: Node | None, current_index: object) -> None:
        """No tag depends on where its node stands."""

    def ascend_resolver(self) -> None:
        """See `descend_resolver`."""


def point_at(mark: Mark | ParserMark | None, message: str) -> YamlFault:
    """A fault at a mark of libyaml's."""
    return YamlFault(message, mark.line, mark.column) if mark else YamlFault(message)


def _locate(error: YAMLError) -> YamlFault:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "not YAML"
        return point_at(mark, message)
    return YamlFault(getattr(error, "reason", "") or "not YAML")


def measure_nesting(text: str) -> int:
    """How deep collections nest in a text, without recursion."""
    deepest = depth = 0
    parser = _Composer(text)
    while parser.check_event():
        event = parser.get_event()
        if isinstance(event, CollectionStartEvent):
            depth += 1
            deepest = max(deepest, depth)
            if depth > MAX_DEPTH:
                raise point_at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
    return deepest


def _is_suspicious(text: str) -> bool:
    """Could this nest deep? Each level takes an opening bracket, or a character of one line."""
    if len(text) < _UNSUSPICIOUS:
        return False
    brackets = text.count("[") + text.count("{") - text.count("[]") - text.count("{}")
    return brackets > _UNSUSPICIOUS or max(map(len, text.split("\n"))) > _UNSUSPICIOUS


def compose(text: str) -> Iterator[Node]:
    """The documents of a text as nodes. Raises YamlFault at the first that is broken."""
    try:
        if _is_suspicious(text):
            measure_nesting(text)
        composer = _Composer(text)
        while composer.check_node() and (node := composer.get_node()) is not None:
            yield node
    except YAMLError as error:
        raise _locate(error) from error
    except UnicodeEncodeError as error:
        raise YamlFault("not valid Unicode") from error


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for entry in node.value for part in entry]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _allowed_share(size: int) -> float:
    """How much of a document may come from aliases: nearly all of a small one, little of a big."""
    few, many = 400_000, 4_000_000
    return 0.99 - 0.89 * (min(max(size, few), many) - few) / (many - few)


def check_aliases(root: Node) -> None:
    """Refuse a document that contains itself, or that aliases blow up out of all proportion.

    Sizes are added up over the shared nodes, so that a bomb is seen without setting it off.
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
    if aliased > 100 and size > 1000 and aliased / size > _allowed_share(size):
        raise YamlFault("document contains excessive aliasing")


# Whoever asks for one field of a mapping mostly asks for all of them.
_ENTRIES: "WeakKeyDictionary[MappingNode, dict[str | int, tuple[Node, Node]]]" = WeakKeyDictionary()


def _index_entries(mapping: MappingNode) -> dict[str | int, tuple[Node, Node]]:
    """By their keys; of equal ones the first counts."""
    entries = _ENTRIES.get(mapping)
    if entries is None:
        scalars = (each for each in reversed(mapping.value) if isinstance(each[0], ScalarNode))
        entries = _ENTRIES[mapping] = {key.value: (key, value) for key, value in scalars}
    return entries


def find_node(root: Node, path: tuple[str | int, ...]) -> Node:
    """The node that a path leads to: of a mapping's entry, its key. As near as the path goes."""
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
