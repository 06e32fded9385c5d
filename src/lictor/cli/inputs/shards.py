"""A shard: whole documents of one input, small enough for a worker to hold.

Whoever has the input and the shard can judge its documents; nothing else of the input is needed.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from lictor.cli.inputs.inputs import Input, KeptInput
from lictor.cli.inputs.resources import DocumentSpan, DocumentText, find_documents
from lictor.core.errors import LoadError


class ShardForm(StrEnum):
    """What a shard holds."""

    # Documents between `---`.
    DOCUMENTS = "documents"
    # One document that is not to be taken apart.
    WHOLE = "whole"
    # JSON values, with commas or without: JSON lines, or items of a list.
    JSON_VALUES = "json values"
    YAML_ITEMS = "yaml items"


class Shard(msgspec.Struct, frozen=True):
    """A stretch of whole documents in one input."""

    # The number of the input.
    source: int
    span: DocumentSpan
    # The lines of the input before it, and the characters of its first line before it.
    line: int
    column: int
    form: ShardForm
    # How many documents there are.
    count: int
    # Why what stands here cannot be read.
    fault: str = ""
    # Which of the words that were looked for it holds.
    words: frozenset[bytes] = frozenset()

    @property
    def size(self) -> int:
        return self.span.end - self.span.start


def read_shard(given: Input, shard: Shard) -> Iterator[DocumentText]:
    """The documents of a shard, in order. Raises LoadError where they cannot be read."""
    if shard.fault:
        raise LoadError(shard.fault, where=f"{given.path}:{shard.line + 1}:{shard.column + 1}")
    data = given.read(shard.span.start, shard.span.end)
    line, counted = shard.line, 0
    for start, content in _split(data, shard.form, given.path):
        line += data.count(b"\n", counted, start)
        counted = start
        begin = data.rfind(b"\n", 0, start) + 1
        column = start - begin + (0 if begin else shard.column)
        yield DocumentText(given.path, content, line, column)


def _split(data: bytes, form: ShardForm, path: str) -> Iterator[tuple[int, bytes]]:
    """Where each document begins, and its text."""
    match form:
        case ShardForm.DOCUMENTS:
            for span in find_documents(data):
                yield span.start, data[span.start : span.end]
        case ShardForm.WHOLE:
            yield 0, data
        case ShardForm.YAML_ITEMS:
            # Loaded when needed, as below: most inputs are small, and start-up counts.
            from lictor.cli.inputs.yaml_items import split_items

            yield from split_items(data)
        case ShardForm.JSON_VALUES:
            for found in _split_values(data, path):
                yield found.start, data[found.start : found.end]


def _split_values(data: bytes, path: str) -> Iterator[DocumentSpan]:
    from lictor.cli.inputs.json_values import JsonCursor, JsonFault

    cursor = JsonCursor(KeptInput(path, data), 0, len(data))
    while following := cursor.peek():
        if following == ",":
            cursor.take(",")
            cursor.peek()
        start = cursor.offset
        try:
            cursor.read_value(len(data))
        except JsonFault as fault:
            raise LoadError(fault.message, where=path) from fault
        yield DocumentSpan(start, cursor.offset)
