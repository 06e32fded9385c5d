"""Files that begin with a brace: kubectl reads them as JSON, and Kyverno as YAML.

They are read as YAML, and refused where kubectl would see something else.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.load.yaml import BLANK, Document, read_parts
from lictor.core.raw import Json

_Documents: TypeAlias = Iterator[Document | LoadError]

_JSON_BLANK = " \t\r\n"
# The end of a line, and a separator that means the same to both.
# re: linear - tried once behind each value
_QUIET = re.compile(r" *(?:#[\t -~]*)?\n(?:\n+---|---[ \t]*\n(?![%.\ufeff-]))")
# Bytes that kubectl needs behind the first value to take the rest for YAML, and a line feed that
# the file may lack.
_LEAST_REST = 5
_WHOLE_FLOAT = re.compile(r"(?<=[\[,:\s])-?[0-9]+(?:\.0+|(?:\.[0-9]+)?[eE][-+]?[0-9]+)(?=[\s,\]}])")
_INT64 = 2**63
# The largest float.
_LARGEST = int(sys.float_info.max)


def read_json_stream(text: str, source: str) -> _Documents:
    """The documents of a text that begins with a brace, behind blanks."""
    yield from _JsonStream(text, source).read()


class _JsonStream(msgspec.Struct, frozen=True):
    text: str
    source: str

    def read(self) -> _Documents:
        documents = read_parts(self.text, self.source)
        try:
            first = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            yield from self._read_several(documents)
        else:
            yield from self._compare([first], list(documents))

    def _read_several(self, documents: _Documents) -> _Documents:
        text = self.text
        begin = len(text) - len(text.lstrip(BLANK))
        value, end = _decode_value(text, begin)
        if end == begin:
            # Of blanks before it, kubectl drops those of the first line.
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
        self, values: list[Json], end: int, documents: Sequence[Document | LoadError]
    ) -> _Documents:
        """The documents, if kubectl reads these values, and the same documents behind them."""
        line_end = self.text.find("\n", end) + 1
        following = self.text[end:line_end].lstrip(BLANK) + self.text[line_end:]
        if len(following.encode()) < _LEAST_REST:
            yield self._fail("kubectl cannot read what follows", end)
            return
        for rest in read_parts(following, self.source):
            if isinstance(rest, LoadError):
                yield self._fail(f"kubectl cannot read what follows: {rest.message}", end)
                return
            values.append(rest.body)
        yield from self._compare(values, documents)

    def _compare(self, values: list[Json], documents: Sequence[Document | LoadError]) -> _Documents:
        """The documents, if they are what kubectl reads."""
        read = [document.body for document in documents if isinstance(document, Document)]
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
    """The JSON value there, and where it ends; None, and where it begins, where there is none."""
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None, begin
    return value, end


def _is_same(value: Json, other: Json) -> bool:
    """Whether kubectl's value is the same, types included; it holds large integers as floats."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _is_same(item, other[key]) for key, item in value.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_same, value, other))
    if type(value) is int and not -_INT64 <= value < _INT64:
        # Beyond the largest float there is nothing that it could be the same as.
        value = float(value) if abs(value) <= _LARGEST else None
    return type(value) is type(other) and bool(value == other)
