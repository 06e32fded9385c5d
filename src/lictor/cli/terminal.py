"""Terminals: colours, progress bars, and no control characters of other sources."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

PROGRESS_DELAY_SECONDS = 1.0
# The clock is read once per this many items: an item may take microseconds.
_STRIDE = 16

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


def shows_progress() -> bool:
    """Whether progress bars are shown: only on a terminal that shows no results."""
    # If stdout is a terminal too, the results show the progress, and a bar would overwrite them.
    is_shown = sys.stderr is not None and sys.stderr.isatty()
    return is_shown and not (sys.stdout is not None and sys.stdout.isatty())


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


def track(
    items: Iterable[Item],
    total: int | None = None,
    label: str = "Working",
    *,
    measure: Callable[[Item], int] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterable[Item]:
    """Return the items; while they are read, show a progress bar on stderr after one second.

    `total` is a number of items, or of bytes if `measure` returns the bytes of an item.
    """
    if not shows_progress():
        return items
    return _track(iter(items), total, label, measure, clock)


def _track(
    items: Iterator[Item],
    total: int | None,
    label: str,
    measure: Callable[[Item], int] | None,
    clock: Callable[[], float],
) -> Iterator[Item]:
    deadline = clock() + PROGRESS_DELAY_SECONDS
    done = 0
    for count, item in enumerate(items, 1):
        yield item
        done += measure(item) if measure else 1
        if count % _STRIDE == 0 and clock() > deadline:
            break
    else:
        return
    with _show_progress(in_bytes=measure is not None) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(task, measure(item) if measure else 1)


def _show_progress(*, in_bytes: bool) -> "Progress":
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Otherwise rich replaces stdout, and results meant for a file go to its stream.
        redirect_stdout=False,
    )
