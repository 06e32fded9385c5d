"""Moves the entries of a YAML mapping, each with the comments above it and behind it."""

import itertools
import re
from collections.abc import Sequence

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.errors import LoadError
from lictor.lint.text_edits import TextEdit, YamlText, apply_edits
from lictor.load.yaml import read_documents
from lictor.raw import Json

_COMMENT = re.compile(r"( *)#")


def move_entries(document: YamlText, mapping: MappingNode, order: Sequence[str]) -> TextEdit | None:
    """The mapping with its keys in this order; None where the text cannot be moved safely."""
    keys = [str(key.value) for key, _ in mapping.value]
    if sorted(keys) != sorted(order) or len(set(keys)) != len(keys):
        return None
    numbers = [keys.index(key) for key in order]
    if mapping.flow_style:
        return _move_in_flow(document, mapping, numbers)
    return _move_in_block(document, mapping, numbers)


def says_the_same(text: str, edit: TextEdit) -> bool:
    """Whether the documents are the same after an edit, and no comment was lost."""
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
        # It stands behind a dash, or at the very beginning.
        pieces[0] = f"{indent}{pieces[0]}"
    moved = [pieces[number] for number in numbers]
    moved[0] = moved[0].lstrip("\n")
    if not is_indented:
        if indent and moved[0].lstrip().startswith("#"):
            # A comment has no place behind a dash.
            return None
        moved[0] = moved[0].removeprefix(indent)
    joined = "".join(moved)
    return TextEdit(starts[0], end, joined if text[:end].endswith("\n") else joined[:-1])


def _cut(document: YamlText, mapping: MappingNode) -> tuple[list[int], int] | None:
    """Where each entry begins, with the comments above it, and where the last one ends."""
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
    """The beginning of the first entry; what stands above a whole document is about all of it."""
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
    """The end of the last line of a value, with comments that are indented further than its key."""
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
