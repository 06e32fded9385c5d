"""All HTTP connections of a process: their number, eviction order, and shutdown."""

import asyncio
import heapq
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from lictor.http.connection import ServerConnection
from lictor.http.connection_state import ConnectionState
from lictor.http.listener import Listener
from lictor.http.messages import Handler

_SWEEP_SECONDS = 2.0
_READ_AT_ONCE = 64 * 1024
# The share of one address in the connections that have not sent a request.
_UNASKED_SHARE = 2
# If all slots are taken, this share of them is freed.
_EVICTED_SHARE = 64
# An address with more than this share of the connections is evicted before others.
_HEAVY_SHARE = 2


class HttpServer:
    """All connections of a process, and their shared settings."""

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
        # Larger bodies are read up to this size, and all but their start is dropped.
        self.max_read = max_body
        # Whether a client certificate is required to send a request.
        self.knows_clients = knows_clients
        self.keeps_headers = keeps_headers
        # Of headers with dynamic names.
        self.keeps_prefix = keeps_prefix
        self.keeps_any = bool(keeps_headers or keeps_prefix)
        # Bytes of bodies held for all connections together; the excess is dropped.
        self.max_held = sys.maxsize
        self.held = 0
        self.is_draining = False
        self._max_connections = max_connections
        self._connections: set[ConnectionState] = set()
        # The number without a request yet, by address.
        self._unasked: Counter[str] = Counter()
        self._max_unasked = max(max_connections // _UNASKED_SHARE, 1)
        # Connections evicted for others.
        self.evicted = 0
        # Called when the number of connections changes.
        self.on_count: Callable[[], None] | None = None
        # The read buffer of all connections of an event loop: each consumes it before the next one
        # reads. Allocating a buffer for each read would cost more than parsing.
        self.read_buffer = memoryview(bytearray(_READ_AT_ONCE))

    def __call__(self) -> ServerConnection:
        """A connection, for the event loop's server."""
        return ServerConnection(self)

    def keeps(self, header: bytes) -> bool:
        """Whether a header, by its name in lower case, is kept for the handler."""
        prefix = self.keeps_prefix
        return header in self.keeps_headers or (bool(prefix) and header.startswith(prefix))

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def add(self, connection: ConnectionState) -> bool:
        """False if there are too many already, all of them in use."""
        address = connection.address
        if self._unasked[address] >= self._max_unasked:
            self._evict(c for c in self._connections if c.is_unasked and c.address == address)
        if len(self._connections) >= self._max_connections and not self._make_room():
            return False
        self._connections.add(connection)
        self._unasked[address] += 1
        self._report_count()
        return True

    def note_asked(self, connection: ConnectionState) -> None:
        """It has sent its first request: from now on it is kept while it is in use."""
        if connection in self._connections:
            self._forget_unasked(connection.address)

    def remove(self, connection: ConnectionState) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._report_count()
            if connection.is_unasked:
                self._forget_unasked(connection.address)

    def cut_largest_body(self) -> None:
        """If bodies hold too much memory, drop all but the start of the largest."""
        largest = max(self._connections, key=ConnectionState.count_held, default=None)
        if largest is not None:
            largest.cut_body()

    def _make_room(self) -> bool:
        """Close connections without a pending response; False if all have one.

        Idle ones are closed first, then those with an incomplete request: otherwise a single byte
        would keep a slot. The address with most connections is evicted first.
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

    def _report_count(self) -> None:
        if self.on_count is not None:
            self.on_count()

    def _forget_unasked(self, address: str) -> None:
        self._unasked[address] -= 1
        if not self._unasked[address]:
            del self._unasked[address]

    def _evict(self, candidates: Iterable[ConnectionState]) -> None:
        """Close those without a request, the oldest first, then those idle for longest.

        Several at a time, so that the next client needs no search.
        """
        number = max(self._max_connections // _EVICTED_SHARE, 1)
        for connection in heapq.nsmallest(number, candidates, key=ConnectionState.rank):
            self.evicted += 1
            self.remove(connection)
            connection.abort()

    async def sweep(self) -> None:
        """Close unused connections, and those that take too long; until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for connection in list(self._connections):
                connection.check_time(now)

    async def drain(self, seconds: float) -> None:
        """Answer pending requests, then close; up to a time limit."""
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
    """Serve the clients of one port until cancelled; then close their connections."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(Listener(bound, server, context).run())
            group.create_task(server.sweep())
    finally:
        await server.drain(0)
