"""Escapes control characters in texts from policies, resources, modules and registries."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

# Control characters; line ends and tabs stay.
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
# Single characters: linear, however long the text is.
_STEERING = re.compile(f"[{_CONTROLS}\\u202a-\\u202e\\u2066-\\u2069]")
_GUARDED = re.compile(f"[{_CONTROLS}]")
# Colours are the only escapes that lictor prints.
_GUARDED_BUT_COLORS = re.compile(f"(?!\\x1b\\[(?:[01]|3[1-6])m)[{_CONTROLS}]")


def wants_color(*, unless: bool = False) -> bool:
    """Whether standard output is coloured; never with `unless`, a flag.

    NO_COLOR (no-color.org) and FORCE_COLOR count if they are not empty.
    """
    if unless or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show_plainly(text: str) -> str:
    """Escape control characters and marks that change the direction of text."""
    return _STEERING.sub(_write_out, text)


def _write_out(found: re.Match[str]) -> str:
    letter = found[0]
    # The escapes of JSON: the meaning of a JSON string does not change.
    return repr(letter)[1:-1] if letter < "\x7f" else f"\\u{ord(letter):04x}"


class GuardedStream:
    """A stream that escapes all control characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        has_colors = wants_color() or stream.isatty()
        self._guarded = _GUARDED_BUT_COLORS if has_colors else _GUARDED

    def write(self, text: str) -> int:
        return self._stream.write(self._guarded.sub(_write_out, text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guard_streams() -> Iterator[None]:
    """Escape control characters in all output, and write UTF-8 in any locale."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout, sys.stderr = (cast("TextIO", stream and GuardedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
