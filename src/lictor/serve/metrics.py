"""What is measured of admission, under the names and labels that Kyverno uses."""

from typing import TYPE_CHECKING

import msgspec

from lictor.families.registry import registry, resolve
from lictor.model.result import Result, RuleType
from lictor.serve.counters import Counters, Histogram, Labels

if TYPE_CHECKING:
    # The supervising parent counts too, and must stay small.
    from lictor.cluster.stored_policy import StoredPolicy

INFO = "kyverno_info"
REQUESTS = "kyverno_admission_requests"
REVIEW_SECONDS = "kyverno_admission_review_duration_seconds"
HTTP_REQUESTS = "kyverno_http_requests"
HTTP_SECONDS = "kyverno_http_requests_duration_seconds"
RULE_SECONDS = "kyverno_policy_execution_duration_seconds"
RULE_RESULTS = "kyverno_policy_results"
QUEUE_LENGTH = "lictor_aftermath_queue_length"
QUEUE_DROPPED = "lictor_aftermath_dropped"
REFUSED_UNJUDGED = "lictor_admission_unjudged"
RESTARTS = "lictor_worker_restarts"
RECYCLED = "lictor_worker_recycled"
MEMORY = "lictor_worker_memory_bytes"
CONNECTIONS = "lictor_connections"
CONNECTIONS_DROPPED = "lictor_connections_dropped"
CERTIFICATE_RELOADS = "lictor_certificate_reloads"

_REQUEST_LABELS = (
    "resource_kind",
    "resource_namespace",
    "resource_request_operation",
    "request_allowed",
    "request_webhook",
)
_RULE_LABELS = (
    "policy_validation_mode", "policy_type", "policy_background_mode", "policy_namespace",
    "policy_name", "rule_name", "rule_type", "rule_result", "resource_kind",
    "resource_namespace", "resource_request_operation", "dry_run", "rule_execution_cause",
)  # fmt: skip
_CEL_LABELS = (
    "policy_validation_mode", "policy_background_mode", "policy_name", "resource_kind",
    "resource_namespace", "resource_request_operation", "execution_cause", "result",
)  # fmt: skip
LABELS: dict[str, tuple[str, ...]] = {
    REQUESTS: _REQUEST_LABELS,
    REVIEW_SECONDS: _REQUEST_LABELS,
    # Paths name policies, and there are many: they are no label here.
    HTTP_REQUESTS: ("http_method",),
    HTTP_SECONDS: ("http_method",),
    RULE_SECONDS: _RULE_LABELS,
    RULE_RESULTS: _RULE_LABELS,
    QUEUE_DROPPED: ("reason",),
    REFUSED_UNJUDGED: ("reason",),
    RESTARTS: ("process",),
    RECYCLED: ("process",),
    MEMORY: (),
    CONNECTIONS: (),
    CONNECTIONS_DROPPED: ("reason",),
    QUEUE_LENGTH: (),
    CERTIFICATE_RELOADS: (),
    # Kinds of policies may have a histogram of their own.
    **{kind.duration_metric: _CEL_LABELS for kind in registry().kinds if kind.duration_metric},
}
# What is timed each time that it is counted: its number follows from the durations.
TIMED_ONCE = {
    REVIEW_SECONDS: REQUESTS,
    HTTP_SECONDS: HTTP_REQUESTS,
    RULE_SECONDS: RULE_RESULTS,
}
HELP = {
    INFO: "Which version this is.",
    REQUESTS: "Admission requests.",
    REVIEW_SECONDS: "Seconds from a request to its answer.",
    HTTP_REQUESTS: "HTTP requests.",
    HTTP_SECONDS: "Seconds of HTTP requests.",
    RULE_SECONDS: "Seconds that single rules took.",
    RULE_RESULTS: "Answers of single rules.",
    QUEUE_LENGTH: "Requests that wait to be judged by rules that only audit.",
    QUEUE_DROPPED: "Requests that rules which only audit never saw.",
    REFUSED_UNJUDGED: "Requests answered by failure policy, without a verdict.",
    RESTARTS: "Processes that died or hung and were replaced.",
    RECYCLED: "Processes that used too much memory and gave their place to a new one.",
    MEMORY: "Memory of all workers; what they share is counted for each.",
    CONNECTIONS: "Open connections of clients.",
    CONNECTIONS_DROPPED: "Connections closed: silent, a failed handshake, or to make room.",
    CERTIFICATE_RELOADS: "Serving certificates taken into use.",
}
_RULE_TYPES = {
    RuleType.VALIDATION: "validate",
    RuleType.MUTATION: "mutate",
    RuleType.GENERATION: "generate",
    RuleType.IMAGE_VERIFY: "imageVerify",
    RuleType.CLEANUP: "-",
}


class RequestLabels(msgspec.Struct, frozen=True):
    """What of a request becomes labels."""

    kind: str
    namespace: str
    operation: str
    dry_run: str


class RuleMetric:
    """Finds the histogram that an answer of one policy counts in."""

    def __init__(self, counters: Counters, policy: "StoredPolicy") -> None:
        self._counters = counters
        self._policy = policy
        own = policy.kind.duration_metric
        self._label = _label_policy if own else _label_rule
        self._metric = own or RULE_SECONDS

    def find(self, asked: RequestLabels, answer: Result) -> Histogram:
        """The histogram of answers like this to requests like that."""
        return self._counters.histogram(self._metric, self._label(self._policy, asked, answer))


def _label_rule(policy: "StoredPolicy", asked: RequestLabels, answer: Result) -> Labels:
    return (
        _read_mode(policy),
        "namespaced" if policy.namespace else "cluster",
        str(policy.background).lower(),
        policy.namespace or "-",
        policy.name,
        answer.rule,
        _RULE_TYPES[answer.type],
        str(answer.status),
        asked.kind,
        asked.namespace,
        asked.operation,
        asked.dry_run,
        "admission_request",
    )


def _label_policy(policy: "StoredPolicy", asked: RequestLabels, answer: Result) -> Labels:
    evaluation = (policy.document.get("spec") or {}).get("evaluation") or {}
    return (
        str(evaluation.get("mode") or "Kubernetes"),
        str(policy.background).lower(),
        policy.name,
        asked.kind,
        asked.namespace,
        asked.operation,
        "admission_request",
        str(answer.status),
    )


def _read_mode(policy: "StoredPolicy") -> str:
    """Whether anything of a policy enforces, where its kind can tell."""
    if policy.record is None or not policy.kind.read_mode:
        return "audit"
    return str(resolve(policy.kind.read_mode)(policy.record))
