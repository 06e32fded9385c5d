"""How far is the scan? For `lictor status`, on the Lease of a member, and for Prometheus."""

import time
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import orjson

from lictor.cluster.resource import Resource

if TYPE_CHECKING:
    from prometheus_client import Gauge

# Where a member's Lease tells how far it is.
NOTE = "lictor.io/scan"
_WORDS = {
    "kinds": "Kinds of objects that are followed.",
    "running": "Kinds that are being read from beginning to end just now.",
    "seen": "Objects that were looked at.",
    "judged": "Objects that were judged, because they or the policies had changed.",
    "written": "Reports that were created, changed or removed.",
    "refused": "Reports that the API server did not take.",
    "finished_timestamp_seconds": "When a kind was last read to its end.",
}


class Progress:
    """Counters of one replica's scanner. Belongs to its event loop."""

    def __init__(self) -> None:
        self.kinds = 0
        self.seen = 0
        self.judged = 0
        self.written = 0
        self.refused = 0
        self.finished_at = 0.0
        # Kinds that are read just now: how many objects have been looked at, and how many wait.
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
        """The note for a member's Lease."""
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
        counts = (
            self.kinds, self.running, self.seen, self.judged, self.written, self.refused,
            self.finished_at,
        )  # fmt: skip
        for name, count in zip(_WORDS, counts, strict=True):
            _gauge(name).set(count)


def _write_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


# On first use: the multi-process mode is chosen by the environment when the library is imported.
@cache
def _gauge(name: str) -> "Gauge":
    from prometheus_client import Gauge

    return Gauge(f"lictor_scan_{name}", _WORDS[name], multiprocess_mode="mostrecent")
