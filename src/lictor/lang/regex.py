"""Regular expressions with Go's syntax and linear time, so that no policy can hang the process."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

from lictor.errors import SyntaxFaultError

# Matches one byte, in re2 alone: Go has no such thing.
_SINGLE_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")

# A search takes as long as the text times the expression, so that neither may be without bounds.
_MAX_LENGTH = 8 * 1024
_MAX_MEMORY = 3 << 19


class Match(Protocol):
    """What a search found."""

    def group(self, group: int | str = 0) -> str | None: ...

    def start(self, group: int = 0) -> int: ...

    def end(self, group: int = 0) -> int: ...


class Regex(Protocol):
    """A compiled expression; `search` finds the leftmost match, as Go's does."""

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...

    def search(self, text: str, pos: int | None = None) -> Match | None: ...

    def finditer(self, text: str) -> Iterator[Match]: ...

    def fullmatch(self, text: str) -> Match | None: ...


@lru_cache(maxsize=1024)
def compile_regex(text: str) -> Regex:
    """Compile with google-re2; SyntaxFaultError where the expression is not well-formed."""
    import re2  # takes a while to load, and most policies have no expressions

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
