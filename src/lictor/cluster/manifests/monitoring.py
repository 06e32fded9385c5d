"""Objects for Prometheus and Grafana: ServiceMonitors, alerting rules, the dashboard."""

import json
from typing import Final

from lictor.cluster.manifests.alerts import build_rule_groups
from lictor.cluster.manifests.dashboard import build_dashboard
from lictor.cluster.manifests.installation import Installation, build_object, match_labels
from lictor.cluster.manifests.placeholders import (
    ConditionalPart,
    LabelSet,
    OptionalValueAt,
    ValueAt,
)
from lictor.cluster.manifests.workloads import WorkloadTemplate, list_workloads
from lictor.raw import Json, JsonObject

DASHBOARD_FILE: Final = "lictor.json"
_RULES: Final = "prometheusRule"
_GRAFANA: Final = "grafana"


def build_monitoring(installation: Installation) -> list[Json]:
    """The objects, each of which is there where its value is enabled; with placeholders.

    The kinds of the first two come with the Prometheus operator: not every cluster has them.
    """
    monitors = [_build_service_monitor(installation, each) for each in list_workloads()]
    return [*monitors, _build_rule(installation), _build_dashboard_map(installation)]


def render_dashboard_file() -> str:
    """The dashboard as a file for Grafana's import."""
    return json.dumps(build_dashboard(), indent=1) + "\n"


def _build_service_monitor(installation: Installation, workload: WorkloadTemplate) -> Json:
    """Where Prometheus finds the metrics of a controller: all Services of it with such a port."""
    path = f"{workload.values}.serviceMonitor"
    endpoint = {
        "port": "metrics",
        "path": "/metrics",
        "interval": ValueAt(f"{path}.interval"),
        "scrapeTimeout": ValueAt(f"{path}.scrapeTimeout"),
        "relabelings": OptionalValueAt((f"{path}.relabelings",)),
        "metricRelabelings": OptionalValueAt((f"{path}.metricRelabelings",)),
    }
    spec = {
        "selector": {"matchLabels": match_labels(installation, workload.component)},
        "namespaceSelector": {"matchNames": [installation.namespace]},
        "endpoints": [endpoint],
    }
    made = build_object(
        installation,
        "monitoring.coreos.com/v1/ServiceMonitor",
        installation.names.controller(workload.controller),
        workload.component,
        spec=spec,
    )
    return workload.when(_let_choose(made, workload.component, path), f"{path}.enabled")


def _build_rule(installation: Installation) -> Json:
    """The alerts of this installation."""
    groups = build_rule_groups(f'namespace="{installation.namespace}"')
    kind = "monitoring.coreos.com/v1/PrometheusRule"
    made = build_object(
        installation, kind, installation.prefix, "monitoring", spec={"groups": groups}
    )
    return ConditionalPart((f"{_RULES}.enabled",), _let_choose(made, "monitoring", _RULES))


def _build_dashboard_map(installation: Installation) -> Json:
    """A ConfigMap with the dashboard; Grafana's sidecar finds it by its labels."""
    data = {DASHBOARD_FILE: render_dashboard_file()}
    name = f"{installation.prefix}-grafana"
    made = build_object(installation, "v1/ConfigMap", name, "monitoring", data=data)
    made["metadata"]["labels"] = LabelSet("monitoring", paths=(f"{_GRAFANA}.labels",))
    made["metadata"]["annotations"] = OptionalValueAt((f"{_GRAFANA}.annotations",))
    return ConditionalPart((f"{_GRAFANA}.enabled",), made)


def _let_choose(made: JsonObject, component: str, path: str) -> JsonObject:
    """Labels by which an operator selects, and annotations."""
    made["metadata"]["labels"] = LabelSet(component, paths=(f"{path}.additionalLabels",))
    made["metadata"]["annotations"] = OptionalValueAt((f"{path}.additionalAnnotations",))
    return made
