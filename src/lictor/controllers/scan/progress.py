"""The scanned objects with their state, and the progress of the scan."""

import threading
import time
from array import array
from datetime import UTC, datetime
from hashlib import blake2b

import orjson

from lictor.kubernetes.metrics import open_counter, open_gauge
from lictor.kubernetes.resource import Resource

_EMPTY = 0
_REMOVED = 1
_FIRST_SIZE = 1 << 10


def hash_text(*parts: str | bytes) -> int:
    """A 63-bit hash of a text; never 0 or 1."""
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return (int.from_bytes(digest.digest(), "big") >> 1) | 2


class ScannedObjects:
    """UID -> the state it was evaluated in, and whether it has a report. Open addressing.

    Thread-safe: kinds are evaluated concurrently.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = array("Q", bytes(8 * _FIRST_SIZE))
        self._values = array("Q", bytes(8 * _FIRST_SIZE))
        self._used = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, uid: str) -> tuple[int, bool] | None:
        """The state, and whether there is a report."""
        key = hash_text(uid)
        with self._lock:
            found = self._find(key)
            if found is None:
                return None
            value = self._values[found]
        return value >> 1, bool(value & 1)

    def put(self, uid: str, state: int, *, reported: bool) -> None:
        """Record the state in which an object was evaluated."""
        key = hash_text(uid)
        value = (state << 1 | reported) & 0xFFFFFFFFFFFFFFFF
        with self._lock:
            found = self._find(key)
            if found is not None:
                self._values[found] = value
                return
            if self._used * 3 >= len(self._keys) * 2:
                self._grow()
            self._insert(key, value)
            self._count += 1

    def remove(self, uid: str) -> None:
        """Forget an object."""
        key = hash_text(uid)
        with self._lock:
            found = self._find(key)
            if found is not None:
                self._keys[found] = _REMOVED
                self._count -= 1

    def adopt(self, other: "ScannedObjects") -> None:
        """Replace the whole content by that of another one."""
        with self._lock:
            self._keys, self._values = other._keys, other._values  # noqa: SLF001  (same class)
            self._used, self._count = other._used, other._count  # noqa: SLF001

    def _find(self, key: int) -> int | None:
        mask = len(self._keys) - 1
        place = key & mask
        while (there := self._keys[place]) != _EMPTY:
            if there == key:
                return place
            place = (place + 1) & mask
        return None

    def _insert(self, key: int, value: int) -> None:
        mask = len(self._keys) - 1
        place = key & mask
        while self._keys[place] != _EMPTY:
            place = (place + 1) & mask
        self._keys[place] = key
        self._values[place] = value
        self._used += 1

    def _grow(self) -> None:
        """A larger table without removed entries; no list in between, as there may be millions."""
        keys, values = self._keys, self._values
        size = len(keys)
        while self._count * 3 >= size:
            size *= 2
        self._keys = array("Q", bytes(8 * size))
        self._values = array("Q", bytes(8 * size))
        self._used = 0
        for place, key in enumerate(keys):
            if key not in (_EMPTY, _REMOVED):
                self._insert(key, values[place])


# The annotation with the progress on a member's Lease.
NOTE = "lictor.io/scan"


class ScanProgress:
    """Counters of one replica's scanner. Belongs to its event loop."""

    def __init__(self) -> None:
        self.kinds = 0
        self.seen = 0
        self.judged = 0
        self.written = 0
        self.refused = 0
        self.finished_at = 0.0
        # The values already added to the metrics.
        self._shown: dict[str, int] = {}
        # Kinds that are being read: how many objects were read, and how many remain.
        self._passes: dict[Resource, tuple[int, int]] = {}

    @property
    def running(self) -> int:
        return len(self._passes)

    def begin(self, resource: Resource) -> None:
        """A kind is read from its beginning."""
        self._passes[resource] = (0, 0)

    def advance(self, resource: Resource, read: int, waiting: int) -> None:
        """A page was read."""
        done, _ = self._passes.get(resource, (0, 0))
        self._passes[resource] = (done + read, waiting)

    def end(self, resource: Resource, *, complete: bool) -> None:
        """A kind was read to its end, or was given up."""
        self._passes.pop(resource, None)
        if complete:
            self.finished_at = time.time()

    def describe(self) -> dict[str, str]:
        """The annotation for a member's Lease."""
        told: dict[str, int | str] = {
            "kinds": self.kinds,
            "running": self.running,
            "done": sum(done for done, _ in self._passes.values()),
            "waiting": sum(waiting for _, waiting in self._passes.values()),
            "seen": self.seen,
            "judged": self.judged,
            "written": self.written,
            "refused": self.refused,
            "finishedAt": _write_time(self.finished_at),
        }
        return {NOTE: orjson.dumps(told).decode()}

    def show(self) -> None:
        """Into the metrics."""
        open_gauge("lictor_scan_kinds").set(self.kinds)
        open_gauge("lictor_scan_running").set(self.running)
        open_gauge("lictor_scan_finished_timestamp_seconds").set(self.finished_at)
        counts = {
            "objects_read": self.seen,
            "objects_evaluated": self.judged,
            "reports_written": self.written,
            "reports_refused": self.refused,
        }
        for name, count in counts.items():
            open_counter(f"lictor_scan_{name}").inc(count - self._shown.get(name, 0))
        self._shown = counts


def _write_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""
