"""Rules that measure their own duration, and whose bugs do not reach other rules."""

import logging
from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from lictor.core.errors import EvaluationError, LictorError
from lictor.core.model.program import Program, TimedAnswer
from lictor.core.model.request import Request
from lictor.core.model.result import Result, Status
from lictor.webhook.counters import SHORTEST, Histogram
from lictor.webhook.metrics import RequestLabels, RuleMetric

log = logging.getLogger(__name__)

# Classes of requests that are told apart; a forger could make more.
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
    labels = _find_request_labels(request)
    # Nobody else gives rules a timer.
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
        """A mistake of ours must not take other policies' verdicts with it."""
        facts = {"policy": self._policy, "rule": self._rule}
        log.error("rule broke", extra=facts, exc_info=error)
        return EvaluationError(f"this should not have happened ({type(error).__name__}: {error})")

    def _find(self, labels: RequestLabels, answer: Result) -> Histogram:
        status, rule, known_labels, histogram = self.last
        if status is answer.status and rule is answer.rule and labels is known_labels:
            return histogram
        return self._metric.find(labels, answer)


_known: dict[tuple[str, str, str, bool], RequestLabels] = {}


def _find_request_labels(request: Request) -> RequestLabels:
    admission = request.admission or {}
    namespace = str(admission.get("namespace") or "")
    key = (request.kind.kind, namespace, request.operation.value, bool(admission.get("dryRun")))
    labels = _known.get(key)
    if labels is None:
        if len(_known) >= _MAX_LABELS:
            _known.clear()
        kind, _, operation, dry = key
        labels = RequestLabels(kind, namespace, operation.lower(), "true" if dry else "false")
        _known[key] = labels
    return labels
