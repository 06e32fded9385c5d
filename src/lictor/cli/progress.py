"""A progress bar on standard error: on a terminal only, and only when a command takes longer."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

Item = TypeVar("Item")

PATIENCE_SECONDS = 1.0
# The clock is asked once for so many items: they may take microseconds each.
_STRIDE = 16


def track(
    items: Iterable[Item],
    total: int | None = None,
    label: str = "Working",
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """Give the items on; after a second, show on stderr how far we are."""
    # Where results go to a terminal too, they show how far we are, and a bar would cut into them.
    if not _is_terminal(sys.stderr) or _is_terminal(sys.stdout):
        yield from items
        return
    waiting = iter(items)
    deadline = clock() + PATIENCE_SECONDS
    done = 0
    for item in waiting:
        yield item
        done += 1
        if done % _STRIDE == 0 and clock() > deadline:
            break
    else:
        return
    yield from _track_visibly(waiting, total, label, done)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _track_visibly(
    items: Iterator[Item], total: int | None, label: str, done: int
) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    # Rich would take stdout for its own, and print to the bar's stream what belongs into a file.
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False
    ) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(task)
