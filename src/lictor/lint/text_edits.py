"""Edits of a YAML text that keep comments and layout: insert, remove, replace, move."""

import itertools
import re
from collections.abc import Iterable, Sequence

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.core.errors import LoadError
from lictor.core.load.yaml import Document, read_documents
from lictor.core.raw import Json


class TextEdit(msgspec.Struct, frozen=True, order=True):
    """A range of a text, and its replacement."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with all edits; of overlapping ones the first counts."""
    parts: list[str] = []
    at = 0
    for edit in sorted(set(edits)):
        if edit.start < at:
            continue
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join(parts) + text[at:]


class YamlText:
    """One document in a file's text: its nodes, and the possible edits."""

    def __init__(self, text: str, start: int, root: Node) -> None:
        self.text = text
        self._start = start
        self.root = root

    def begin(self, node: Node) -> int:
        return self._start + int(node.start_mark.index)

    def end(self, node: Node) -> int:
        """Where a node's text ends; a block is followed by blank lines and comments."""
        return self._start + int(node.end_mark.index)

    def replace(self, node: Node, text: str) -> TextEdit:
        return TextEdit(self.begin(node), self.end(node), text)

    def insert_first(self, mapping: MappingNode, entry: str) -> TextEdit:
        """Insert `key: value` before the entries of a mapping."""
        at = self.begin(mapping)
        if mapping.flow_style:
            comma = ", " if mapping.value else ""
            return TextEdit(at + 1, at + 1, f"{entry}{comma}")
        indent = " " * mapping.start_mark.column
        return TextEdit(at, at, entry.replace("\n", f"\n{indent}") + f"\n{indent}")

    def take_out(self, mapping: MappingNode, key: Node, value: Node) -> TextEdit | None:
        """Remove an entry; a comment after it stays. None if it is the only one."""
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
        """The entry follows the dash of a list: the next one replaces it."""
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
    """A document of a file's text; None if aliases share nodes: an edit would apply twice."""
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
    """The node at a path."""
    for step in path:
        if isinstance(step, int):
            items = node.value if node is not None and isinstance(node.value, list) else ()
            node = items[step] if step < len(items) else None
        else:
            entry = find_entry(node, step)
            node = None if entry is None else entry[1]
    return node


# --- moving the entries of a mapping, each with the comments above it and behind it

_COMMENT = re.compile(r"(?<! )( *)#")


def move_entries(document: YamlText, mapping: MappingNode, order: Sequence[str]) -> TextEdit | None:
    """The mapping with its keys in this order; None if the text cannot be moved safely."""
    keys = [str(key.value) for key, _ in mapping.value]
    if sorted(keys) != sorted(order) or len(set(keys)) != len(keys):
        return None
    numbers = [keys.index(key) for key in order]
    if mapping.flow_style:
        return _move_in_flow(document, mapping, numbers)
    return _move_in_block(document, mapping, numbers)


def is_equivalent(text: str, edit: TextEdit) -> bool:
    """Whether the documents are equal after an edit, and no comment was lost."""
    after = apply_edits(text, [edit])
    return _read(after) == _read(text) and _list_comments(after) == _list_comments(text)


def _read(text: str) -> list[Json]:
    found = read_documents(text.encode(), "")
    return [None if isinstance(each, LoadError) else each.body for each in found]


def _list_comments(text: str) -> list[str]:
    return sorted(line[line.index("#") :].rstrip() for line in text.split("\n") if "#" in line)


def _move_in_flow(
    document: YamlText, mapping: MappingNode, numbers: Sequence[int]
) -> TextEdit | None:
    spans = [(document.begin(key), document.end(value)) for key, value in mapping.value]
    between = [document.text[a:b] for (_, a), (b, _) in itertools.pairwise(spans)]
    if any("#" in text for text in between):
        return None
    texts = [document.text[slice(*spans[number])] for number in numbers]
    joined = texts[0] + "".join(b + text for b, text in zip(between, texts[1:], strict=True))
    return TextEdit(spans[0][0], spans[-1][1], joined)


def _move_in_block(
    document: YamlText, mapping: MappingNode, numbers: Sequence[int]
) -> TextEdit | None:
    parts = _cut(document, mapping)
    if parts is None:
        return None
    starts, end = parts
    text = document.text
    pieces = [text[a:b] for a, b in zip(starts, [*starts[1:], end], strict=True)]
    pieces = [piece if piece.endswith("\n") else f"{piece}\n" for piece in pieces]
    indent = " " * mapping.start_mark.column
    is_indented = starts[0] != document.begin(mapping)
    if not is_indented:
        # It follows a dash, or is at the very start.
        pieces[0] = f"{indent}{pieces[0]}"
    moved = [pieces[number] for number in numbers]
    moved[0] = moved[0].lstrip("\n")
    if not is_indented:
        if indent and moved[0].lstrip().startswith("#"):
            # A comment cannot follow a dash.
            return None
        moved[0] = moved[0].removeprefix(indent)
    joined = "".join(moved)
    return TextEdit(starts[0], end, joined if text[:end].endswith("\n") else joined[:-1])


def _cut(document: YamlText, mapping: MappingNode) -> tuple[list[int], int] | None:
    """Where each entry starts, with the comments above it, and where the last one ends."""
    column = mapping.start_mark.column
    starts: list[int] = []
    end = -1
    for key, value in mapping.value:
        begin = document.begin(key)
        line = document.text.rfind("\n", 0, begin) + 1
        if end < 0:
            starts.append(_find_first(document, mapping, line))
        elif document.text[line:begin].strip():
            return None
        else:
            starts.append(end)
        if _keeps_blank_lines(document, value):
            return None
        end = _find_end(document, value if _last(value) is not None else key, column)
    return starts, end


def _find_first(document: YamlText, mapping: MappingNode, line: int) -> int:
    """The start of the first entry; a comment above a whole document is about all of it."""
    begin = document.begin(mapping)
    if document.text[line:begin].strip() or mapping is document.root:
        return begin
    above = line
    while True:
        start = document.text.rfind("\n", 0, max(above - 1, 0)) + 1
        if above == 0 or not document.text[start:above].lstrip().startswith("#"):
            return above
        above = start


def _last(node: Node) -> ScalarNode | None:
    """The last text of a value, which is where the value really ends."""
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style:
        if not node.value:
            return None
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node if isinstance(node, ScalarNode) else ScalarNode("", "", None, node.end_mark)


def _find_end(document: YamlText, node: Node, column: int) -> int:
    """The end of the last line of a value, with comments indented further than its key."""
    last = _last(node) or node
    at = len(document.text[: document.end(last)].rstrip(" \n"))
    end = _next_line(document.text, at)
    while (found := _COMMENT.match(document.text, end)) and len(found[1]) > column:
        end = _next_line(document.text, end)
    return end


def _next_line(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _keeps_blank_lines(document: YamlText, node: Node) -> bool:
    """Whether blank lines at the end belong to the value: `|+`."""
    last = _last(node)
    if last is None or last.start_mark is None or last.style not in ("|", ">"):
        return False
    head = document.text[document.begin(last) :].partition("\n")[0]
    return "+" in head.partition("#")[0]
