"""Live updates: notifies each open page of changes that its viewer may see.

The notification has no content: the page is requested again, with the viewer's current rights.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from lictor.addons.web.records import ResultChange, Viewer
from lictor.addons.web.results import ResultIndex

# Changes in quick succession are combined.
_GATHER_SECONDS: Final = 0.5
# The interval of keep-alive messages of an idle stream; rights are checked as often.
_BEAT_SECONDS: Final = 15.0
# While everything is read for the first time.
_READING_SECONDS: Final = 1.0
# The longest life of a stream; browsers open a new one automatically.
_LONGEST_SECONDS: Final = 4 * 60 * 60.0
_MOST_STREAMS: Final = 400
_MOST_OF_ONE: Final = 12
# What browsers wait before they connect again, in milliseconds.
_HELLO: Final = b"retry: 3000\n: connected\n\n"
_BEAT: Final = b": still here\n\n"
_END: Final = b"event: end\ndata: {}\n\n"

# The viewer as they are now; None where they may no longer look.
Renew = Callable[[], Awaitable[Viewer | None]]


class _Stream:
    """One open page."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.changed = asyncio.Event()
        self.is_ended = False


class LiveFeed:
    """All open pages. Belongs to one event loop."""

    def __init__(self, results: ResultIndex, is_ready: Callable[[], bool] = lambda: True) -> None:
        # Oldest first, by the name of the viewer.
        self._streams: dict[_Stream, str] = {}
        self._is_ready = is_ready
        results.listen(self._on_change)

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, viewer: Viewer, renew: Renew) -> AsyncGenerator[bytes, None] | None:
        """What to send to a page; None where there are too many.

        Of one viewer the oldest stream ends for a new one: browsers forget to close them.
        """
        own = [stream for stream, name in self._streams.items() if name == viewer.name]
        for stream in own[: max(len(own) - _MOST_OF_ONE + 1, 0)]:
            self._close(stream)
        if len(self._streams) >= _MOST_STREAMS:
            return None
        return self._send(_Stream(viewer), renew)

    def _on_change(self, change: ResultChange) -> None:
        for stream in self._streams:
            if not stream.changed.is_set() and _concerns(change, stream.viewer):
                stream.changed.set()

    def _close(self, stream: _Stream) -> None:
        self._streams.pop(stream, None)
        stream.is_ended = True
        stream.changed.set()

    async def _send(self, stream: _Stream, renew: Renew) -> AsyncGenerator[bytes, None]:
        end = time.monotonic() + _LONGEST_SECONDS
        # Not before: a client that is gone by now would keep its place for good.
        self._streams[stream] = stream.viewer.name
        try:
            yield _HELLO
            number, was_ready = 0, self._is_ready()
            while time.monotonic() < end and not stream.is_ended:
                pause = _BEAT_SECONDS if was_ready else _READING_SECONDS
                has_changed = await _wait(stream.changed, pause)
                if not was_ready and self._is_ready():
                    # Also without results: the page shows that reports are still being read.
                    was_ready = has_changed = True
                viewer = await renew()
                if viewer is None or stream.is_ended:
                    break
                stream.viewer = viewer
                number += has_changed
                yield b"event: change\nid: %d\ndata: {}\n\n" % number if has_changed else _BEAT
                if has_changed:
                    await asyncio.sleep(_GATHER_SECONDS)
            yield _END
        finally:
            self._streams.pop(stream, None)


async def _wait(changed: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return False
    changed.clear()
    return True


def _concerns(change: ResultChange, viewer: Viewer) -> bool:
    if change.cluster not in viewer.namespaces:
        return False
    sees = viewer.may_see_result
    return any(map(sees, change.added)) or any(map(sees, change.removed))
