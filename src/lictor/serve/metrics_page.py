"""The page that Prometheus reads: what all processes have counted, added up."""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lictor.serve.book import BUCKETS, Book, Labels, Spread, read_tables
from lictor.serve.instruments import HELP, LABELS, RULE_RESULTS, RULE_SECONDS
from lictor.serve.slots import Slot

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_HEAD_LIMIT = 16 * 1024
_PATIENCE = 10.0
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class MetricsPage:
    """Serves `/metrics` from any process, for all of them."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._slots = tuple(slots)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of one connection."""
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        writer.close()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET" or path != b"/metrics":
            return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        body = self.render()
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        ) + body

    def render(self) -> bytes:
        """The page."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        _add_libraries(registry)
        return generate_latest(registry)

    def collect(self) -> "Iterator[Metric]":
        """The metrics of all processes."""
        book = Book()
        for slot in self._slots:
            tables = read_tables(slot.read())
            if tables is not None:
                book.merge(tables)
        yield from _list_counters(book.counters)
        yield from _list_levels(book.levels)
        yield from _list_spreads(book.spreads)


def _add_libraries(registry: "CollectorRegistry") -> None:
    """What other rooms count with prometheus-client's own multi-process mode."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and os.path.isdir(folder):
        from prometheus_client.multiprocess import MultiProcessCollector

        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]


def _list_counters(counters: dict[str, dict[Labels, float]]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily

    for name, table in counters.items():
        family = CounterMetricFamily(name, HELP.get(name, name), labels=_labels_of(name, table))
        for labels, value in table.items():
            family.add_metric(labels, value)
        yield family


def _list_levels(levels: dict[str, dict[Labels, float]]) -> "Iterator[Metric]":
    from prometheus_client.core import GaugeMetricFamily

    for name, table in levels.items():
        family = GaugeMetricFamily(name, HELP.get(name, name), labels=_labels_of(name, table))
        for labels, value in table.items():
            family.add_metric(labels, value)
        yield family


def _list_spreads(spreads: dict[str, dict[Labels, Spread]]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    for name, table in spreads.items():
        family = HistogramMetricFamily(name, HELP.get(name, name), labels=_labels_of(name, table))
        for labels, spread in table.items():
            family.add_metric(labels, list(_list_buckets(spread)), spread.seconds)
        yield family
        if name == RULE_SECONDS:
            # Each answer of a rule is timed once: their number is the number of results.
            results = CounterMetricFamily(
                RULE_RESULTS, HELP[RULE_RESULTS], labels=LABELS[RULE_RESULTS]
            )
            for labels, spread in table.items():
                results.add_metric(labels, spread.count)
            yield results


def _list_buckets(spread: Spread) -> Iterator[tuple[str, float]]:
    total = 0
    for end, count in zip((*map(str, BUCKETS), "+Inf"), spread.buckets, strict=True):
        total += count
        yield end, total


def _labels_of(name: str, table: dict[Labels, float] | dict[Labels, Spread]) -> tuple[str, ...]:
    known = LABELS.get(name)
    if known is not None:
        return known
    return tuple(f"label_{i}" for i in range(len(next(iter(table), ()))))
