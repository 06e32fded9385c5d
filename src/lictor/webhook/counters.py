"""What one process counts, and how long its rules take: plain tables, cheap to write.

A process writes its tables where others can read them (see `slots`); the process that serves the
metrics adds up the tables of all.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from lictor.core.errors import EvaluationError, LictorError
from lictor.core.model.program import Program, TimedAnswer
from lictor.core.model.request import Request
from lictor.core.model.result import Result, RuleType, Status
from lictor.kubernetes.metrics import RULE_SECONDS, label_policy
from lictor.kubernetes.stored_policy import StoredPolicy

log = logging.getLogger(__name__)

Labels = tuple[str, ...]

# Upper ends of the buckets, in seconds.
BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0,
)  # fmt: skip
SHORTEST = BUCKETS[0]
# Labels come from requests and policies: what is beyond this many of one metric is added up.
MAX_SERIES = 5000
_REST = "..."


class Histogram(msgspec.Struct):
    """How long something took, how often."""

    count: int = 0
    seconds: float = 0.0
    # One more than BUCKETS: the last is for all that took longer.
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        # Nearly always the first.
        self.buckets[0 if seconds <= SHORTEST else bisect_left(BUCKETS, seconds)] += 1

    def merge(self, other: "Histogram") -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Counters:
    """Counters, and histograms of durations, by metric and labels."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}
        self.gauges: dict[str, dict[Labels, float]] = {}

    def count(self, metric: str, labels: Labels = (), amount: float = 1) -> None:
        """Add to a counter."""
        table = self.counters.setdefault(metric, {})
        if labels not in table and len(table) >= MAX_SERIES:
            labels = _blur(labels)
        table[labels] = table.get(labels, 0) + amount

    def set_gauge(self, metric: str, value: float, labels: Labels = ()) -> None:
        """Set something that goes up and down; the gauges of all processes are added up."""
        self.gauges.setdefault(metric, {})[labels] = value

    def observe(self, metric: str, labels: Labels, seconds: float) -> None:
        """Add a duration to a histogram."""
        table = self.histograms.get(metric)
        found = table.get(labels) if table is not None else None
        if found is None:
            found = self.histogram(metric, labels)
        found.add(seconds)

    def histogram(self, metric: str, labels: Labels) -> Histogram:
        """The histogram to add a duration to."""
        table = self.histograms.setdefault(metric, {})
        found = table.get(labels)
        if found is None:
            if len(table) >= MAX_SERIES:
                labels = _blur(labels)
            found = table.setdefault(labels, Histogram())
        return found

    def merge(self, tables: "CounterTables") -> None:
        """Add what another process has counted."""
        for metric, labels, value in tables.counters:
            self.count(metric, labels, value)
        for metric, labels, value in tables.gauges:
            table = self.gauges.setdefault(metric, {})
            table[labels] = table.get(labels, 0) + value
        for metric, labels, histogram in tables.histograms:
            self.histogram(metric, labels).merge(histogram)

    def dump(self) -> bytes:
        """Everything, for another process."""
        return msgspec.msgpack.encode(
            CounterTables(
                list(_flatten(self.counters)),
                list(_flatten(self.gauges)),
                [(m, k, s) for m, table in self.histograms.items() for k, s in table.items()],
            )
        )


class CounterTables(msgspec.Struct, array_like=True):
    """A counters on its way between processes."""

    counters: list[tuple[str, Labels, float]]
    gauges: list[tuple[str, Labels, float]]
    histograms: list[tuple[str, Labels, Histogram]]


def read_tables(data: bytes) -> CounterTables | None:
    """What another process dumped; None where it was caught in the middle of writing."""
    try:
        return msgspec.msgpack.decode(data, type=CounterTables)
    except msgspec.DecodeError:
        return None


def _flatten(tables: dict[str, dict[Labels, float]]) -> Iterable[tuple[str, Labels, float]]:
    for metric, table in tables.items():
        for labels, value in table.items():
            yield metric, labels, value


def _blur(labels: Labels) -> Labels:
    return (_REST,) * len(labels)


# --- answers of rules, under the labels that Kyverno uses

RULE_TYPE_LABELS = {
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
        RULE_TYPE_LABELS[answer.type],
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
        policy.namespace,
        asked.kind,
        asked.namespace,
        asked.operation,
        "admission_request",
        str(answer.status),
    )


# Classes of requests that are counted separately; a forger could make more.
_MAX_LABELS = 5000


def instrument_rules(program: Program, metric: RuleMetric) -> Program:
    """The same program, whose rules are timed and cannot break each other."""
    policy = program.policy
    return replace(
        program,
        rules=tuple(
            replace(rule, timer=_Timer(metric, policy.key, rule.name)) for rule in program.rules
        ),
    )


def note_times(request: Request, timed: Sequence[TimedAnswer]) -> None:
    """Count the answers to a request: all at once, as this happens for every rule."""
    admission = request.admission or {}
    namespace = str(admission.get("namespace") or "")
    key = (request.kind.kind, namespace, request.operation.value, bool(admission.get("dryRun")))
    labels = _known.get(key) or _add_request_labels(key)
    # Only `instrument_rules` gives rules a timer.
    ours = cast("Sequence[tuple[_Timer, tuple[Result, ...], float]]", timed)
    for timer, answers, seconds in ours:
        known, known_labels, histogram = timer.found
        # Nearly always the same answer to the same kind of request.
        if answers is known and labels is known_labels and seconds <= SHORTEST:
            histogram.count += 1
            histogram.seconds += seconds
            histogram.buckets[0] += 1
        else:
            timer.add(labels, answers, seconds)


_NOTHING = (None, RequestLabels("", "", "", ""), Histogram())
_NO_ANSWER = (None, "", *_NOTHING[1:])


class _Timer:
    """Where the answers of one rule count; what was found last is at hand.

    Rules that pass give the very same answers again: to know them is to know where they count.
    """

    __slots__ = ("_metric", "_policy", "_rule", "found", "last")

    def __init__(self, metric: RuleMetric, policy: str, rule: str) -> None:
        self._metric = metric
        self._policy = policy
        self._rule = rule
        # Tuples, as threads share them. Of the very answers, and of others like them.
        self.found: tuple[tuple[Result, ...] | None, RequestLabels, Histogram] = _NOTHING
        self.last: tuple[Status | None, str, RequestLabels, Histogram] = _NO_ANSWER

    def add(self, labels: RequestLabels, answers: tuple[Result, ...], seconds: float) -> None:
        for answer in answers:
            histogram = self._find(labels, answer)
            histogram.add(seconds)
            # Objects are not kept from one request to the next.
            is_kept = len(answers) == 1 and answer.patched is None and not answer.generated
            self.found = (answers if is_kept else None, labels, histogram)
            self.last = (answer.status, answer.rule, labels, histogram)

    def explain(self, error: Exception) -> LictorError:
        """An internal error in one rule must not affect the verdicts of other policies."""
        facts = {"policy": self._policy, "rule": self._rule}
        log.error("rule broke", extra=facts, exc_info=error)
        return EvaluationError(f"this should not have happened ({type(error).__name__}: {error})")

    def _find(self, labels: RequestLabels, answer: Result) -> Histogram:
        status, rule, known_labels, histogram = self.last
        if status is answer.status and rule is answer.rule and labels is known_labels:
            return histogram
        return self._metric.find(labels, answer)


_known: dict[tuple[str, str, str, bool], RequestLabels] = {}


def _add_request_labels(key: tuple[str, str, str, bool]) -> RequestLabels:
    kind, namespace, operation, is_dry_run = key
    if len(_known) >= _MAX_LABELS:
        _known.clear()
    labels = RequestLabels(kind, namespace, operation.lower(), "true" if is_dry_run else "false")
    _known[key] = labels
    return labels
