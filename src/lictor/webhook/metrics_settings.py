"""What of the metrics is shown, by the ConfigMap `<prefix>-metrics` under Kyverno's keys.

Processes count everything; what is switched off is left out or added up when the page is rendered.
"""

from collections.abc import Iterator, Mapping

import msgspec
import orjson

from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.metrics import METRICS
from lictor.webhook.counters import BUCKETS, Counters, Histogram, Labels

_NAMESPACE = "resource_namespace"


class Exposure(msgspec.Struct, frozen=True):
    """How one metric is shown."""

    enabled: bool = True
    # Series that differ only in these are added up.
    hidden: frozenset[str] = frozenset()


class MetricsSettings(msgspec.Struct, frozen=True):
    """Which namespaces, metrics, labels and buckets are shown."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    exposures: Mapping[str, Exposure] = msgspec.field(default_factory=dict)
    buckets: frozenset[float] = frozenset(BUCKETS)
    problems: tuple[str, ...] = ()

    def shows_namespace(self, namespace: str) -> bool:
        if namespace in ("", "-"):
            return True
        if namespace in self.exclude:
            return False
        return not self.include or namespace in self.include

    def shape(self, counters: Counters) -> Counters:
        """What is to be shown of a counters."""
        shown = Counters()
        for metric, table in counters.counters.items():
            for labels, value in self._select(metric, table):
                shown.count(metric, labels, value)
        for metric, table in counters.gauges.items():
            for labels, value in self._select(metric, table):
                gauges = shown.gauges.setdefault(metric, {})
                gauges[labels] = gauges.get(labels, 0) + value
        for metric, histograms in counters.histograms.items():
            for labels, histogram in self._select(metric, histograms):
                shown.histogram(metric, labels).merge(histogram)
        return shown

    def list_labels(self, metric: str) -> tuple[str, ...] | None:
        """The names of the labels that are left; None where we do not know the metric."""
        known, hidden = METRICS.get(metric), self._find(metric).hidden
        if known is None:
            return None
        return tuple(each for each in known.labels if each not in hidden)

    def _find(self, metric: str) -> Exposure:
        # Counters may be named as they stand on the page, too.
        return self.exposures.get(metric) or self.exposures.get(f"{metric}_total") or Exposure()

    def _select(
        self, metric: str, table: Mapping[Labels, "float | Histogram"]
    ) -> "Iterator[tuple[Labels, Json]]":
        exposure, known = self._find(metric), METRICS.get(metric)
        names = known.labels if known else ()
        if not exposure.enabled:
            return
        place = names.index(_NAMESPACE) if _NAMESPACE in names else -1
        kept = [i for i, name in enumerate(names) if name not in exposure.hidden]
        for labels, value in table.items():
            if place < 0 or self.shows_namespace(labels[place]):
                yield (tuple(labels[i] for i in kept) if names else labels), value


def read_metrics_settings(config_map: JsonObject | None) -> MetricsSettings:
    """The settings; what cannot be read is listed in `problems` and leaves the default."""
    data = (config_map or {}).get("data")
    texts = data if isinstance(data, dict) else {}
    problems: list[str] = []
    namespaces = _read_json(texts, "namespaces", problems)
    return MetricsSettings(
        include=_read_names(namespaces.get("include")),
        exclude=_read_names(namespaces.get("exclude")),
        exposures={
            str(metric): _read_exposure(said)
            for metric, said in _read_json(texts, "metricsExposure", problems).items()
            if isinstance(said, dict)
        },
        buckets=_read_buckets(texts, problems),
        problems=tuple(problems),
    )


def _read_json(texts: JsonObject, key: str, problems: list[str]) -> JsonObject:
    try:
        found = orjson.loads(str(texts.get(key) or "{}"))
    except orjson.JSONDecodeError as error:
        problems.append(f"{key}: {error}")
        return {}
    if isinstance(found, dict):
        return found
    problems.append(f"{key}: expected an object")
    return {}


def _read_names(said: Json) -> frozenset[str]:
    return frozenset(map(str, said)) if isinstance(said, list) else frozenset()


def _read_exposure(said: JsonObject) -> Exposure:
    return Exposure(
        said.get("enabled") is not False, _read_names(said.get("disabledLabelDimensions"))
    )


def _read_buckets(texts: JsonObject, problems: list[str]) -> frozenset[float]:
    """Those that are counted here; others cannot be separated afterwards."""
    said = str(texts.get("bucketBoundaries") or "")
    if not said.strip():
        return frozenset(BUCKETS)
    try:
        asked = frozenset(float(word) for word in said.split(","))
    except ValueError:
        problems.append("bucketBoundaries: expected numbers with commas between them")
        return frozenset(BUCKETS)
    if unknown := sorted(asked - set(BUCKETS)):
        words = ", ".join(map(str, unknown))
        problems.append(f"bucketBoundaries: {words} not counted here; there are {BUCKETS}")
    return asked & set(BUCKETS)
