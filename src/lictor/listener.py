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
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

log = logging.getLogger(__name__)

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


class ListenerLimits(msgspec.Struct, frozen=True):
    """How many connections may be in which state, and for how long."""

    # Connections whose clients have said nothing yet: in all, and from one address. All API servers
    # may share an address, and many of their connections begin in the same moment.
    silent: int = 4096
    silent_per_address: int = 2048
    silent_seconds: float = 5.0
    # Handshakes at the same time; others wait for their turn.
    handshakes: int = 512
    handshake_seconds: float = 10.0
    # Clients that have spoken and wait for their turn; more are left in the kernel's queue.
    waiting: int = 1024


class ListenerCounts(msgspec.Struct):
    """What became of connections, for the metrics."""

    accepted: int = 0
    dropped_silent: int = 0
    failed_handshakes: int = 0
    errors: int = 0


class _Newcomer:
    """An accepted connection before its handshake is done."""

    __slots__ = ("address", "since", "sock")

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.address = address
        self.since = time.monotonic()


class _SilentConnections:
    """Connections whose clients have said nothing, oldest first, in all and by address."""

    def __init__(self) -> None:
        self._all: OrderedDict[_Newcomer, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[_Newcomer, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def count_of(self, address: str) -> int:
        return len(self._by_address.get(address, ()))

    def add(self, newcomer: _Newcomer) -> None:
        self._all[newcomer] = None
        self._by_address.setdefault(newcomer.address, OrderedDict())[newcomer] = None

    def remove(self, newcomer: _Newcomer) -> None:
        self._all.pop(newcomer, None)
        same = self._by_address.get(newcomer.address)
        if same is not None:
            same.pop(newcomer, None)
            if not same:
                del self._by_address[newcomer.address]

    def find_oldest(self, address: str | None = None) -> _Newcomer | None:
        among = self._all if address is None else self._by_address.get(address)
        return next(iter(among), None) if among else None


class Listener:
    """Hands the connections of one port to a protocol, after a TLS handshake where there is one."""

    def __init__(
        self,
        bound: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        self.counts = ListenerCounts()
        self._socket = bound
        self._factory = factory
        self._context = context
        self._limits = limits or ListenerLimits()
        self._silent = _SilentConnections()
        self._waiting: deque[_Newcomer] = deque()
        # In the order in which they began.
        self._handshakes: dict[asyncio.Task[None], _Newcomer] = {}
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
            self._admit(_Newcomer(sock, str(name[0]) if isinstance(name, tuple) else ""))
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

    def _admit(self, newcomer: _Newcomer) -> None:
        if self._has_spoken(newcomer):
            self._take_turn(newcomer)
            return
        limits = self._limits
        if self._silent.count_of(newcomer.address) >= limits.silent_per_address:
            self._drop_oldest(newcomer.address)
        elif len(self._silent) >= limits.silent:
            self._drop_oldest()
        self._silent.add(newcomer)
        self._loop.add_reader(newcomer.sock.fileno(), self._on_spoken, newcomer)

    def _on_spoken(self, newcomer: _Newcomer) -> None:
        try:
            self._hear(newcomer)
        except Exception as error:  # noqa: BLE001  (the same)
            self._drop(newcomer)
            if not isinstance(error, OSError):
                self._note_trouble(error)

    def _hear(self, newcomer: _Newcomer) -> None:
        if self._has_spoken(newcomer):
            self._silent.remove(newcomer)
            self._loop.remove_reader(newcomer.sock.fileno())
            self._take_turn(newcomer)
            return
        # In part: the reader would be told again at once, and again.
        self._loop.remove_reader(newcomer.sock.fileno())
        self._loop.call_later(_PARTIAL_SECONDS, self._listen_again, newcomer)

    def _listen_again(self, newcomer: _Newcomer) -> None:
        if newcomer.sock.fileno() >= 0:
            with contextlib.suppress(OSError, ValueError):
                self._loop.add_reader(newcomer.sock.fileno(), self._on_spoken, newcomer)

    def _has_spoken(self, newcomer: _Newcomer) -> bool:
        """Is there enough to begin with? Raises where the client is gone or speaks no TLS."""
        try:
            begun = newcomer.sock.recv(_RECORD_HEADER, socket.MSG_PEEK)
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
        return _count_readable(newcomer.sock) >= _RECORD_HEADER + int.from_bytes(begun[3:], "big")

    def _drop_expired(self) -> None:
        limit = time.monotonic() - self._limits.silent_seconds
        while (oldest := self._silent.find_oldest()) is not None and oldest.since < limit:
            self._drop_oldest()

    def _drop_oldest(self, address: str | None = None) -> None:
        oldest = self._silent.find_oldest(address)
        if oldest is not None:
            self.counts.dropped_silent += 1
            self._drop(oldest)

    def _drop(self, newcomer: _Newcomer) -> None:
        """Without a farewell: the kernel must not remember it either."""
        self._silent.remove(newcomer)
        sock = newcomer.sock
        if sock.fileno() < 0:
            return
        self._loop.remove_reader(sock.fileno())
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        sock.close()

    # --- handshakes

    def _take_turn(self, newcomer: _Newcomer) -> None:
        self._waiting.append(newcomer)
        self._give_places()

    def _give_places(self) -> None:
        while self._waiting and (
            len(self._handshakes) < self._limits.handshakes or self._drop_stalled()
        ):
            newcomer = self._waiting.popleft()
            newcomer.since = time.monotonic()
            if self.on_count is not None:
                self.on_count()
            task = self._loop.create_task(self._connect(newcomer))
            self._handshakes[task] = newcomer
            task.add_done_callback(self._note_end)

    def _drop_stalled(self) -> bool:
        """Whoever has a place longest makes room, where that is too long."""
        task, newcomer = next(iter(self._handshakes.items()))
        now = time.monotonic()
        if now - newcomer.since < _STALLED_SECONDS:
            return False
        del self._handshakes[task]
        if newcomer.sock.fileno() >= 0 and _count_readable(newcomer.sock):
            # It is we who are slow: its turn begins anew.
            newcomer.since = now
            self._handshakes[task] = newcomer
            return False
        with contextlib.suppress(OSError):
            newcomer.sock.shutdown(socket.SHUT_RDWR)
        return True

    async def _connect(self, newcomer: _Newcomer) -> None:
        is_plain = self._context is None
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                newcomer.sock,
                ssl=self._context,
                ssl_handshake_timeout=None if is_plain else self._limits.handshake_seconds,
                ssl_shutdown_timeout=None if is_plain else _GOODBYE_SECONDS,
            )
        except (OSError, EOFError):
            # Includes what TLS has to say: it is the client's affair.
            self.counts.failed_handshakes += 1
            newcomer.sock.close()
        except Exception as error:  # noqa: BLE001  (the same)
            newcomer.sock.close()
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
        while (newcomer := self._silent.find_oldest()) is not None:
            self._drop(newcomer)
        for newcomer in (*self._waiting, *self._handshakes.values()):
            with contextlib.suppress(OSError):
                newcomer.sock.shutdown(socket.SHUT_RDWR)
        self._waiting.clear()


def _count_readable(sock: socket.socket) -> int:
    """Bytes that have come and not been read."""
    found = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, found)
    return found[0]
