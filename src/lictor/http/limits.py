"""Limits of size, time and number of connections."""

import socket
import time
from collections import OrderedDict
from functools import lru_cache

import msgspec

# A review contains an object twice, of at most three megabytes each.
MAX_REVIEW = 10 * 1024 * 1024
# Angle brackets are escaped with six characters each: reviews up to this size come from an API
# server, and are denied with a response.
MAX_CUT_REVIEW = 64 * 1024 * 1024


class ListenerLimits(msgspec.Struct, frozen=True):
    """How many connections may be in which state, and for how long."""

    # Connections whose clients have not sent anything yet: in all, and from one address. All API
    # servers may share an address, and open many connections at the same time.
    silent: int = 4096
    silent_per_address: int = 2048
    silent_seconds: float = 5.0
    # Concurrent handshakes; others wait.
    handshakes: int = 512
    handshake_seconds: float = 10.0
    # Clients that wait for a handshake; more are left in the kernel's queue.
    waiting: int = 1024


class ListenerCounts(msgspec.Struct):
    """Counts of closed connections, for the metrics."""

    accepted: int = 0
    dropped_silent: int = 0
    failed_handshakes: int = 0
    errors: int = 0


class PendingConnection:
    """An accepted connection before its handshake is done."""

    __slots__ = ("address", "since", "sock")

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.address = address
        self.since = time.monotonic()


class SilentConnections:
    """Connections whose clients have not sent anything, oldest first, in all and by address."""

    def __init__(self) -> None:
        self._all: OrderedDict[PendingConnection, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[PendingConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def count_of(self, address: str) -> int:
        return len(self._by_address.get(address, ()))

    def add(self, pending: PendingConnection) -> None:
        self._all[pending] = None
        self._by_address.setdefault(pending.address, OrderedDict())[pending] = None

    def remove(self, pending: PendingConnection) -> None:
        self._all.pop(pending, None)
        same = self._by_address.get(pending.address)
        if same is not None:
            same.pop(pending, None)
            if not same:
                del self._by_address[pending.address]

    def find_oldest(self, address: str | None = None) -> PendingConnection | None:
        among = self._all if address is None else self._by_address.get(address)
        return next(iter(among), None) if among else None


@lru_cache(maxsize=64)
def find_time_limit(query: bytes, default: float) -> float:
    """The time limit of a response in seconds: the API server's timeout less a margin."""
    seconds = default
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit():
            # An API server waits for thirty seconds at most.
            seconds = float(min(int(value[:-1][:4]), 30)) or default
    return seconds - max(0.2, seconds / 10)
