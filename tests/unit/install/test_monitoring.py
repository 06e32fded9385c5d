"""Objects for Prometheus and Grafana fit the installation that they watch."""

import itertools
import json
import re

import pytest

from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.install.monitoring import DASHBOARD_FILE, render_dashboard_file
from lictor.install.values import CONTROLLERS, name_controller
from lictor.kubernetes.metrics import METRICS, MetricType

MONITOR = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "25s",
    "additionalLabels": {"release": "prom"},
}
EVERYTHING = {
    **{name_controller(each): {"serviceMonitor": MONITOR} for each in CONTROLLERS},
    "prometheusRule": {"enabled": True, "additionalLabels": {"release": "prom"}},
    "grafana": {"enabled": True, "labels": {"grafana_dashboard": "1", "release": "prom"}},
}


def build(values=EVERYTHING, **more):
    """The manifests of an installation with these values."""
    return build_manifests(Installation(version="1", values=values, **more))


def pick(manifests, kind):
    return [each for each in manifests if each["kind"] == kind]


@pytest.mark.parametrize(
    "chosen", [{}, {"all_in_one": True}, {"prefix": "kyverno", "namespace": "kyverno"}]
)
def test_monitors_find_every_service_of_metrics_once(chosen: dict[str, object]) -> None:
    manifests = build(**chosen)
    services = pick(manifests, "Service")
    wanted = [
        service["metadata"]["name"]
        for service in services
        if any(port["name"] == "metrics" for port in service["spec"]["ports"])
    ]
    found = []
    for monitor in pick(manifests, "ServiceMonitor"):
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [
            monitor["metadata"]["namespace"]
        ]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert (endpoint["port"], endpoint["interval"]) == ("metrics", "30s")
        labels = monitor["spec"]["selector"]["matchLabels"].items()
        found += [
            service["metadata"]["name"]
            for service in services
            if labels <= service["metadata"]["labels"].items()
            and service["metadata"]["name"] in wanted
        ]
    assert sorted(found) == sorted(wanted)


def test_objects_have_the_labels_that_operators_look_for() -> None:
    manifests = build()
    dashboards = [each for each in pick(manifests, "ConfigMap") if DASHBOARD_FILE in each["data"]]
    monitors, rules = pick(manifests, "ServiceMonitor"), pick(manifests, "PrometheusRule")
    assert (len(monitors), len(rules), len(dashboards)) == (4, 1, 1)
    for each in (*monitors, *rules, *dashboards):
        labels = each["metadata"]["labels"]
        assert labels["release"] == "prom"
        # Ours win: `uninstall` finds objects by them.
        assert labels["app.kubernetes.io/managed-by"] == "lictor"
    assert dashboards[0]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards[0]["data"][DASHBOARD_FILE] == render_dashboard_file()


def test_alerts_are_about_one_installation() -> None:
    (rule,) = pick(build(namespace="gate"), "PrometheusRule")
    for group in rule["spec"]["groups"]:
        for alert in group["rules"]:
            assert 'namespace="gate"' in alert["expr"]


def test_nothing_is_made_unless_asked_for() -> None:
    kinds = {each["kind"] for each in build({})}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}


def test_panels_do_not_lie_on_each_other() -> None:
    panels = json.loads(render_dashboard_file())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_panels_ask_for_metrics_and_labels_that_there_are() -> None:
    ends = {
        MetricType.COUNTER: ("",),
        MetricType.GAUGE: ("",),
        MetricType.HISTOGRAM: ("_bucket", "_sum", "_count"),
    }
    known = {
        f"{metric.shown_name}{end}": {*metric.labels, "le", "instance", "namespace"}
        for metric in METRICS.values()
        for end in ends[metric.type]
    }
    targets = [
        t
        for panel in json.loads(render_dashboard_file())["panels"]
        for t in panel.get("targets", ())
    ]
    for target in targets:
        names = re.findall(r"\b((?:kyverno|lictor)_[a-z_]+)\{([^}]*)\}", target["expr"])
        assert names
        for name, matchers in names:
            assert set(re.findall(r"(\w+)=~?\"", matchers)) <= known[name]
            for by in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert {*by.split(", ")} <= known[name]
        # What series are called comes from labels that are left.
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        left = {
            word for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for word in by.split(", ")
        }
        assert shown <= left
