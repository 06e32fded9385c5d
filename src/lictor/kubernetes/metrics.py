"""Every metric of lictor, declared once: its name, type, labels and meaning."""

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from lictor.core.families.registry import registry
from lictor.kubernetes.stored_policy import StoredPolicy

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge


class MetricType(StrEnum):
    """The Prometheus types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricDescription(msgspec.Struct, frozen=True):
    """One metric."""

    # Without the suffix `_total` of counters.
    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    # Values of its only label that are known in advance. These series start at zero: Prometheus
    # does not see the first increase of a series that starts at one.
    values: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name of its family in the exposition."""
        return f"{self.name}_total" if self.type is MetricType.COUNTER else self.name


_REQUEST_LABELS: Final = (
    "resource_kind", "resource_namespace", "resource_request_operation", "request_allowed",
    "request_webhook",
)  # fmt: skip
_RULE_LABELS: Final = (
    "policy_validation_mode", "policy_type", "policy_background_mode", "policy_namespace",
    "policy_name", "rule_name", "rule_type", "rule_result", "resource_kind",
    "resource_namespace", "resource_request_operation", "dry_run", "rule_execution_cause",
)  # fmt: skip
_CEL_LABELS: Final = (
    "policy_validation_mode", "policy_background_mode", "policy_name", "policy_namespace",
    "resource_kind", "resource_namespace", "resource_request_operation", "execution_cause",
    "result",
)  # fmt: skip
_POLICY_LABELS: Final = (
    "policy_validation_mode", "policy_type", "policy_background_mode", "policy_namespace",
    "policy_name",
)  # fmt: skip
_REMOVER_LABELS: Final = ("policy_type", "policy_namespace", "policy_name")
_REMOVED_LABELS: Final = ("resource_namespace", "deletion_propagation")
_TTL_LABELS: Final = ("resource_group", "resource_version", "resource_resource")
_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_M = MetricDescription

INFO: Final = "kyverno_info"
REQUESTS: Final = "kyverno_admission_requests"
REVIEW_SECONDS: Final = "kyverno_admission_review_duration_seconds"
HTTP_REQUESTS: Final = "kyverno_http_requests"
HTTP_SECONDS: Final = "kyverno_http_requests_duration_seconds"
RULE_SECONDS: Final = "kyverno_policy_execution_duration_seconds"
RULE_RESULTS: Final = "kyverno_policy_results"
DEPRECATED_REQUESTS: Final = "kyverno_deprecated_api_requests"
# Kinds of policies with metrics of their own: the name of the durations -> that of the results.
KIND_RESULTS: Final = {
    kind.duration_metric: kind.duration_metric.replace("_execution_duration_seconds", "_results")
    for kind in registry().kinds
    if kind.duration_metric
}
NOT_EVALUATED: Final = "lictor_admission_not_evaluated"
QUEUE_LENGTH: Final = "lictor_audit_queue_length"
QUEUE_DROPPED: Final = "lictor_audit_dropped"
REPORTS_WAITING: Final = "lictor_reports_waiting"
UPDATES_WAITING: Final = "lictor_update_requests_waiting"
RESTARTS: Final = "lictor_worker_restarts"
RECYCLED: Final = "lictor_worker_recycled"
MEMORY: Final = "lictor_worker_memory_bytes"
CONNECTIONS: Final = "lictor_connections"
CONNECTIONS_DROPPED: Final = "lictor_connections_dropped"
CERTIFICATE_RELOADS: Final = "lictor_certificate_reloads"
CERTIFICATE_EXPIRY: Final = "lictor_certificate_expiry_timestamp_seconds"
RULE_INFO: Final = "kyverno_policy_rule_info_total"
POLICY_CHANGES: Final = "kyverno_policy_changes"
EVENTS_DROPPED: Final = "kyverno_events_dropped"
WEBHOOK_ANSWER: Final = "lictor_webhook_last_answer_timestamp_seconds"
WEBHOOK_HEALTHY: Final = "lictor_webhook_healthy"

_ADMISSION: Final = (
    _M(INFO, _G, "1, with the version as label.", ("version",)),
    _M(REQUESTS, _C, "Admission requests.", _REQUEST_LABELS),
    _M(REVIEW_SECONDS, _H, "Seconds from a request to its answer.", _REQUEST_LABELS),
    # Paths contain policy names, of which there are many: they are no label here.
    _M(HTTP_REQUESTS, _C, "HTTP requests to the webhook server.", ("http_method",)),
    _M(HTTP_SECONDS, _H, "Seconds of HTTP requests to the webhook server.", ("http_method",)),
    _M(RULE_SECONDS, _H, "Seconds that single rules took.", _RULE_LABELS),
    _M(RULE_RESULTS, _C, "Answers of single rules.", _RULE_LABELS),
    # Kinds of policies may have a separate histogram; namespaced kinds share it.
    *(
        _M(kind.duration_metric, _H, f"The same for {kind.kind}.", _CEL_LABELS)
        for kind in registry().kinds
        if kind.duration_metric and not kind.namespaced
    ),
    *(
        _M(name, _C, "Answers of such policies.", _CEL_LABELS)
        for name in dict.fromkeys(KIND_RESULTS.values())
    ),
    _M(
        DEPRECATED_REQUESTS,
        _C,
        "Requests to store objects of kinds, or with values, that Kyverno deprecates.",
        ("group", "version", "kind", "field"),
    ),
    _M(
        NOT_EVALUATED,
        _C,
        "Requests answered by failure policy or refused, as policies could not be evaluated.",
        ("reason",),
        ("deadline", "error", "large", "lookup", "memory", "overload", "slow", "unreadable"),
    ),
    _M(QUEUE_LENGTH, _G, "Requests that wait for rules that only audit."),
    _M(
        QUEUE_DROPPED,
        _C,
        "Requests that rules which only audit never saw; a scan sees the objects.",
        ("reason",),
        ("deadline", "full", "shutdown", "slow"),
    ),
    _M(REPORTS_WAITING, _G, "Objects whose results wait to be written as ephemeral reports."),
    _M(UPDATES_WAITING, _G, "Update requests that wait to be written."),
    _M(EVENTS_DROPPED, _C, "Events that were not sent, as there were too many."),
)
_PROCESSES: Final = (
    _M(RESTARTS, _C, "Processes that died or hung and were replaced.", ("process",)),
    _M(RECYCLED, _C, "Processes replaced because they held too much memory.", ("process",)),
    _M(MEMORY, _G, "Memory of the webhook processes; what they share is counted for each."),
    _M(CONNECTIONS, _G, "Open connections of clients."),
    _M(
        CONNECTIONS_DROPPED,
        _C,
        "Connections closed by the server: silent, failed handshake, or evicted.",
        ("reason",),
        ("evicted", "handshake", "silent"),
    ),
    _M(CERTIFICATE_RELOADS, _C, "Serving certificates taken into use."),
    _M(CERTIFICATE_EXPIRY, _G, "When the certificate in a Secret of lictor expires.", ("secret",)),
    _M(WEBHOOK_HEALTHY, _G, "1 while the webhooks answer, as this replica sees it; else 0."),
    _M(WEBHOOK_ANSWER, _G, "When a webhook answered last."),
)
_POLICIES: Final = (
    _M(
        RULE_INFO,
        _G,
        "1 for each rule of each policy that is there.",
        (*_POLICY_LABELS, "rule_name", "rule_type", "status_ready"),
    ),
    _M(
        POLICY_CHANGES,
        _C,
        "Policies that were created, updated or deleted while this replica ran.",
        (*_POLICY_LABELS, "policy_change_type"),
    ),
)
_CONTROLLERS: Final = (
    _M("kyverno_controller_reconcile", _C, "Runs of a controller.", ("controller_name",)),
    _M(
        "kyverno_controller_requeue", _C, "Runs that failed and are repeated.", ("controller_name",)
    ),
    _M("kyverno_controller_drop", _C, "Work that was given up.", ("controller_name",)),
    *(
        _M(
            f"kyverno_{controller}_controller_{what}",
            _C,
            help,
            (*_REMOVER_LABELS, thing, *_REMOVED_LABELS),
        )
        for controller, thing in (("cleanup", "resource_kind"), ("deleting", "resource"))
        for what, help in (
            ("deletedobjects", f"Objects that {controller} policies deleted."),
            ("errors", f"Objects that {controller} policies could not delete or decide on."),
        )
    ),
    _M(
        "kyverno_ttl_controller_deletedobjects",
        _C,
        "Objects deleted as their time to live was over.",
        (*_TTL_LABELS, "resource_namespace"),
    ),
    _M(
        "kyverno_ttl_controller_errors",
        _C,
        "Objects whose time to live is over and that could not be deleted.",
        (*_TTL_LABELS, "resource_namespace"),
    ),
    _M("kyverno_ttl_controller_info", _G, "1 for each watched collection.", _TTL_LABELS),
    _M("lictor_scan_kinds", _G, "Kinds of objects that this replica scans."),
    _M("lictor_scan_running", _G, "Kinds that are being read from beginning to end just now."),
    _M("lictor_scan_objects_read", _C, "Objects that the scan looked at."),
    _M("lictor_scan_objects_evaluated", _C, "Objects evaluated, as they or policies changed."),
    _M("lictor_scan_reports_written", _C, "Reports that were created, changed or removed."),
    _M("lictor_scan_reports_refused", _C, "Reports that the API server did not take."),
    _M("lictor_scan_finished_timestamp_seconds", _G, "When a kind was last read to its end."),
)
_TARGET_LABELS: Final = ("target", "kind")
_NOTIFICATIONS: Final = (
    _M("lictor_notifications_sent", _C, "Results that a target took.", _TARGET_LABELS),
    _M("lictor_notifications_failed", _C, "Requests that did not arrive.", _TARGET_LABELS),
    _M(
        "lictor_notifications_dropped",
        _C,
        "Results that were not sent to a target.",
        (*_TARGET_LABELS, "reason"),
    ),
    _M("lictor_notifications_waiting", _G, "Results that wait for a target.", _TARGET_LABELS),
    _M(
        "lictor_notifications_last_success_timestamp_seconds",
        _G,
        "When a target took something last.",
        _TARGET_LABELS,
    ),
)
_EVALUATION_LABELS: Final = (
    "policy_name", "policy_mode", "resource_kind", "resource_namespace",
    "resource_request_operation", "accepted", "mutated", "request_origin", "error_code",
    "initialization_error",
)  # fmt: skip
EVALUATIONS: Final = "kubewarden_policy_evaluations"
EVALUATION_LATENCY: Final = "kubewarden_policy_evaluation_latency_milliseconds"
_POLICY_SERVER: Final = (
    _M(EVALUATIONS, _C, "Requests that policies evaluated.", _EVALUATION_LABELS),
    _M(EVALUATION_LATENCY, _H, "Milliseconds from a question to its answer.", _EVALUATION_LABELS),
)
# By subject, in the order of the documentation page.
PARTS: Final = {
    "Admission": _ADMISSION,
    "Processes and certificates": _PROCESSES,
    "Policies": _POLICIES,
    "Controllers": _CONTROLLERS,
    "Notifications": _NOTIFICATIONS,
    "Policy server": _POLICY_SERVER,
}
METRICS: Final = {metric.name: metric for part in PARTS.values() for metric in part}


def label_policy(policy: StoredPolicy) -> tuple[str, ...]:
    """The labels that all policy metrics start with."""
    return (
        _read_mode(policy),
        "namespaced" if policy.namespace else "cluster",
        str(policy.background).lower(),
        policy.namespace or "-",
        policy.name,
    )


def _read_mode(policy: StoredPolicy) -> str:
    """Whether any rule of a policy enforces, if its kind has that."""
    if policy.record is None:
        return "audit"
    return policy.kind.family.read_mode(policy.record) or "audit"


# Created on first use: the library chooses its multi-process mode on import, by the environment,
# and processes without metrics should not import it.
@cache
def open_counter(name: str) -> "Counter":
    """A prometheus-client counter, for processes without `Counters`."""
    from prometheus_client import Counter, disable_created_metrics

    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types
    metric = METRICS[name]
    return Counter(metric.name, metric.help, metric.labels)


@cache
def open_gauge(name: str) -> "Gauge":
    """A prometheus-client gauge; of several processes, the last written value counts."""
    from prometheus_client import Gauge

    metric = METRICS[name]
    return Gauge(metric.name, metric.help, metric.labels, multiprocess_mode="mostrecent")
