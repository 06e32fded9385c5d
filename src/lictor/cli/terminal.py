"""What others wrote (policies, resources, modules, registries) has no power over a terminal."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

# What steers a terminal; lines and columns stay.
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
# Single characters: linear, however long the text is.
_STEERING = re.compile(f"[{_CONTROLS}\\u202a-\\u202e\\u2066-\\u2069]")
_GUARDED = re.compile(f"[{_CONTROLS}]")
# Colours are all that we ourselves send.
_GUARDED_BUT_COLORS = re.compile(f"(?!\\x1b\\[(?:[01]|3[1-6])m)[{_CONTROLS}]")


def wants_color(*, unless: bool = False) -> bool:
    """Whether what goes to standard output is coloured; `unless` a flag says that it is not.

    As no-color.org and its counterpart say: set to anything but nothing, they count.
    """
    if unless or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show_plainly(text: str) -> str:
    """Text with controls, and marks that change the order of text, written out."""
    return _STEERING.sub(_write_out, text)


def _write_out(found: re.Match[str]) -> str:
    letter = found[0]
    # As JSON has it, too: where these stand in a string of it, nothing has changed.
    return repr(letter)[1:-1] if letter < "\x7f" else f"\\u{ord(letter):04x}"


class GuardedStream:
    """A stream that shows controls, whoever writes to it, and does not send them."""

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
    """Whatever is printed meanwhile is printed plainly, in UTF-8 whatever the locale is."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout, sys.stderr = (cast("TextIO", stream and GuardedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
