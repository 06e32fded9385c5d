"""What is measured of admission, under the names and labels that Kyverno uses."""

from collections.abc import Callable, Iterable, Iterator

from lictor.core.engine import RULE_TYPES
from lictor.core.model.program import Program
from lictor.kubernetes.metrics import (
    HTTP_REQUESTS,
    HTTP_SECONDS,
    KIND_RESULTS,
    METRICS,
    REQUESTS,
    REVIEW_SECONDS,
    RULE_RESULTS,
    RULE_SECONDS,
    MetricType,
    label_policy,
)
from lictor.kubernetes.stored_policy import StoredPolicy, is_ready
from lictor.webhook.counters import RULE_TYPE_LABELS, Counters, Labels

# What is timed each time that it is counted: its number follows from the durations.
TIMED_ONCE = {
    REVIEW_SECONDS: REQUESTS,
    HTTP_SECONDS: HTTP_REQUESTS,
    RULE_SECONDS: RULE_RESULTS,
    **KIND_RESULTS,
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
        # Policies from files have no status: they are evaluated as soon as they can be read.
        ready = policy.record is not None if not policy.uid else is_ready(policy.document)
        rules = {
            (rule.name, RULE_TYPE_LABELS[RULE_TYPES[rule.phase]])
            for program in programs(policy)
            for rule in program.rules
        }
        for name, kind in sorted(rules) or (("", ""),):
            yield (*label_policy(policy), name, kind, "true" if ready else "false")
