"""Text into plain JSON: YAML and JSON as Kubernetes reads them, document by document.

kubectl and Kyverno split a file at lines that begin with `---`, and read the first YAML document of
each part. What they read differently is refused. A broken document does not stop the ones after
it. Where a value stands in the file is only worked out when someone asks, by composing that one
document again; the last one so composed is kept.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.lang.yaml.block_lines import read_block_lines
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth, settle_json
from lictor.core.raw import Json

if TYPE_CHECKING:
    from yaml.nodes import Node

    from lictor.core.lang.yaml.build import Duplicate

Path: TypeAlias = tuple[str | int, ...]

# What Go takes for blank.
BLANK: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
# How far kubectl looks for a brace.
_PEEKED: Final = 4096
# With its line feed: a pattern that begins with a text is looked for eight times as fast.
_SEPARATOR = re.compile(r"\n---[^\n]*")
# The beginning of a line that is no comment; or what may end a comment, or is no YAML.
# re: linear - blanks are taken from the beginning of a line only
_CONTENT = re.compile(
    r"^ *([^ #\n])"
    r"|[^\n\t -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]",
    re.MULTILINE,
)
# What stands before JSON; a tab there is no YAML.
_BEFORE_JSON = re.compile(r"(?:---[ \t]*\n)?[ \n]*(?=[\[{])")
# What JSON may hold and YAML reads otherwise: characters, escapes, and a colon in another line
# than its key.
_ODD_CHARACTER = re.compile("[\x80-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ODD_ESCAPE = re.compile(r"\\(?:/|u[dD][89a-fA-F])")
_LATE_COLON = re.compile(r"\n[ \t]*:")
# Numbers that JSON readers and Kubernetes' YAML reader hold differently: `2.0`, `1e3`, huge ones.
# Behind one stands what ends a value; most of what looks like it (`nginx:1.25`) stands in quotes.
_ODD_NUMBER = re.compile(
    r"[0-9](?:\.[0-9]|[eE][-+]?[0-9]|(?<=[0-9]{19}))"
    # One that goes on for long is odd, whatever ends it: each digit may begin a number.
    r"(?:[-+.eE0-9]{40}|[-+.eE0-9]{0,39}(?=[\s,\]}]))"
)
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"", "utf-8"))


class _Chunk(msgspec.Struct, frozen=True):
    """A stretch of a file between separators, and the line it begins at, counted from one."""

    text: str
    source: str
    line: int

    def locate(self, fault: YamlFault) -> LoadError:
        where = f"{self.source}:{self.line + fault.line}:{fault.column + 1}"
        return LoadError(fault.message, where=where)


class Document:
    """One document of a file: its JSON, and where it stands."""

    __slots__ = ("_chunk", "body", "duplicates", "line")

    def __init__(
        self,
        body: Json,
        chunk: _Chunk,
        line: int,
        duplicates: "Sequence[Duplicate]" = (),
    ) -> None:
        self.body = body
        # Of the document's first line, counted from one.
        self.line = line
        # Keys that stand twice in one mapping; the last one won.
        self.duplicates = tuple((d.key, chunk.line + d.line, d.column + 1) for d in duplicates)
        self._chunk = chunk

    @property
    def source(self) -> str:
        return self._chunk.source

    def position(self, path: Path = ()) -> tuple[int, int]:
        """The line and column, counted from one, of what a path leads to; as near as it goes."""
        root = self.compose()
        if root is None:
            return self.line, 1
        from lictor.core.lang.yaml.nodes import find_node

        mark = find_node(root, path).start_mark
        return self._chunk.line + mark.line, mark.column + 1

    @property
    def first_line(self) -> int:
        """Of the stretch of the file that marks of its nodes count from, counted from one."""
        return self._chunk.line

    def compose(self) -> "Node | None":
        """Its nodes, with their places in the text; None where it is JSON that YAML is not."""
        return _compose_again(self._chunk)

    def where(self, path: Path = ()) -> str:
        """The same for people: `file:line:column`."""
        line, column = self.position(path)
        return f"{self.source}:{line}:{column}"


# One document's findings are located one after the other.
@lru_cache(maxsize=1)
def _compose_again(chunk: _Chunk) -> "Node | None":
    from lictor.core.lang.yaml.nodes import compose

    try:
        return next(compose(chunk.text), None)
    except YamlFault:
        return None


def decode_text(data: str | bytes, source: str) -> str:
    """Bytes of a file as text, without a byte order mark and with plain line ends."""
    if isinstance(data, bytes):
        data = _decode(data, source)
    data = data.removeprefix("\ufeff")
    data = data.replace("\r\n", "\n") if "\r" in data else data
    # A last line without an end gets one, as kubectl's reader gives it: a block scalar keeps it.
    return data if not data or data.endswith("\n") else f"{data}\n"


def _decode(data: bytes, source: str) -> str:
    encoding = next(name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark))
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LoadError(f"not {encoding} text", where=f"{source}:{line}:1") from error


def _split(text: str, source: str) -> Iterator[_Chunk | LoadError]:
    """The parts between `---` lines, and separators that are none."""
    start, line = 0, 1
    is_first = text.startswith("---")
    separators = ((found.start() + 1, found.end() + 1) for found in _SEPARATOR.finditer(text))
    for begin, end in chain(((0, text.find("\n") + 1),) if is_first else (), separators):
        trailing = text[begin + 3 : end].strip(BLANK)
        is_valid = not trailing or trailing[0] == "#"
        if begin > start:
            yield _Chunk(text[start:begin], source, line)
        line += text.count("\n", start, begin)
        # Like kubectl, a separator with nothing before it is part of what follows.
        start = begin if is_valid and begin == start else end
        if not is_valid:
            message = f"invalid YAML document separator: expected a comment, not {trailing[:40]!r}"
            yield LoadError(message, where=f"{source}:{line}:4")
        line += start > begin
    if start < len(text):
        yield _Chunk(text[start:], source, line)


def _read_chunk(chunk: _Chunk) -> Document | None:
    """The document of a part; None where it is empty."""
    content = _CONTENT.search(chunk.text)
    if content is None:
        return None
    document = _read_json(chunk) or _read_yaml(chunk)
    is_plain = content[1] is not None and content[1] not in BLANK
    if document is not None and not is_plain and _holds_only_comments(chunk.text):
        raise YamlFault(
            "behind a comment that ends with another line break than a line feed: kubectl applies "
            "this, and Kyverno does not see it",
            document.line - chunk.line,
        )
    return document


def _holds_only_comments(text: str) -> bool:
    """Whether a part is empty for Kyverno, which knows one line break."""
    lines = (line.strip(BLANK) for line in text.split("\n"))
    return all(not line or line[0] == "#" for line in lines)


def _read_json(chunk: _Chunk) -> Document | None:
    """The fast way for JSON; None where the text turns out to be YAML that begins like it."""
    text = chunk.text
    begin = _BEFORE_JSON.match(text)
    if begin is None or _is_unlike_yaml(text):
        return None
    body_text = text[begin.end() :]
    try:
        body = orjson.loads(body_text)
    except orjson.JSONDecodeError:
        return None
    return Document(_settle(body, body_text), chunk, chunk.line + text.count("\n", 0, begin.end()))


def _is_unlike_yaml(text: str) -> bool:
    """Whether YAML may read JSON otherwise."""
    return (
        "\r" in text
        or "\x7f" in text
        or (not text.isascii() and _ODD_CHARACTER.search(text) is not None)
        or ("\\" in text and _ODD_ESCAPE.search(text) is not None)
        or _LATE_COLON.search(text) is not None
        # Behind the value, a tab begins no token.
        or "\t" in text[len(text.rstrip()) :]
    )


def _read_yaml(chunk: _Chunk) -> Document | None:
    block = read_block_lines(chunk.text)
    if block is not None:
        body, line = block
        return Document(body, chunk, chunk.line + line)
    # Loaded on first use: it takes a tenth of the time of a small run.
    from lictor.core.lang.yaml.build import build_yaml

    built = build_yaml(chunk.text)
    if built is None or built.body is None:
        return None
    return Document(built.body, chunk, chunk.line + built.line, built.duplicates)


def _settle(body: Json, text: str) -> Json:
    """JSON that was read from a text, with numbers as Kubernetes' reader holds them."""
    if text.count("{") + text.count("[") > MAX_DEPTH:
        check_depth(body)
    return settle_json(body) if _ODD_NUMBER.search(text) else body


def read_object(body: Json, source: str) -> Document | LoadError:
    """An object that an API server gave, as it would be read from its text; or what is wrong."""
    try:
        chunk = _Chunk(orjson.dumps(body).decode(), source, 1)
    except TypeError:
        return LoadError("nested too deeply", where=f"{source}:1:1")
    try:
        return Document(_settle(body, chunk.text), chunk, 1)
    except YamlFault as fault:
        return chunk.locate(fault)


def read_documents(data: str | bytes, source: str) -> Iterator[Document | LoadError]:
    """The documents of a file in order; one that is broken comes as the error that says why."""
    try:
        text = decode_text(data, source)
    except LoadError as error:
        yield error
        return
    if text[:_PEEKED].lstrip(BLANK).startswith("{"):
        # It uses this module.
        from lictor.core.load.json_stream import read_json_stream

        yield from read_json_stream(text, source)
    else:
        yield from read_parts(text, source)


def read_parts(text: str, source: str) -> Iterator[Document | LoadError]:
    """The documents of a text, which is YAML whatever it begins with."""
    for chunk in _split(text, source):
        if isinstance(chunk, LoadError):
            yield chunk
            continue
        try:
            document = _read_chunk(chunk)
        except YamlFault as fault:
            yield chunk.locate(fault)
        else:
            if document is not None:
                yield document


def iter_documents(data: str | bytes, source: str) -> Iterator[Document]:
    """The documents of a file in order. Raises LoadError at one that is broken."""
    for document in read_documents(data, source):
        if isinstance(document, LoadError):
            raise document
        yield document
