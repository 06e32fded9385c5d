"""YAML text with CEL placeholders, `(( expression ))`, taken apart; nothing is evaluated here."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.lang.yaml.build import build_yaml
from lictor.core.lang.yaml.nodes import compose, find_node
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.raw import Json

_QUOTES = "'\""
Path: TypeAlias = tuple[str | int, ...]


class Placeholder(msgspec.Struct, frozen=True):
    """An expression between double parentheses."""

    expression: str


# The text before, between and behind the placeholders of a scalar, in order.
Parts: TypeAlias = tuple[str | Placeholder, ...]


class TemplateDocument(msgspec.Struct, frozen=True):
    """A document as plain JSON, and the scalars in it that hold placeholders."""

    body: Json
    scalars: dict[Path, Parts]
    # The line of each of these scalars in the whole text.
    lines: dict[Path, int]


def parse_template(text: str, *, interpolate: bool) -> tuple[TemplateDocument, ...]:
    """The documents of a template; raises CompileError with the line of the fault."""
    documents = tuple(_parse_documents(text, interpolate=interpolate))
    if not documents:
        raise CompileError("template must contain at least one YAML document")
    return documents


def _parse_documents(text: str, *, interpolate: bool) -> Iterator[TemplateDocument]:
    for first_line, chunk in _split(text):
        try:
            built = build_yaml(chunk)
        except YamlFault as fault:
            raise CompileError(f"line {first_line + fault.line}: {fault.message}") from fault
        if built is None or built.body is None:
            continue
        document = TemplateDocument(built.body, {}, {})
        if interpolate:
            _find_placeholders(document, (), built.body, _Lines(chunk, first_line))
        if not isinstance(built.body, dict) and () not in document.scalars:
            line = first_line + built.line
            raise CompileError(f"line {line}: document must be a mapping describing a resource")
        yield document


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The number of the first line of each document, and its text."""
    lines = text.splitlines(keepends=True)
    starts = [0, *(number for number, line in enumerate(lines) if _is_separator(line))]
    for start, end in zip(starts, (*starts[1:], len(lines)), strict=True):
        chunk = "".join(lines[start:end])
        if chunk.strip():
            yield start + 1, chunk


def _is_separator(line: str) -> bool:
    return line.startswith("---") and line[3:].strip()[:1] in ("", "#")


class _Lines:
    """The lines of scalars; a document is composed again only to locate one."""

    def __init__(self, chunk: str, first_line: int) -> None:
        self._chunk = chunk
        self._first_line = first_line

    def find(self, path: Path) -> int:
        root = next(compose(self._chunk), None)
        mark = find_node(root, path).start_mark if root is not None else None
        return self._first_line + (mark.line if mark is not None else 0)


def _find_placeholders(document: TemplateDocument, path: Path, value: Json, lines: _Lines) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if "((" in key.replace("\\((", ""):
                line = lines.find((*path, key))
                raise CompileError(f"line {line}: placeholders are not allowed in keys")
            _find_placeholders(document, (*path, key), item, lines)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_placeholders(document, (*path, index), item, lines)
    elif isinstance(value, str) and "((" in value:
        line = lines.find(path)
        try:
            document.scalars[path] = split_scalar(value)
        except CompileError as error:
            raise CompileError(f"line {line}: {error.message}") from error
        document.lines[path] = line


def split_scalar(text: str) -> Parts:
    """The texts and placeholders of a scalar; `\\((` stands for two parentheses."""
    parts: list[str | Placeholder] = []
    plain, position = "", 0
    while (start := text.find("((", position)) >= 0:
        if text[:start].endswith("\\"):
            plain += f"{text[position : start - 1]}(("
            position = start + 2
            continue
        end = _find_end(text, start)
        expression = text[start + 2 : end].strip()
        if not expression:
            raise CompileError(f"empty placeholder at offset {start}")
        plain += text[position:start]
        parts += [plain, Placeholder(expression)] if plain else [Placeholder(expression)]
        plain, position = "", end + 2
    plain += text[position:]
    return (*parts, plain) if plain or not parts else tuple(parts)


def _find_end(text: str, start: int) -> int:
    """Where the `))` of the placeholder at `start` begins."""
    depth, position = 0, start + 2
    while position < len(text):
        character = text[position]
        if character in _QUOTES:
            position = _skip_literal(text, position, start)
        elif character == "(":
            depth += 1
        elif character == ")":
            if not depth and text[position : position + 2] == "))":
                return position
            depth -= 1
            if depth < 0:
                raise CompileError(
                    f"unbalanced parenthesis in placeholder starting at offset {start}"
                )
        position += 1
    raise CompileError(f"unterminated placeholder starting at offset {start}: missing closing '))'")


def _skip_literal(text: str, position: int, start: int) -> int:
    """The position of the quote that ends a string literal."""
    quote, position = text[position], position + 1
    while position < len(text):
        if text[position] == quote:
            return position
        position += 2 if text[position] == "\\" else 1
    raise CompileError(f"unterminated string literal in placeholder starting at offset {start}")
