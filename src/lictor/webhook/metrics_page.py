"""The page that Prometheus reads: what all processes have counted, added up."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from lictor.core.release import VERSION
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.kubernetes.metrics import INFO, METRICS, RULE_INFO
from lictor.webhook.counters import BUCKETS, Counters, Histogram, Labels, read_tables
from lictor.webhook.metrics import TIMED_ONCE
from lictor.webhook.metrics_settings import MetricsSettings
from lictor.webhook.slots import ProcessSlot

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def add_up_slots(slots: Iterable[ProcessSlot]) -> Counters:
    """What all processes have counted."""
    total = Counters()
    for slot in slots:
        tables = read_tables(slot.read())
        if tables is not None:
            total.merge(tables)
    return total


class MetricsPage:
    """Serves `/metrics` from any process, for all of them."""

    def __init__(
        self,
        slots: Iterable[ProcessSlot],
        settings: Callable[[], MetricsSettings] = MetricsSettings,
        rules: Callable[[], Iterable[Labels]] = tuple,
    ) -> None:
        """`rules`: the labels of all rules that this process knows, called on its event loop."""
        self._slots = tuple(slots)
        self._settings = settings
        self._list_rules = rules
        self._rules: tuple[Labels, ...] = ()
        # One page at a time, for any number of clients.
        self._turn = asyncio.Lock()

    async def __call__(self, call: HttpRequest) -> HttpResponse:
        """The page, and nothing else."""
        if call.method not in ("GET", "HEAD") or call.path != "/metrics":
            return HttpResponse(HTTPStatus.NOT_FOUND)
        async with self._turn:
            self._rules = tuple(self._list_rules())
            # Where there are thousands of series this takes seconds: requests go on.
            body = await asyncio.to_thread(self.render)
        return HttpResponse(HTTPStatus.OK, body, _CONTENT_TYPE)

    def render(self) -> bytes:
        """The page."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        _add_libraries(registry)
        return generate_latest(registry)

    def collect(self) -> "Iterator[Metric]":
        """The metrics of all processes."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counters = add_up_slots(self._slots)
        for seconds, total in TIMED_ONCE.items():
            for labels, histogram in counters.histograms.get(seconds, {}).items():
                counters.count(total, labels, histogram.count)
        for labels in self._rules:
            counters.set_gauge(RULE_INFO, 1, labels)
        settings = self._settings()
        shown = settings.shape(counters)
        if RULE_INFO in shown.gauges:
            # Also where rules of several policies are shown as one.
            shown.gauges[RULE_INFO] = dict.fromkeys(shown.gauges[RULE_INFO], 1.0)
        yield _build_info()
        yield from _list_values(CounterMetricFamily, shown.counters, settings)
        yield from _list_values(GaugeMetricFamily, shown.gauges, settings)
        yield from _list_histograms(shown.histograms, settings)


def _add_libraries(registry: "CollectorRegistry") -> None:
    """What other packages count with prometheus-client's multi-process mode."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and os.path.isdir(folder):
        from prometheus_client.multiprocess import MultiProcessCollector

        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]


def _build_info() -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(INFO, METRICS[INFO].help, labels=["version"])
    family.add_metric([VERSION], 1)
    return family


def _list_values(
    make: "type[CounterMetricFamily | GaugeMetricFamily]",
    values: dict[str, dict[Labels, float]],
    settings: MetricsSettings,
) -> "Iterator[Metric]":
    for name, table in values.items():
        family = make(name, _describe(name), labels=_labels_of(name, table, settings))
        for labels, value in table.items():
            family.add_metric(labels, value)
        yield family


def _list_histograms(
    histograms: dict[str, dict[Labels, Histogram]], settings: MetricsSettings
) -> "Iterator[Metric]":
    from prometheus_client.core import HistogramMetricFamily

    for name, table in histograms.items():
        family = HistogramMetricFamily(
            name, _describe(name), labels=_labels_of(name, table, settings)
        )
        for labels, histogram in table.items():
            family.add_metric(labels, list(_list_buckets(histogram, settings)), histogram.seconds)
        yield family


def _list_buckets(histogram: Histogram, settings: MetricsSettings) -> Iterator[tuple[str, float]]:
    total = 0
    for end, count in zip((*BUCKETS, None), histogram.buckets, strict=True):
        total += count
        if end is None or end in settings.buckets:
            yield "+Inf" if end is None else str(end), total


def _describe(name: str) -> str:
    known = METRICS.get(name)
    return known.help if known else name


def _labels_of(
    name: str, table: dict[Labels, float] | dict[Labels, Histogram], settings: MetricsSettings
) -> tuple[str, ...]:
    known = settings.list_labels(name)
    if known is not None:
        return known
    return tuple(f"label_{i}" for i in range(len(next(iter(table), ()))))
