"""Watches: changes of objects of a kind, sent to a client as they happen.

A watch is a position in the log of the latest changes of a kind. A client that reads too slowly
gets an error and is disconnected; nothing is buffered per client.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec
import orjson

from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.lists import ObjectTest, read_version
from lictor.addons.apiserver.status_errors import build_status, expired, too_large_version
from lictor.addons.apiserver.store import ADDED, DELETED, MODIFIED, ResourceStorage, StoreChange
from lictor.core.raw import JsonObject

_BOOKMARK = "BOOKMARK"
_INITIAL_END = "k8s.io/initial-events-end"
_BOOKMARK_SECONDS = 60.0
# The default is random between these, so that not all clients reconnect at once.
_SHORTEST, _LONGEST = 1800.0, 3600.0
# So much is handed to the connection at once; other watches get their turn then.
_MAX_BATCH = 64 * 1024
# How an object is shown: as itself, as a row of a table, or as its metadata only.
Show = Callable[[JsonObject], JsonObject]


class WatchQuery(msgspec.Struct, frozen=True):
    """The parameters of a watch."""

    namespace: str = ""
    test: ObjectTest | None = None
    version: str = ""
    bookmarks: bool = False
    # None: existing objects are sent if no version is given.
    initial: bool | None = None
    seconds: float | None = None
    # The name of the form; watches of the same form share encoded events.
    style: str = ""
    show: Show | None = None


class Watches:
    """All watches of a server."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.encoder = _Encoder()
        self._open: set[OpenWatch] = set()

    def open(self, kind: ServedKind, query: WatchQuery) -> "OpenWatch":
        """Begin a watch; raises RefusedRequestError where it cannot begin there."""
        return OpenWatch(self, kind, query)

    def add(self, watch: "OpenWatch") -> None:
        self._open.add(watch)

    def remove(self, watch: "OpenWatch") -> None:
        self._open.discard(watch)

    def end_all(self) -> None:
        """End all watches in good order."""
        for watch in list(self._open):
            watch.end()

    def __len__(self) -> int:
        return len(self._open)


class OpenWatch:
    """One client's view of a kind."""

    def __init__(self, watches: Watches, kind: ServedKind, query: WatchQuery) -> None:
        self._watches = watches
        self._kind = kind
        self._query = query
        store = watches.context.store
        self._storage: ResourceStorage = store.storage(kind.group, kind.plural)
        wanted = read_version(query.version)
        if wanted > store.revision:
            raise too_large_version(wanted, store.revision)
        # A version of 0 means: as old as you like.
        self._sends_initial = not wanted if query.initial is None else query.initial
        self._since = store.revision if self._sends_initial or not wanted else wanted
        self._wake: asyncio.Future[None] | None = None
        self._is_over = False
        self._until = time.monotonic() + (query.seconds or random.uniform(_SHORTEST, _LONGEST))  # noqa: S311

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The lines of the reply, until the client goes or its time is over."""
        self._watches.add(self)
        unsubscribe = self._watches.context.store.subscribe(*self._storage.resource, self._notice)
        try:
            position = self._storage.end if self._sends_initial else self._find_position()
            if position is None:
                yield self._encode_error(f"too old resource version: {self._query.version}")
                return
            if self._sends_initial:
                async for piece in self._send_initial():
                    yield piece
            async for piece in self._follow(position):
                yield piece
        finally:
            unsubscribe()
            self._watches.remove(self)

    def _find_position(self) -> int | None:
        if self._since < self._storage.horizon:
            return None
        return self._storage.position_after(self._since)

    def _notice(self, _: StoreChange) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def end(self) -> None:
        """End the watch after the current batch."""
        self._is_over = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- what is there already

    async def _send_initial(self) -> AsyncIterator[bytes]:
        objects = list(self._storage.select(self._query.namespace))
        revision = self._watches.context.store.revision
        lines: list[bytes] = []
        size = 0
        for document in objects:
            if self._query.test is None or self._query.test(document):
                lines.append(self._encode(ADDED, document))
                size += len(lines[-1])
                if size > _MAX_BATCH:
                    yield b"".join(lines)
                    lines, size = [], 0
        if self._query.initial and self._query.bookmarks:
            lines.append(self._encode_bookmark(revision, ends_initial=True))
        yield b"".join(lines)

    # --- what happens

    async def _follow(self, position: int) -> AsyncIterator[bytes]:
        bookmark = time.monotonic() + _BOOKMARK_SECONDS
        while not self._is_over:
            changes = self._storage.changes_from(position)
            if changes is None:
                yield self._encode_error("the client reads too slowly: changes are forgotten")
                return
            if changes:
                position += len(changes)
                for piece in self._encode_changes(changes):
                    yield piece
                continue
            now = time.monotonic()
            if now >= self._until:
                break
            if self._query.bookmarks and now >= bookmark:
                bookmark = now + _BOOKMARK_SECONDS
                yield self._encode_bookmark(self._watches.context.store.revision)
                continue
            await self._sleep(min(self._until, bookmark) - now)
        if self._query.bookmarks:
            yield self._encode_bookmark(self._watches.context.store.revision)

    async def _sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        wake = self._wake = loop.create_future()
        timer = loop.call_later(max(seconds, 0.0), self._ring, wake)
        try:
            await wake
        finally:
            timer.cancel()
            self._wake = None

    @staticmethod
    def _ring(wake: "asyncio.Future[None]") -> None:
        if not wake.done():
            wake.set_result(None)

    def _encode_changes(self, changes: list[StoreChange]) -> list[bytes]:
        lines = [line for change in changes if (line := self._encode_change(change))]
        return [b"".join(lines)] if lines else []

    def _encode_change(self, change: StoreChange) -> bytes:
        query = self._query
        if query.namespace and change.key[0] != query.namespace:
            return b""
        if query.test is None:
            return self._encode(change.type, change.document)
        fits = query.test(change.document)
        fitted = change.old is not None and query.test(change.old)
        if change.type == DELETED:
            return self._encode(DELETED, change.document) if fitted else b""
        if fits:
            return self._encode(MODIFIED if fitted else ADDED, change.document)
        # It left the selection: to this client it is gone.
        return self._encode(DELETED, change.document) if fitted else b""

    # --- lines

    def _encode(self, type_: str, document: JsonObject) -> bytes:
        return self._watches.encoder.encode(self._show, self._kind, self._query, type_, document)

    def _show(self, document: JsonObject) -> JsonObject:
        shown = self._watches.context.show(self._kind, document)
        return self._query.show(shown) if self._query.show is not None else shown

    def _encode_bookmark(self, revision: int, *, ends_initial: bool = False) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        kind = self._kind
        mark = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        shown = self._query.show(mark) if self._query.show is not None else mark
        return orjson.dumps({"type": _BOOKMARK, "object": shown}) + b"\n"

    def _encode_error(self, message: str) -> bytes:
        status = build_status(expired(message))
        return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"


class _Encoder:
    """Encodes each event once for all watches."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str, str, str], tuple[JsonObject, bytes]] = {}

    def encode(
        self, show: Show, kind: ServedKind, query: WatchQuery, type_: str, document: JsonObject
    ) -> bytes:
        """The line of one event."""
        key = (id(document), type_, kind.api_version, query.style)
        found = self._lines.get(key)
        # The identity of an object that is gone may come back: what is kept keeps it alive.
        if found is not None and found[0] is document:
            return found[1]
        line = orjson.dumps({"type": type_, "object": show(document)}) + b"\n"
        if len(self._lines) >= 64:
            self._lines.clear()
        self._lines[key] = (document, line)
        return line
