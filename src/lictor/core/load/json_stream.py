"""Files that start with a brace: kubectl reads them as JSON, and Kyverno as YAML.

They are read as YAML, and refused if kubectl would read something else.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.raw import Json

# Whitespace in Go.
BLANK: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


class ParsedDocument(Protocol):
    """A document, as the reader of YAML builds it."""

    @property
    def body(self) -> Json:
        """The value of the document."""


DocumentT = TypeVar("DocumentT", bound=ParsedDocument)
# A broken document is its error.
ReadDocuments: TypeAlias = Iterator[DocumentT | LoadError]

_JSON_BLANK = " \t\r\n"
# The end of a line, and a separator that is equal in both.
# re: linear - tried once behind each value
_QUIET = re.compile(r" *(?:#[\t -~]*)?\n(?:\n+---|---[ \t]*\n(?![%.\ufeff-]))")
# Bytes that kubectl needs after the first value to treat the rest as YAML, and a line feed that
# the file may lack.
_LEAST_REST = 5
_WHOLE_FLOAT = re.compile(r"(?<=[\[,:\s])-?[0-9]+(?:\.0+|(?:\.[0-9]+)?[eE][-+]?[0-9]+)(?=[\s,\]}])")
_INT64 = 2**63
# The largest float.
_LARGEST = int(sys.float_info.max)


def read_json_stream(
    text: str, source: str, read_parts: Callable[[str, str], ReadDocuments[DocumentT]]
) -> ReadDocuments[DocumentT]:
    """The documents of a text that starts with a brace, after whitespace.

    `read_parts` reads the documents of a text as YAML.
    """
    yield from _JsonStream(text, source, read_parts).read()


class _JsonStream(msgspec.Struct, Generic[DocumentT], frozen=True):
    text: str
    source: str
    read_parts: Callable[[str, str], ReadDocuments[DocumentT]]

    def read(self) -> ReadDocuments[DocumentT]:
        documents = self.read_parts(self.text, self.source)
        try:
            first = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            yield from self._read_several(documents)
        else:
            yield from self._compare([first], list(documents))

    def _read_several(self, documents: ReadDocuments[DocumentT]) -> ReadDocuments[DocumentT]:
        text = self.text
        begin = len(text) - len(text.lstrip(BLANK))
        value, end = _decode_value(text, begin)
        if end == begin:
            # Of whitespace before it, kubectl drops that of the first line.
            if text[:begin].strip("\n"):
                documents = self._compare_rest([], 0, list(documents))
            yield from documents
            return
        after = len(text) - len(text[end:].lstrip(_JSON_BLANK))
        if _decode_value(text, after)[1] > after:
            message = "more than one JSON value: expected a line of --- between them"
            yield self._fail(message, after)
        elif _QUIET.match(text, end):
            yield from self._compare([value], list(islice(documents, 1)))
            yield from documents
        else:
            yield from self._compare_rest([value], end, list(documents))

    def _compare_rest(
        self, values: list[Json], end: int, documents: Sequence[DocumentT | LoadError]
    ) -> ReadDocuments[DocumentT]:
        """The documents, if kubectl reads these values, and the same documents after them."""
        line_end = self.text.find("\n", end) + 1
        following = self.text[end:line_end].lstrip(BLANK) + self.text[line_end:]
        if len(following.encode()) < _LEAST_REST:
            yield self._fail("kubectl cannot read what follows", end)
            return
        for rest in self.read_parts(following, self.source):
            if isinstance(rest, LoadError):
                yield self._fail(f"kubectl cannot read what follows: {rest.message}", end)
                return
            values.append(rest.body)
        yield from self._compare(values, documents)

    def _compare(
        self, values: list[Json], documents: Sequence[DocumentT | LoadError]
    ) -> ReadDocuments[DocumentT]:
        """The documents, if kubectl reads the same."""
        read = [document.body for document in documents if not isinstance(document, LoadError)]
        if len(read) < len(documents) or _is_same(values, read):
            yield from documents
            return
        number = _WHOLE_FLOAT.search(self.text)
        yield self._fail(
            "kubectl reads this as JSON and Kyverno as YAML, which gives different values: write "
            "whole numbers without fraction and exponent, and --- between documents",
            number.start() if number else 0,
        )

    def _fail(self, message: str, index: int) -> LoadError:
        line = self.text.count("\n", 0, index) + 1
        column = index - self.text.rfind("\n", 0, index)
        return LoadError(message, where=f"{self.source}:{line}:{column}")


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _decode_value(text: str, begin: int) -> tuple[Json, int]:
    """The JSON value at the position and its end; None and the position if there is none."""
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None, begin
    return value, end


def _is_same(value: Json, other: Json) -> bool:
    """Whether kubectl's value is equal, types included; it stores large integers as floats."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _is_same(item, other[key]) for key, item in value.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_same, value, other))
    if type(value) is int and not -_INT64 <= value < _INT64:
        # Nothing can be equal beyond the largest float.
        value = float(value) if abs(value) <= _LARGEST else None
    return type(value) is type(other) and bool(value == other)
