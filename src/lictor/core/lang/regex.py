"""Regular expressions with Go's syntax and linear time, so that no policy can hang the process."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol, TypeAlias

from lictor.core.errors import SyntaxFaultError, TooLargeError

# Matches one byte, in re2 only: Go does not have it.
_SINGLE_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")

# A search takes time proportional to text times expression, so both are limited.
_MAX_LENGTH = 8 * 1024
_MAX_MEMORY = 3 << 19


class RegexMatch(Protocol):
    """The match of a search."""

    def group(self, group: int | str = 0) -> str | None: ...

    def start(self, group: int = 0) -> int: ...

    def end(self, group: int = 0) -> int: ...


class Regex(Protocol):
    """A compiled expression; `search` finds the leftmost match, as Go's does."""

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...

    def search(self, text: str, pos: int | None = None) -> RegexMatch | None: ...

    def finditer(self, text: str) -> Iterator[RegexMatch]: ...

    def fullmatch(self, text: str) -> RegexMatch | None: ...


@lru_cache(maxsize=1024)
def compile_regex(text: str) -> Regex:
    """Compile with google-re2; raises SyntaxFaultError for an invalid expression."""
    import re2  # slow import, and most policies have no expressions

    if len(text) > _MAX_LENGTH:
        raise SyntaxFaultError("error parsing regexp: expression too large", text=text)
    if _SINGLE_BYTE.search(text):
        raise SyntaxFaultError("error parsing regexp: invalid escape sequence: `\\C`", text=text)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled: Regex = re2.compile(text, options)
    except (re2.error, UnicodeError) as error:
        raise SyntaxFaultError(f"error parsing regexp: {_describe(error)}", text=text) from error
    return compiled


def _describe(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)


# Literal texts; a group's number or name is in a tuple.
Piece: TypeAlias = str | tuple[int | str]

_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")
_MAX_GROUP = 100_000_000
# A hundred thousand matches take half a second: more would block other requests.
_MAX_TEXT = 4 * 1024 * 1024
_MATCH = 32


def compile_template(template: str) -> tuple[Piece, ...]:
    """Split a template into texts and references; a `$` that starts no reference is literal."""
    return _remember_template(template) if len(template) <= _LONGEST_KNOWN else _cut(template)


def _cut(template: str) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    start = 0
    for found in _REFERENCE.finditer(template):
        pieces.append(template[start : found.start()])
        name = found[1] or found[2]
        pieces.append("$" if name is None else (_read_group(name),))
        start = found.end()
    pieces.append(template[start:])
    return tuple(piece for piece in pieces if piece)


# Long templates would only fill the memory.
_LONGEST_KNOWN = 1024
_remember_template = lru_cache(maxsize=1024)(_cut)


def replace_matches(expression: str, text: str, template: tuple[Piece, ...]) -> str:
    """Replace every match; an empty one directly after another match is ignored."""
    results: list[str] = []
    size, end = 0, 0
    fixed = _join_literals(template)
    for found in compile_regex(expression).finditer(text):
        start, stop = found.start(), found.end()
        results.append(text[end:start])
        if stop > end or start == 0:
            made = fixed if fixed is not None else "".join([_fill(p, found) for p in template])
            results.append(made)
            size += len(made)
        size += _MATCH
        if size > _MAX_TEXT:
            raise TooLargeError("the result would be too large")
        end = stop
    results.append(text[end:])
    return "".join(results)


def _join_literals(template: tuple[Piece, ...]) -> str | None:
    """The whole template if it has no references."""
    texts = [piece for piece in template if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(template) else None


def _read_group(name: str) -> int | str:
    if not (name.isascii() and name.isdecimal()) or (name[0] == "0" and len(name) > 1):
        return name
    return int(name) if len(name) < 9 else name


def _fill(piece: Piece, found: RegexMatch) -> str:
    if isinstance(piece, str):
        return piece
    try:
        return found.group(piece[0]) or ""
    except IndexError:
        return ""
