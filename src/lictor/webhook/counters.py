"""What one process has counted: plain tables, cheap to write while a request is answered.

A process writes its tables where others can read them (see `slots`); whoever is asked for metrics
adds up the tables of all.
"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

Labels = tuple[str, ...]

# Upper ends of the buckets, in seconds.
BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0,
)  # fmt: skip
SHORTEST = BUCKETS[0]
# Labels come from requests and policies: what is beyond this many of one metric is added up.
MAX_SERIES = 5000
_REST = "..."


class Histogram(msgspec.Struct):
    """How long something took, how often."""

    count: int = 0
    seconds: float = 0.0
    # One more than BUCKETS: the last is for all that took longer.
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        # Nearly always the first.
        self.buckets[0 if seconds <= SHORTEST else bisect_left(BUCKETS, seconds)] += 1

    def merge(self, other: "Histogram") -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Counters:
    """Counters, and histograms of durations, by metric and labels."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}
        self.gauges: dict[str, dict[Labels, float]] = {}

    def count(self, metric: str, labels: Labels = (), amount: float = 1) -> None:
        """Add to a counter."""
        table = self.counters.setdefault(metric, {})
        if labels not in table and len(table) >= MAX_SERIES:
            labels = _blur(labels)
        table[labels] = table.get(labels, 0) + amount

    def set_gauge(self, metric: str, value: float, labels: Labels = ()) -> None:
        """Set something that goes up and down; the gauges of all processes are added up."""
        self.gauges.setdefault(metric, {})[labels] = value

    def histogram(self, metric: str, labels: Labels) -> Histogram:
        """The histogram to add a duration to."""
        table = self.histograms.setdefault(metric, {})
        found = table.get(labels)
        if found is None:
            if len(table) >= MAX_SERIES:
                labels = _blur(labels)
            found = table.setdefault(labels, Histogram())
        return found

    def merge(self, tables: "CounterTables") -> None:
        """Add what another process has counted."""
        for metric, labels, value in tables.counters:
            self.count(metric, labels, value)
        for metric, labels, value in tables.gauges:
            table = self.gauges.setdefault(metric, {})
            table[labels] = table.get(labels, 0) + value
        for metric, labels, histogram in tables.histograms:
            self.histogram(metric, labels).merge(histogram)

    def dump(self) -> bytes:
        """Everything, for another process."""
        return msgspec.msgpack.encode(
            CounterTables(
                list(_flatten(self.counters)),
                list(_flatten(self.gauges)),
                [(m, k, s) for m, table in self.histograms.items() for k, s in table.items()],
            )
        )


class CounterTables(msgspec.Struct, array_like=True):
    """A counters on its way between processes."""

    counters: list[tuple[str, Labels, float]]
    gauges: list[tuple[str, Labels, float]]
    histograms: list[tuple[str, Labels, Histogram]]


def read_tables(data: bytes) -> CounterTables | None:
    """What another process dumped; None where it was caught in the middle of writing."""
    try:
        return msgspec.msgpack.decode(data, type=CounterTables)
    except msgspec.DecodeError:
        return None


def _flatten(tables: dict[str, dict[Labels, float]]) -> Iterable[tuple[str, Labels, float]]:
    for metric, table in tables.items():
        for labels, value in table.items():
            yield metric, labels, value


def _blur(labels: Labels) -> Labels:
    return (_REST,) * len(labels)
