"""What evaluations were counted, sent to an OpenTelemetry collector under Kubewarden's names."""

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lictor.addons.kubewarden.server.metrics import BOUNDS, EVALUATIONS, LABELS, LATENCY, add_up
from lictor.core.errors import UsageError
from lictor.core.raw import Json
from lictor.webhook.counters import Counters, Histogram, Labels
from lictor.webhook.slots import ProcessSlot
from lictor.webhook.span_export import build_resource

log = logging.getLogger(__name__)

_INTERVAL_VARIABLE: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MILLISECONDS: Final = 60_000
_TRUTH: Final = ("accepted", "mutated")


def check_collector() -> None:
    """Is there what sending needs?"""
    from importlib.util import find_spec

    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise UsageError("OpenTelemetry is not installed: install lictor[tracing]")


class MetricsSender:
    """Sends the counts of all processes, from one of them: no series is sent twice."""

    def __init__(self, slots: Iterable[ProcessSlot]) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        self._slots = tuple(slots)
        self._exporter = OTLPMetricExporter()
        self._began = time.time_ns()

    async def run(self) -> None:
        """At the interval of the usual variable of OpenTelemetry, and at the end."""
        pause = _read_interval()
        try:
            while True:
                await asyncio.sleep(pause)
                await asyncio.to_thread(self.send)
        finally:
            await asyncio.shield(asyncio.to_thread(self.send))

    def send(self) -> None:
        """Send what is there now."""
        counters = add_up(self._slots)
        try:
            self._exporter.export(_build(counters, self._began))
        except Exception as error:  # noqa: BLE001  (a collector that is away changes nothing)
            log.warning("metrics not sent", extra={"why": str(error)})


def _read_interval() -> float:
    said = os.environ.get(_INTERVAL_VARIABLE, "")
    return max(int(said) if said.isdigit() else _INTERVAL_MILLISECONDS, 100) / 1000


def _build(counters: Counters, began: int) -> Json:
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    metrics = [_build_sum(counters, began, now), _build_histogram(counters, began, now)]
    scope = ScopeMetrics(InstrumentationScope("kubewarden"), metrics, "")
    resource = build_resource("kubewarden-policy-server")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _build_sum(counters: Counters, began: int, now: int) -> Json:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Metric,
        NumberDataPoint,
        Sum,
    )

    points = [
        NumberDataPoint(_read_labels(labels), began, now, int(count))
        for labels, count in counters.counters.get(EVALUATIONS, {}).items()
    ]
    cumulative = AggregationTemporality.CUMULATIVE
    return Metric(EVALUATIONS, "", "", Sum(points, cumulative, is_monotonic=True))


def _build_histogram(counters: Counters, began: int, now: int) -> Json:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric
    from opentelemetry.sdk.metrics.export import Histogram as HistogramData

    points = [
        _build_point(labels, histogram, began, now)
        for labels, histogram in counters.histograms.get(LATENCY, {}).items()
    ]
    return Metric(LATENCY, "", "", HistogramData(points, AggregationTemporality.CUMULATIVE))


def _build_point(labels: Labels, histogram: Histogram, began: int, now: int) -> Json:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    counts: Sequence[int] = histogram.buckets
    milliseconds = histogram.seconds * 1000
    return HistogramDataPoint(
        attributes=_read_labels(labels),
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=histogram.count,
        sum=milliseconds,
        bucket_counts=counts,
        explicit_bounds=BOUNDS,
        min=0.0,
        max=milliseconds,
    )


def _read_labels(labels: Labels) -> Mapping[str, str | bool]:
    return {
        name: value == "true" if name in _TRUTH else value
        for name, value in zip(LABELS, labels, strict=True)
        if value != ""
    }
