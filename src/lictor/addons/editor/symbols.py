"""The outline of a file: its documents, their rules, variables, validations and results."""

import sys
from collections.abc import Iterator

from lsprotocol.types import DocumentSymbol, Range, SymbolKind
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.addons.editor.positions import TextPositions
from lictor.addons.editor.workspace_files import read_objects
from lictor.core.load.yaml import Document

# Lists whose entries people look for, and what an entry is called by.
_LISTS = {
    "rules": ("name", SymbolKind.Method),
    "context": ("name", SymbolKind.Variable),
    "variables": ("name", SymbolKind.Variable),
    "matchConditions": ("name", SymbolKind.Boolean),
    "validations": ("message", SymbolKind.Boolean),
    "mutations": ("patchType", SymbolKind.Event),
    "attestors": ("name", SymbolKind.Key),
    "exceptions": ("policyName", SymbolKind.Object),
    "results": ("policy", SymbolKind.Boolean),
}
_MOST_LETTERS = 60
# Positions are never behind the end of a line, nor of the text: YAML knows more line ends.
_LINE_END = sys.maxsize


def list_symbols(content: bytes, path: str, positions: TextPositions) -> list[DocumentSymbol]:
    """What a file holds, as far as it can be read."""
    found = []
    for document in read_objects(content, path):
        root = document.compose()
        if isinstance(root, MappingNode):
            found.append(_show_document(document, root, positions))
    return found


def _show_document(
    document: Document, root: MappingNode, positions: TextPositions
) -> DocumentSymbol:
    metadata = document.body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    first = document.first_line - 1
    return DocumentSymbol(
        str(name or document.body.get("kind") or "document"),
        SymbolKind.Class,
        _range(root, first, positions),
        _line(root, first, positions),
        detail=str(document.body.get("kind") or ""),
        children=list(_list_entries(root, first, positions)),
    )


def _list_entries(node: Node, first: int, positions: TextPositions) -> Iterator[DocumentSymbol]:
    """Entries of the known lists, at any path of an object."""
    for key, value in node.value if isinstance(node, MappingNode) else ():
        known = _LISTS.get(key.value) if isinstance(key, ScalarNode) else None
        if known is None or not isinstance(value, SequenceNode):
            yield from _list_entries(value, first, positions)
            continue
        field, kind = known
        for number, entry in enumerate(value.value):
            if isinstance(entry, MappingNode):
                name = _read(entry, field)[:_MOST_LETTERS] or f"{key.value} {number}"
                inner = list(_list_entries(entry, first, positions))
                whole = _range(entry, first, positions)
                yield DocumentSymbol(
                    name, kind, whole, _line(entry, first, positions), children=inner
                )


def _read(entry: MappingNode, field: str) -> str:
    values = (value for key, value in entry.value if key.value == field)
    return next((str(each.value) for each in values if isinstance(each, ScalarNode)), "").strip()


def _range(node: Node, first: int, positions: TextPositions) -> Range:
    start, end = node.start_mark, node.end_mark
    # A block ends where the next line begins that is not in it.
    last = max(end.line - 1, start.line) if end.column == 0 else end.line
    column = _LINE_END if end.column == 0 else end.column
    return Range(positions.at(first + start.line, start.column), positions.at(first + last, column))


def _line(node: Node, first: int, positions: TextPositions) -> Range:
    line = first + node.start_mark.line
    start = node.start_mark.column
    return Range(positions.at(line, start), positions.at(line, _LINE_END))
