"""Accepts connections on a port, in bounded numbers, and continues after every error.

A connection is cheap until its client sends data: only then is TLS set up. Silent clients are
dropped, the oldest first if there are too many.
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

# Backlog of the kernel's queue.
_BACKLOG = 1024
# Other connections are served between two batches.
_BATCH = 16
_TICK_SECONDS = 0.25
# When to look for the rest of an incomplete first record.
_PARTIAL_SECONDS = 0.05
_RETRY_SECONDS = 0.2
_TROUBLE_LOG_SECONDS = 10.0
# If others wait, a handshake that takes longer than this is dropped.
_STALLED_SECONDS = 3.0
# How long connections may wait in the kernel's queue while none is accepted.
_QUEUED_SECONDS = 5.0
# A client that does not answer the TLS close is not waited for.
_GOODBYE_SECONDS = 2.0
# The size of a TLS record header, and the record type of a handshake.
_RECORD_HEADER = 5
_HANDSHAKE_RECORD = 0x16
# In `struct tcp_info`: for a listening socket, the number of connections in its queue.
_QUEUE_OFFSET = 24
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# The client or the network went away before the accept; see accept(2).
_CLIENT_GONE = frozenset(
    (
        errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO, errno.ENETDOWN,
        errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP,
        errno.ENETUNREACH,
    )
)  # fmt: skip


class Listener:
    """Passes the connections of one port to a protocol, after a TLS handshake if configured."""

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
        # In the order of their start.
        self._handshakes: dict[asyncio.Task[None], PendingConnection] = {}
        # Called when the number of handshakes changes.
        self.on_count: Callable[[], None] | None = None
        self._is_reading = False
        self._is_stopped = False
        self._retry_at = 0.0
        # When a connection was last accepted, or none was waiting.
        self._taken_at = time.monotonic()
        self._told_at = 0.0

    async def run(self) -> None:
        """Accept connections until cancelled; see `stop` for a graceful end."""
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
        """False if connections wait at the port and this process does not accept them."""
        if self._is_stopped:
            return False
        if time.monotonic() - self._taken_at < _QUEUED_SECONDS:
            return True
        return self._count_queued() == 0

    @property
    def handshakes(self) -> int:
        """The number of handshakes in progress."""
        return len(self._handshakes)

    @property
    def unfinished(self) -> int:
        """Accepted connections that are not established yet."""
        return len(self._silent) + len(self._waiting) + len(self._handshakes)

    def stop(self, *, for_all: bool = False) -> None:
        """Accept what waits at the port, then stop; `for_all`: for all processes."""
        if self._is_stopped:
            return
        while self._is_reading and self._accept(_BATCH):
            pass
        self._pause(0.0)
        self._is_stopped = True
        if for_all:
            # From now on clients are refused instead of waiting.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    async def finish(self, seconds: float) -> None:
        """Wait until the accepted connections are established, up to a time limit."""
        deadline = time.monotonic() + seconds
        while self.unfinished and time.monotonic() < deadline:  # noqa: ASYNC110  (or its end)
            await asyncio.sleep(0.02)

    # --- the port

    def _check(self) -> None:
        """Periodic work: drop slow clients, and resume what was paused."""
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
        """Accept a batch; False if no more can be accepted now."""
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
        """Free resources, and retry soon."""
        self.counts.errors += 1
        self._pause(_RETRY_SECONDS)
        for _ in range(max(len(self._silent) // 2, 1)):
            self._drop_oldest()
        now = time.monotonic()
        if now - self._told_at > _TROUBLE_LOG_SECONDS:
            self._told_at = now
            log.error("accepting connections failed, retrying", extra={"why": repr(error)})

    def _count_queued(self) -> int:
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUE_OFFSET + 4)
        except OSError:
            return 0
        queued: int = struct.unpack_from("=I", found, _QUEUE_OFFSET)[0]
        return queued

    # --- silent connections

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
        # Incomplete: the reader callback would fire again at once.
        self._loop.remove_reader(pending.sock.fileno())
        self._loop.call_later(_PARTIAL_SECONDS, self._listen_again, pending)

    def _listen_again(self, pending: PendingConnection) -> None:
        if pending.sock.fileno() >= 0:
            with contextlib.suppress(OSError, ValueError):
                self._loop.add_reader(pending.sock.fileno(), self._on_spoken, pending)

    def _has_spoken(self, pending: PendingConnection) -> bool:
        """Whether a complete record header has arrived; raises if the client is gone or not TLS."""
        try:
            begun = pending.sock.recv(_RECORD_HEADER, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not begun:
            raise ConnectionResetError("the client is gone")
        if self._context is None:
            return True
        if begun[0] != _HANDSHAKE_RECORD:
            raise ConnectionResetError("the client does not use TLS")
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
        """With a TCP reset: the kernel must not keep it either."""
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
        """Drop the oldest handshakes if they take too long while others wait."""
        task, pending = next(iter(self._handshakes.items()))
        now = time.monotonic()
        if now - pending.since < _STALLED_SECONDS:
            return False
        del self._handshakes[task]
        if pending.sock.fileno() >= 0 and _count_readable(pending.sock):
            # This process was slow: restart its timer.
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
            # Includes TLS errors: caused by the client.
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
            # Retrieve the exception: it was handled already.
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
    """Listen on a port, on all addresses if no host is given; raises OSError if it is taken."""
    if host and ":" not in host:
        return socket.create_server((host, port), backlog=_BACKLOG)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual and not host
    )


def _count_readable(sock: socket.socket) -> int:
    """Bytes that have arrived and were not read."""
    found = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, found)
    return found[0]
