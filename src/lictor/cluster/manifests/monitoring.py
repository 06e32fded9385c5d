"""Objects for Prometheus and Grafana: ServiceMonitors, alerting rules, the dashboard."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from lictor.cluster.manifests.dashboard import build_dashboard
from lictor.cluster.manifests.installation import Installation, build_object, match_labels
from lictor.cluster.manifests.placeholders import (
    ConditionalPart,
    LabelSet,
    OptionalValueAt,
    ValueAt,
)
from lictor.cluster.manifests.workloads import WorkloadTemplate, list_workloads
from lictor.families.registry import registry
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


# Stands for whatever says which installation is meant.
_SELECTOR: Final = "SELECTOR"
RUNBOOKS: Final = "docs/operate/runbooks.md"


class AlertSeverity(StrEnum):
    """Must someone get up at night, look tomorrow, or know of it?"""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Alert(msgspec.Struct, frozen=True):
    """One alerting rule; what to do is told in the page of runbooks under its name."""

    name: str
    severity: AlertSeverity
    expression: str
    summary: str
    # How long it must hold.
    lasts: str = "0s"


_CRITICAL, _WARNING, _INFO = AlertSeverity
_P99: Final = (
    "histogram_quantile(0.99, sum by (le) "
    "(rate(kyverno_admission_review_duration_seconds_bucket{SELECTOR}[5m])))"
)
_REQUEST_RATE: Final = "sum(rate(kyverno_admission_requests_total{SELECTOR}[15m]))"
_REFUSED_RATE: Final = (
    'sum(rate(kyverno_admission_requests_total{request_allowed="false",SELECTOR}[15m]))'
)
# Kinds of policies that have a metric of their own.
_OWN_ERRORS: Final = " or ".join(
    f'sum by (policy_name) (increase({kind.duration_metric}_count{{result="error",SELECTOR}}[15m]))'
    " > 0"
    for kind in registry().kinds
    if kind.duration_metric and not kind.namespaced
)
_DELETION_ERRORS: Final = (
    'sum by (policy_name, resource_resource) ({__name__=~"kyverno_(cleanup|deleting|ttl)_'
    'controller_errors_total",SELECTOR}'
)

_ADMISSION: Final = (
    Alert(
        "LictorAbsent",
        _CRITICAL,
        "absent(kyverno_info{SELECTOR})",
        "No process of lictor shows metrics: it may not be running.",
        "5m",
    ),
    Alert(
        "LictorWebhooksDoNotAnswer",
        _CRITICAL,
        "min(lictor_webhook_healthy{SELECTOR}) == 0",
        "The API server gets no answer from lictor's webhooks.",
        "1m",
    ),
    Alert(
        "LictorRequestsNotEvaluated",
        _WARNING,
        "sum by (reason) (increase(lictor_admission_not_evaluated_total{SELECTOR}[5m])) > 0",
        "Requests were answered without asking policies: {{ $labels.reason }}.",
    ),
    Alert(
        "LictorAdmissionSlow",
        _WARNING,
        f"{_P99} > 1",
        "One request in a hundred takes {{ $value | humanizeDuration }} to be answered.",
        "10m",
    ),
    Alert(
        "LictorAdmissionNearTimeout",
        _CRITICAL,
        f"{_P99} > 5",
        "Answers take {{ $value | humanizeDuration }}; API servers wait for ten seconds.",
        "5m",
    ),
    Alert(
        "LictorManyRequestsRefused",
        _WARNING,
        f"{_REFUSED_RATE} / {_REQUEST_RATE} > 0.5 and {_REQUEST_RATE} > 0.1",
        "{{ $value | humanizePercentage }} of all requests are refused.",
        "15m",
    ),
    Alert(
        "LictorHandshakesFail",
        _WARNING,
        'sum(increase(lictor_connections_dropped_total{reason="handshake",SELECTOR}[15m])) > 20',
        "Clients do not finish the TLS handshake: the API server may not trust the certificate.",
        "5m",
    ),
    Alert(
        "LictorCertificateEnds",
        _CRITICAL,
        "min by (secret) (lictor_certificate_expiry_timestamp_seconds{SELECTOR}) - time()"
        " < 7 * 86400",
        "The certificate in {{ $labels.secret }} ends in {{ $value | humanizeDuration }} and"
        " was not renewed.",
        "1h",
    ),
)
_PROCESSES: Final = (
    Alert(
        "LictorProcessesRestart",
        _WARNING,
        "sum by (process) (increase(lictor_worker_restarts_total{SELECTOR}[15m])) > 3",
        "The process {{ $labels.process }} died or hung several times.",
    ),
    Alert(
        "LictorProcessesOutgrowMemory",
        _WARNING,
        "sum by (process) (increase(lictor_worker_recycled_total{SELECTOR}[1h])) > 3",
        "The process {{ $labels.process }} was replaced several times as it held too much memory.",
    ),
    Alert(
        "LictorAuditDropped",
        _WARNING,
        "sum by (reason) (increase(lictor_audit_dropped_total{SELECTOR}[15m])) > 0",
        "Rules that only audit did not see all requests ({{ $labels.reason }}).",
    ),
    Alert(
        "LictorEventsDropped",
        _INFO,
        "sum(increase(kyverno_events_dropped_total{SELECTOR}[15m])) > 0",
        "There were more events than lictor may send.",
    ),
    Alert(
        "LictorReportsWait",
        _WARNING,
        "sum(lictor_reports_waiting{SELECTOR}) > 1000",
        "Results of {{ $value }} objects wait to become reports.",
        "15m",
    ),
    Alert(
        "LictorUpdateRequestsWait",
        _WARNING,
        "sum(lictor_update_requests_waiting{SELECTOR}) > 500",
        "{{ $value }} requests to generate or change objects wait.",
        "15m",
    ),
)
_CONTROLLERS: Final = (
    Alert(
        "LictorNoLeader",
        _CRITICAL,
        'sum(increase(kyverno_controller_reconcile_total{controller_name="heartbeat-controller",'
        "SELECTOR}[10m])) == 0",
        "No replica leads the controllers: webhooks and certificates are not kept up to date.",
        "5m",
    ),
    Alert(
        "LictorControllerFails",
        _WARNING,
        "sum by (controller_name) (increase(kyverno_controller_requeue_total{SELECTOR}[15m])) > 10",
        "The controller {{ $labels.controller_name }} fails again and again.",
        "30m",
    ),
    Alert(
        "LictorScanStale",
        _WARNING,
        "time() - max by (instance) (lictor_scan_finished_timestamp_seconds{SELECTOR}) > 3 * 3600"
        " and max by (instance) (lictor_scan_kinds{SELECTOR}) > 0",
        "{{ $labels.instance }} has not finished a background scan for"
        " {{ $value | humanizeDuration }}.",
        "1h",
    ),
    Alert(
        "LictorReportsRefused",
        _WARNING,
        "sum(increase(lictor_scan_reports_refused_total{SELECTOR}[30m])) > 0",
        "The API server did not take reports of the background scan.",
    ),
)
_POLICIES: Final = (
    Alert(
        "LictorPolicyNotReady",
        _WARNING,
        "max by (policy_name, policy_namespace)"
        ' (kyverno_policy_rule_info_total{status_ready="false",SELECTOR}) == 1',
        "The policy {{ $labels.policy_name }} is not in force.",
        "15m",
    ),
    Alert(
        "LictorPolicyErrors",
        _WARNING,
        'sum by (policy_name) (increase(kyverno_policy_results_total{rule_result="error",SELECTOR}'
        f"[15m])) > 0 or {_OWN_ERRORS}",
        "The policy {{ $labels.policy_name }} could not decide on requests.",
    ),
    Alert(
        "LictorDeletionsFail",
        _WARNING,
        # Also where the first failure makes the series: it then has no increase.
        f"{_DELETION_ERRORS}) - {_DELETION_ERRORS} offset 1h) > 0"
        f" or ({_DELETION_ERRORS}) unless {_DELETION_ERRORS} offset 1h)) > 0",
        "Objects were not deleted: {{ $labels.policy_name }}{{ $labels.resource_resource }}.",
    ),
)
_NOTIFICATIONS: Final = (
    Alert(
        "LictorNotificationsFail",
        _WARNING,
        "sum by (target) (increase(lictor_notifications_failed_total{SELECTOR}[15m])) > 3 or"
        " sum by (target) (increase(lictor_notifications_dropped_total{SELECTOR}[15m])) > 0",
        "Notifications do not arrive at {{ $labels.target }}.",
    ),
)
ALERTS: Final = {
    "lictor-admission": _ADMISSION,
    "lictor-processes": _PROCESSES,
    "lictor-controllers": _CONTROLLERS,
    "lictor-policies": _POLICIES,
    "lictor-notifications": _NOTIFICATIONS,
}


def build_rule_groups(selector: str = "", runbooks: str = "") -> list[JsonObject]:
    """The groups of a rule file, or of a PrometheusRule.

    `selector`: matchers of the series of one installation, such as `namespace="lictor"`.
    `runbooks`: address of the page of runbooks, where it is served somewhere.
    """
    return [
        {"name": name, "rules": list(_build_rules(alerts, selector, runbooks))}
        for name, alerts in ALERTS.items()
    ]


def _build_rules(alerts: tuple[Alert, ...], selector: str, runbooks: str) -> Iterator[JsonObject]:
    for alert in alerts:
        annotations = {
            "summary": alert.summary,
            "runbook": f"{RUNBOOKS}#{alert.name.lower()}",
        }
        if runbooks:
            annotations["runbook_url"] = f"{runbooks}#{alert.name.lower()}"
        yield {
            "alert": alert.name,
            "expr": alert.expression.replace(_SELECTOR, selector),
            "for": alert.lasts,
            "labels": {"severity": str(alert.severity)},
            "annotations": annotations,
        }
