"""How large may reviews be, how long may they take, and which connections are dropped first?"""

import socket
import time
from collections import OrderedDict
from functools import lru_cache

import msgspec

# A review holds an object twice, of three megabytes each at most.
MAX_REVIEW = 10 * 1024 * 1024
# Angle brackets are written with six letters each: reviews up to here come from an API server, and
# are refused by an answer.
MAX_CUT_REVIEW = 64 * 1024 * 1024


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


class PendingConnection:
    """An accepted connection before its handshake is done."""

    __slots__ = ("address", "since", "sock")

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.address = address
        self.since = time.monotonic()


class SilentConnections:
    """Connections whose clients have said nothing, oldest first, in all and by address."""

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
    """The seconds within which an answer must be ready: the API server's limit less a margin."""
    seconds = default
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit():
            # An API server waits for thirty seconds at most.
            seconds = float(min(int(value[:-1][:4]), 30)) or default
    return seconds - max(0.2, seconds / 10)
