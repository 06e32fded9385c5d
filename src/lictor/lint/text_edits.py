"""Edits of a YAML text that leave comments and layout alone: put in, take out, replace."""

from collections.abc import Iterable, Sequence

import msgspec
from yaml.nodes import MappingNode, Node

from lictor.load.yaml import Document


class TextEdit(msgspec.Struct, frozen=True, order=True):
    """Characters of a text, and what takes their place."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with all edits; of those that touch one another the first counts."""
    parts: list[str] = []
    at = 0
    for edit in sorted(set(edits)):
        if edit.start < at:
            continue
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join(parts) + text[at:]


class YamlText:
    """One document within a file's text: its nodes, and the edits that they allow."""

    def __init__(self, text: str, start: int, root: Node) -> None:
        self.text = text
        self._start = start
        self.root = root

    def begin(self, node: Node) -> int:
        return self._start + int(node.start_mark.index)

    def end(self, node: Node) -> int:
        """Where a node's own text ends; that of a block is followed by blanks and comments."""
        return self._start + int(node.end_mark.index)

    def replace(self, node: Node, text: str) -> TextEdit:
        return TextEdit(self.begin(node), self.end(node), text)

    def insert_first(self, mapping: MappingNode, entry: str) -> TextEdit:
        """Put `key: value` before the entries of a mapping."""
        at = self.begin(mapping)
        if mapping.flow_style:
            comma = ", " if mapping.value else ""
            return TextEdit(at + 1, at + 1, f"{entry}{comma}")
        indent = " " * mapping.start_mark.column
        return TextEdit(at, at, entry.replace("\n", f"\n{indent}") + f"\n{indent}")

    def take_out(self, mapping: MappingNode, key: Node, value: Node) -> TextEdit | None:
        """Take an entry out; a comment behind it stays. None where it is the only one."""
        if len(mapping.value) == 1:
            return None
        if mapping.flow_style:
            return self._take_out_of_flow(mapping, key)
        line = self.text.rfind("\n", 0, self.begin(key)) + 1
        if self.text[line : self.begin(key)].strip():
            return self._pull_next(mapping, key)
        stop = self._find_line_end(self.end(value))
        comment = self.text[self.end(value) : stop].strip()
        kept = f"{' ' * key.start_mark.column}{comment}\n" if comment.startswith("#") else ""
        return TextEdit(line, min(stop + 1, len(self.text)), kept)

    def _pull_next(self, mapping: MappingNode, key: Node) -> TextEdit | None:
        """The entry stands behind the dash of a list: the next one takes its place."""
        keys = [each for each, _ in mapping.value]
        following = keys[keys.index(key) + 1 :]
        if not following:
            return None
        return TextEdit(self.begin(key), self.begin(following[0]), "")

    def _take_out_of_flow(self, mapping: MappingNode, key: Node) -> TextEdit:
        number = [each for each, _ in mapping.value].index(key)
        if number + 1 < len(mapping.value):
            return TextEdit(self.begin(key), self.begin(mapping.value[number + 1][0]), "")
        before = mapping.value[number - 1][1]
        return TextEdit(self.end(before), self.end(mapping.value[number][1]), "")

    def _find_line_end(self, at: int) -> int:
        # The end of a block scalar is already on the next line.
        if at and self.text[at - 1] == "\n":
            return at - 1
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found


def open_document(text: str, document: Document) -> YamlText | None:
    """A document of a file's text; None where aliases share nodes: an edit would count twice."""
    root = document.compose()
    if root is None or _has_aliases(root):
        return None
    return YamlText(text, find_line(text, document.first_line), root)


def find_line(text: str, number: int) -> int:
    """Where a line begins, counted from one."""
    at = 0
    for _ in range(number - 1):
        at = text.index("\n", at) + 1
    return at


def _has_aliases(root: Node) -> bool:
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            return True
        seen.add(id(node))
        if isinstance(node.value, list):
            for part in node.value:
                waiting += part if isinstance(part, tuple) else (part,)
    return False


def find_entry(node: Node | None, key: str) -> tuple[Node, Node] | None:
    """The key and value of a mapping's entry."""
    if not isinstance(node, MappingNode):
        return None
    return next(((k, v) for k, v in node.value if k.value == key), None)


def find_value(node: Node | None, path: Sequence[str | int]) -> Node | None:
    """What a path leads to."""
    for step in path:
        if isinstance(step, int):
            items = node.value if node is not None and isinstance(node.value, list) else ()
            node = items[step] if step < len(items) else None
        else:
            entry = find_entry(node, step)
            node = None if entry is None else entry[1]
    return node
