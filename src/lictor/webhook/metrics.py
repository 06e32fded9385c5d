"""What is measured of admission, under the names and labels that Kyverno uses."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from lictor.core.engine import RULE_TYPES
from lictor.core.model.program import Program
from lictor.core.model.result import Result, RuleType
from lictor.kubernetes.metrics import (
    HTTP_REQUESTS,
    HTTP_SECONDS,
    METRICS,
    REQUESTS,
    REVIEW_SECONDS,
    RULE_RESULTS,
    RULE_SECONDS,
    MetricType,
    label_policy,
)
from lictor.kubernetes.stored_policy import StoredPolicy, is_ready
from lictor.webhook.counters import Counters, Histogram, Labels

# What is timed each time that it is counted: its number follows from the durations.
TIMED_ONCE = {
    REVIEW_SECONDS: REQUESTS,
    HTTP_SECONDS: HTTP_REQUESTS,
    RULE_SECONDS: RULE_RESULTS,
}
_RULE_TYPES = {
    RuleType.VALIDATION: "validate",
    RuleType.MUTATION: "mutate",
    RuleType.GENERATION: "generate",
    RuleType.IMAGE_VERIFY: "imageVerify",
    RuleType.CLEANUP: "-",
}


def show_counters(counters: Counters) -> None:
    """Begin at zero what may never happen, so that its first time is an increase."""
    for metric in METRICS.values():
        if metric.type is MetricType.COUNTER:
            for value in metric.values:
                counters.count(metric.name, (value,), 0)


def list_rules(
    policies: Iterable[StoredPolicy], programs: Callable[[StoredPolicy], tuple[Program, ...]]
) -> Iterator[Labels]:
    """The labels of every rule of every policy; of a policy without rules, those of itself."""
    for policy in policies:
        # Policies from files have no status: they are asked as soon as they can be read.
        ready = policy.record is not None if not policy.uid else is_ready(policy.document)
        rules = {
            (rule.name, _RULE_TYPES[RULE_TYPES[rule.phase]])
            for program in programs(policy)
            for rule in program.rules
        }
        for name, kind in sorted(rules) or (("", ""),):
            yield (*label_policy(policy), name, kind, "true" if ready else "false")


class RequestLabels(msgspec.Struct, frozen=True):
    """What of a request becomes labels."""

    kind: str
    namespace: str
    operation: str
    dry_run: str


class RuleMetric:
    """Finds the histogram that an answer of one policy counts in."""

    def __init__(self, counters: Counters, policy: StoredPolicy) -> None:
        self._counters = counters
        self._policy = policy
        own = policy.kind.duration_metric
        self._label = _label_policy if own else _label_rule
        self._metric = own or RULE_SECONDS

    def find(self, asked: RequestLabels, answer: Result) -> Histogram:
        """The histogram of answers like this to requests like that."""
        return self._counters.histogram(self._metric, self._label(self._policy, asked, answer))


def _label_rule(policy: StoredPolicy, asked: RequestLabels, answer: Result) -> Labels:
    return (
        *label_policy(policy),
        answer.rule,
        _RULE_TYPES[answer.type],
        str(answer.status),
        asked.kind,
        asked.namespace,
        asked.operation,
        asked.dry_run,
        "admission_request",
    )


def _label_policy(policy: StoredPolicy, asked: RequestLabels, answer: Result) -> Labels:
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
