"""All HTTP connections of a process: how many there may be, which are closed first, and the end."""

import asyncio
import heapq
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from lictor.http.connection import ServerConnection
from lictor.http.listener import Listener
from lictor.http.messages import Handler

_SWEEP_SECONDS = 2.0
_READ_AT_ONCE = 64 * 1024
# From one address, connections that have asked nothing get this share of the places.
_UNASKED_SHARE = 2
# Where all places are taken, this share of them is made free.
_EVICTED_SHARE = 64
# An address that has more than this share of the places makes room before others do.
_HEAVY_SHARE = 2


class HttpServer:
    """All connections of a process, and what they have in common."""

    def __init__(
        self,
        handler: Handler,
        *,
        max_body: int,
        max_connections: int = 4096,
        knows_clients: bool = False,
        keeps_headers: frozenset[bytes] = frozenset(),
        keeps_prefix: bytes = b"",
    ) -> None:
        self.handler = handler
        self.max_body = max_body
        # Larger bodies are read up to here, and all but their beginning is dropped.
        self.max_read = max_body
        # May only those send anything who have shown a certificate?
        self.knows_clients = knows_clients
        self.keeps_headers = keeps_headers
        # Of headers whose names are not known beforehand.
        self.keeps_prefix = keeps_prefix
        self.keeps_any = bool(keeps_headers or keeps_prefix)
        # Bytes of bodies that may be held for all connections together; what is over is cut.
        self.max_held = sys.maxsize
        self.held = 0
        self.is_draining = False
        self._max_connections = max_connections
        self._connections: set[ServerConnection] = set()
        # How many have asked nothing yet, by address.
        self._unasked: Counter[str] = Counter()
        self._max_unasked = max(max_connections // _UNASKED_SHARE, 1)
        # Connections closed to make room for others.
        self.evicted = 0
        # Told whenever the number of connections changes.
        self.on_count: Callable[[], None] | None = None
        # What is read at once, of all connections of an event loop: each takes it before another
        # one's turn comes. A buffer for each read would be asked of the system and given back,
        # which costs more than parsing.
        self.read_buffer = memoryview(bytearray(_READ_AT_ONCE))

    def __call__(self) -> ServerConnection:
        """A connection, for the event loop's server."""
        return ServerConnection(self)

    def keeps(self, header: bytes) -> bool:
        """Is a header, by its name in lower case, kept for the handler?"""
        prefix = self.keeps_prefix
        return header in self.keeps_headers or (bool(prefix) and header.startswith(prefix))

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def add(self, connection: ServerConnection) -> bool:
        """False where there are too many already, and all of them in use."""
        address = connection.address
        if self._unasked[address] >= self._max_unasked:
            self._evict(c for c in self._connections if c.is_unasked and c.address == address)
        if len(self._connections) >= self._max_connections and not self._make_room():
            return False
        self._connections.add(connection)
        self._unasked[address] += 1
        self._tell_count()
        return True

    def note_asked(self, connection: ServerConnection) -> None:
        """It has sent its first request: from now on it keeps its place while it is in use."""
        if connection in self._connections:
            self._forget_unasked(connection.address)

    def remove(self, connection: ServerConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._tell_count()
            if connection.is_unasked:
                self._forget_unasked(connection.address)

    def cut_largest_body(self) -> None:
        """Where too much is held of bodies, only the beginning of the largest is kept."""
        largest = max(self._connections, key=ServerConnection.count_held, default=None)
        if largest is not None:
            largest.cut_body()

    def _make_room(self) -> bool:
        """Take the places of those who do not wait for an answer; False where all do.

        Who is idle comes first, then who has begun a request and not ended it: else a byte would
        keep a place. Whoever has most of the places gives away theirs before others do.
        """
        ((address, places),) = Counter(c.address for c in self._connections).most_common(1)
        heavy = places > self._max_connections // _HEAVY_SHARE
        own = [c for c in self._connections if c.address == address] if heavy else []
        for among in (own, self._connections):
            for candidates in ([c for c in among if c.is_idle], among):
                self._evict(c for c in candidates if c.is_idle or not c.is_busy)
                if len(self._connections) < self._max_connections:
                    return True
        return False

    def _tell_count(self) -> None:
        if self.on_count is not None:
            self.on_count()

    def _forget_unasked(self, address: str) -> None:
        self._unasked[address] -= 1
        if not self._unasked[address]:
            del self._unasked[address]

    def _evict(self, candidates: Iterable[ServerConnection]) -> None:
        """Close those that asked nothing, the oldest first, then those idle for longest.

        Several at a time: whoever comes next finds room without a search.
        """
        number = max(self._max_connections // _EVICTED_SHARE, 1)
        for connection in heapq.nsmallest(number, candidates, key=ServerConnection.rank):
            self.evicted += 1
            self.remove(connection)
            connection.abort()

    async def sweep(self) -> None:
        """Close connections that nobody uses, and those that take for ever; until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for connection in list(self._connections):
                connection.check_time(now)

    async def drain(self, seconds: float) -> None:
        """Answer what is there, then close; for so long at most."""
        self.is_draining = True
        deadline = time.monotonic() + seconds
        while self._connections and time.monotonic() < deadline:
            now = time.monotonic()
            for connection in list(self._connections):
                connection.close_when_idle(now)
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.abort()


async def serve_port(
    bound: socket.socket, server: HttpServer, context: ssl.SSLContext | None = None
) -> None:
    """Answer the clients of one port until cancelled; then close their connections."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(Listener(bound, server, context).run())
            group.create_task(server.sweep())
    finally:
        await server.drain(0)
