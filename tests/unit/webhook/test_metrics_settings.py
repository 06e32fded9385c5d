"""What the ConfigMap of the metrics leaves of them."""

import orjson
import pytest

from lictor.core.raw import JsonObject
from lictor.kubernetes.metrics import QUEUE_LENGTH, REQUESTS, REVIEW_SECONDS
from lictor.webhook.counters import BUCKETS, Counters
from lictor.webhook.metrics_page import MetricsPage
from lictor.webhook.metrics_settings import read_metrics_settings
from lictor.webhook.slots import ProcessSlot


def _read(**data: str) -> JsonObject:
    return {"data": data}


def _fill() -> Counters:
    counters = Counters()
    for kind, namespace, times in (("Pod", "shop", 2), ("Job", "shop", 3), ("Pod", "dark", 5)):
        labels = (kind, namespace, "create", "true", "x")
        counters.count(REQUESTS, labels, times)
        counters.histogram(REVIEW_SECONDS, labels).add(0.02)
    counters.set_gauge(QUEUE_LENGTH, 7)
    return counters


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({}, {"shop": 5, "dark": 5}, id="nothing said"),
        pytest.param(
            {"namespaces": '{"exclude": ["dark"]}'}, {"shop": 5}, id="a namespace left out"
        ),
        pytest.param({"namespaces": '{"include": ["dark"]}'}, {"dark": 5}, id="only one"),
        pytest.param({"namespaces": "{"}, {"shop": 5, "dark": 5}, id="not JSON"),
        pytest.param(
            {"metricsExposure": orjson.dumps({REQUESTS: {"enabled": False}}).decode()},
            {},
            id="a metric left out",
        ),
    ],
)
def test_which_series_are_left(data: dict[str, str], expected: dict[str, float]) -> None:
    shown = read_metrics_settings(_read(**data)).shape(_fill())
    found: dict[str, float] = {}
    for labels, value in shown.counters.get(REQUESTS, {}).items():
        found[labels[1]] = found.get(labels[1], 0) + value
    assert found == expected
    assert shown.gauges == {QUEUE_LENGTH: {(): 7}}


def test_series_that_differ_only_in_hidden_labels_are_added_up() -> None:
    hidden = {REQUESTS: {"disabledLabelDimensions": ["resource_kind", "resource_namespace"]}}
    settings = read_metrics_settings(_read(metricsExposure=orjson.dumps(hidden).decode()))
    shown = settings.shape(_fill())
    assert shown.counters[REQUESTS] == {("create", "true", "x"): 10}
    assert settings.list_labels(REQUESTS) == (
        "resource_request_operation", "request_allowed", "request_webhook",
    )  # fmt: skip


def test_only_the_buckets_asked_for_are_on_the_page_with_our_version() -> None:
    settings = read_metrics_settings(_read(bucketBoundaries="0.01, 0.025, 7"))
    assert settings.buckets == {0.01, 0.025}
    assert "7.0 not counted here" in settings.problems[0]
    slot = ProcessSlot()
    slot.write(_fill().dump())
    page = MetricsPage([slot], lambda: settings).render().decode()
    assert 'le="0.025"' in page
    assert 'le="0.005"' not in page
    assert "kyverno_info{version=" in page


def test_bad_boundaries_are_told_and_change_nothing() -> None:
    settings = read_metrics_settings(_read(bucketBoundaries="soon"))
    assert settings.buckets == set(BUCKETS)
    assert settings.problems


@pytest.mark.parametrize("name", [REQUESTS, f"{REQUESTS}_total"])
def test_counters_are_known_with_and_without_their_end(name: str) -> None:
    """Kyverno's usual ConfigMap names them as they stand on the page."""
    exposure = orjson.dumps({name: {"disabledLabelDimensions": ["resource_namespace"]}}).decode()
    settings = read_metrics_settings({"data": {"metricsExposure": exposure}})
    assert "resource_namespace" not in (settings.list_labels(REQUESTS) or ())
