"""Accepts connections on a port, in bounded numbers, and goes on after every error.

A connection costs next to nothing until its client has begun to speak: only then is TLS set up for
it. Who says nothing is dropped, the oldest first where there are too many.
"""

import array
import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import ssl
import struct
import termios
import time
from collections import deque
from collections.abc import Callable

from lictor.http.limits import ListenerCounts, ListenerLimits, PendingConnection, SilentConnections

log = logging.getLogger(__name__)

# Connections that may wait in the kernel's queue.
_BACKLOG = 1024
# Other connections get their turn between two batches.
_BATCH = 16
_TICK_SECONDS = 0.25
# A client whose first record came in part: when to look for the rest.
_PARTIAL_SECONDS = 0.05
_RETRY_SECONDS = 0.2
_TROUBLE_LOG_SECONDS = 10.0
# Where others wait for a place, a handshake that takes longer than this gives its place away.
_STALLED_SECONDS = 3.0
# Connections wait in the kernel's queue for so long only while nobody takes them.
_QUEUED_SECONDS = 5.0
# A client that does not answer our farewell is not waited for.
_GOODBYE_SECONDS = 2.0
# Where the header of a TLS record ends, and the type of those that begin a handshake.
_RECORD_HEADER = 5
_HANDSHAKE_RECORD = 0x16
# In `struct tcp_info`: for a listening socket, how many connections wait to be accepted.
_QUEUE_OFFSET = 24
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# The client went away before we came to it, or the network did; see accept(2).
_CLIENT_GONE = frozenset(
    (
        errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO, errno.ENETDOWN,
        errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP,
        errno.ENETUNREACH,
    )
)  # fmt: skip


class Listener:
    """Hands the connections of one port to a protocol, after a TLS handshake where there is one."""

    def __init__(
        self,
        bound: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        self.counts = ListenerCounts()
        self._socket = bound
        self._factory = factory
        self._context = context
        self._limits = limits or ListenerLimits()
        self._silent = SilentConnections()
        self._waiting: deque[PendingConnection] = deque()
        # In the order in which they began.
        self._handshakes: dict[asyncio.Task[None], PendingConnection] = {}
        # Told whenever the number of handshakes changes.
        self.on_count: Callable[[], None] | None = None
        self._is_reading = False
        self._is_stopped = False
        self._retry_at = 0.0
        # When there was last a connection to take, or none to be had.
        self._taken_at = time.monotonic()
        self._told_at = 0.0

    async def run(self) -> None:
        """Accept connections until cancelled; see `stop` for an end in good order."""
        self._loop = asyncio.get_running_loop()
        self._socket.settimeout(0)
        try:
            while True:
                self._check()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self._end()
            if self._handshakes:
                await asyncio.wait(self._handshakes, timeout=_RETRY_SECONDS)

    @property
    def is_accepting(self) -> bool:
        """False where connections wait at the port, and this process does not take them."""
        if self._is_stopped:
            return False
        if time.monotonic() - self._taken_at < _QUEUED_SECONDS:
            return True
        return self._count_queued() == 0

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return len(self._handshakes)

    @property
    def unfinished(self) -> int:
        """Connections that were accepted and are not through yet."""
        return len(self._silent) + len(self._waiting) + len(self._handshakes)

    def stop(self, *, for_all: bool = False) -> None:
        """Take what waits at the port, then nothing more; `for_all`: nor may other processes."""
        if self._is_stopped:
            return
        while self._is_reading and self._accept(_BATCH):
            pass
        self._pause(0.0)
        self._is_stopped = True
        if for_all:
            # Clients are refused from now on, instead of waiting for somebody to take them.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    async def finish(self, seconds: float) -> None:
        """Wait until the connections that were accepted are through; for so long at most."""
        deadline = time.monotonic() + seconds
        while self.unfinished and time.monotonic() < deadline:  # noqa: ASYNC110  (or its end)
            await asyncio.sleep(0.02)

    # --- the port

    def _check(self) -> None:
        """What time brings: whoever took too long goes, and what was paused goes on."""
        try:
            self._drop_expired()
            self._give_places()
            if not self._is_reading and not self._is_stopped:
                self._resume()
        except Exception as error:  # noqa: BLE001  (nothing may end the listening)
            self._note_trouble(error)

    def _resume(self) -> None:
        if time.monotonic() >= self._retry_at and len(self._waiting) < self._limits.waiting:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._is_reading = True

    def _pause(self, seconds: float) -> None:
        self._retry_at = time.monotonic() + seconds
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        self._accept(_BATCH)

    def _accept(self, count: int) -> bool:
        """Take so many at most; False where no more can be had now."""
        try:
            for _ in range(count):
                if len(self._waiting) >= self._limits.waiting:
                    self._pause(0.0)
                    return False
                self._accept_one()
        except BlockingIOError:
            self._taken_at = time.monotonic()
            return False
        except Exception as error:  # noqa: BLE001  (too many open files, no memory: the same)
            self._note_trouble(error)
            return False
        return True

    def _accept_one(self) -> None:
        try:
            sock, name = self._socket.accept()
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno in _CLIENT_GONE:
                return
            raise
        self.counts.accepted += 1
        self._taken_at = time.monotonic()
        try:
            sock.settimeout(0)
            self._admit(PendingConnection(sock, str(name[0]) if isinstance(name, tuple) else ""))
        except OSError:
            # Gone already, or no TLS.
            sock.close()
        except BaseException:
            sock.close()
            raise

    def _note_trouble(self, error: Exception) -> None:
        """Make room, and try again soon."""
        self.counts.errors += 1
        self._pause(_RETRY_SECONDS)
        for _ in range(max(len(self._silent) // 2, 1)):
            self._drop_oldest()
        now = time.monotonic()
        if now - self._told_at > _TROUBLE_LOG_SECONDS:
            self._told_at = now
            log.error("cannot accept connections for a moment", extra={"why": repr(error)})

    def _count_queued(self) -> int:
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUE_OFFSET + 4)
        except OSError:
            return 0
        queued: int = struct.unpack_from("=I", found, _QUEUE_OFFSET)[0]
        return queued

    # --- connections that have said nothing yet

    def _admit(self, pending: PendingConnection) -> None:
        if self._has_spoken(pending):
            self._take_turn(pending)
            return
        limits = self._limits
        if self._silent.count_of(pending.address) >= limits.silent_per_address:
            self._drop_oldest(pending.address)
        elif len(self._silent) >= limits.silent:
            self._drop_oldest()
        self._silent.add(pending)
        self._loop.add_reader(pending.sock.fileno(), self._on_spoken, pending)

    def _on_spoken(self, pending: PendingConnection) -> None:
        try:
            self._hear(pending)
        except Exception as error:  # noqa: BLE001  (the same)
            self._drop(pending)
            if not isinstance(error, OSError):
                self._note_trouble(error)

    def _hear(self, pending: PendingConnection) -> None:
        if self._has_spoken(pending):
            self._silent.remove(pending)
            self._loop.remove_reader(pending.sock.fileno())
            self._take_turn(pending)
            return
        # In part: the reader would be told again at once, and again.
        self._loop.remove_reader(pending.sock.fileno())
        self._loop.call_later(_PARTIAL_SECONDS, self._listen_again, pending)

    def _listen_again(self, pending: PendingConnection) -> None:
        if pending.sock.fileno() >= 0:
            with contextlib.suppress(OSError, ValueError):
                self._loop.add_reader(pending.sock.fileno(), self._on_spoken, pending)

    def _has_spoken(self, pending: PendingConnection) -> bool:
        """Is there enough to begin with? Raises where the client is gone or speaks no TLS."""
        try:
            begun = pending.sock.recv(_RECORD_HEADER, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not begun:
            raise ConnectionResetError("the client is gone")
        if self._context is None:
            return True
        if begun[0] != _HANDSHAKE_RECORD:
            raise ConnectionResetError("the client speaks no TLS")
        if len(begun) < _RECORD_HEADER:
            return False
        return _count_readable(pending.sock) >= _RECORD_HEADER + int.from_bytes(begun[3:], "big")

    def _drop_expired(self) -> None:
        limit = time.monotonic() - self._limits.silent_seconds
        while (oldest := self._silent.find_oldest()) is not None and oldest.since < limit:
            self._drop_oldest()

    def _drop_oldest(self, address: str | None = None) -> None:
        oldest = self._silent.find_oldest(address)
        if oldest is not None:
            self.counts.dropped_silent += 1
            self._drop(oldest)

    def _drop(self, pending: PendingConnection) -> None:
        """Without a farewell: the kernel must not remember it either."""
        self._silent.remove(pending)
        sock = pending.sock
        if sock.fileno() < 0:
            return
        self._loop.remove_reader(sock.fileno())
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        sock.close()

    # --- handshakes

    def _take_turn(self, pending: PendingConnection) -> None:
        self._waiting.append(pending)
        self._give_places()

    def _give_places(self) -> None:
        while self._waiting and (
            len(self._handshakes) < self._limits.handshakes or self._drop_stalled()
        ):
            pending = self._waiting.popleft()
            pending.since = time.monotonic()
            if self.on_count is not None:
                self.on_count()
            task = self._loop.create_task(self._connect(pending))
            self._handshakes[task] = pending
            task.add_done_callback(self._note_end)

    def _drop_stalled(self) -> bool:
        """Whoever has a place longest makes room, where that is too long."""
        task, pending = next(iter(self._handshakes.items()))
        now = time.monotonic()
        if now - pending.since < _STALLED_SECONDS:
            return False
        del self._handshakes[task]
        if pending.sock.fileno() >= 0 and _count_readable(pending.sock):
            # It is we who are slow: its turn begins anew.
            pending.since = now
            self._handshakes[task] = pending
            return False
        with contextlib.suppress(OSError):
            pending.sock.shutdown(socket.SHUT_RDWR)
        return True

    async def _connect(self, pending: PendingConnection) -> None:
        is_plain = self._context is None
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                pending.sock,
                ssl=self._context,
                ssl_handshake_timeout=None if is_plain else self._limits.handshake_seconds,
                ssl_shutdown_timeout=None if is_plain else _GOODBYE_SECONDS,
            )
        except (OSError, EOFError):
            # Includes what TLS has to say: it is the client's affair.
            self.counts.failed_handshakes += 1
            pending.sock.close()
        except Exception as error:  # noqa: BLE001  (the same)
            pending.sock.close()
            self._note_trouble(error)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if self.on_count is not None:
            self.on_count()
        if not task.cancelled():
            # Seen: whatever it was has been told.
            task.exception()
        self._check()

    def _end(self) -> None:
        self._pause(0.0)
        self._is_stopped = True
        while (pending := self._silent.find_oldest()) is not None:
            self._drop(pending)
        for pending in (*self._waiting, *self._handshakes.values()):
            with contextlib.suppress(OSError):
                pending.sock.shutdown(socket.SHUT_RDWR)
        self._waiting.clear()


def open_port(host: str, port: int) -> socket.socket:
    """Listen on a port, of all addresses where no host is given; OSError where it is taken."""
    if host and ":" not in host:
        return socket.create_server((host, port), backlog=_BACKLOG)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual and not host
    )


def _count_readable(sock: socket.socket) -> int:
    """Bytes that have come and not been read."""
    found = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, found)
    return found[0]
