"""Rules that measure their own duration, and whose bugs do not reach other rules."""

import logging
import time

from msgspec.structs import replace

from lictor.engine import RULE_TYPES
from lictor.errors import (
    EvaluationError,
    LictorError,
    OtherThreadError,
    SlowRequestError,
    TooLargeError,
)
from lictor.model.program import Case, CompiledRule, Program
from lictor.model.request import Request
from lictor.model.result import PolicyRef, Result, Status
from lictor.serve.counters import SHORTEST, Histogram
from lictor.serve.metrics import RequestLabels, RuleMetric

log = logging.getLogger(__name__)

# Classes of requests that are told apart; a forger could make more.
_MAX_LABELS = 5000


def instrument_rules(program: Program, metric: RuleMetric) -> Program:
    """The same program, whose rules are timed and cannot break each other."""
    return replace(
        program,
        rules=tuple(_instrument(program.policy, rule, metric) for rule in program.rules),
    )


def _instrument(policy: PolicyRef, rule: CompiledRule, metric: RuleMetric) -> CompiledRule:
    inner = rule.check
    # What the engine makes of an exception.
    undecided = Result(policy, rule.name, RULE_TYPES[rule.phase], Status.ERROR)
    last = _LastObservation(metric)
    clock = time.perf_counter

    def check(case: Case) -> tuple[Result, ...]:
        began = clock()
        try:
            answers = inner(case)
        except (SlowRequestError, OtherThreadError):
            # Asked again elsewhere: that answer counts.
            raise
        except Exception as error:
            metric.find(_find_request_labels(case.request), undecided).add(clock() - began)
            if isinstance(error, LictorError | RecursionError):
                raise
            raise _describe(error, policy.key, rule.name) from error
        seconds = clock() - began
        request, labels = _LastRequest.pair
        if request is not case.request:
            labels = _find_request_labels(case.request)
        known, known_labels, histogram = last.found
        # Nearly always the same answer to the same kind of request: this runs for every rule.
        if answers is known and labels is known_labels and seconds <= SHORTEST:
            histogram.count += 1
            histogram.seconds += seconds
            histogram.buckets[0] += 1
        else:
            last.add(labels, answers, seconds)
        return answers

    return replace(rule, check=check)


_NOTHING = (None, RequestLabels("", "", "", ""), Histogram())


class _LastObservation:
    """Where the answers of one rule count; what was found last is at hand.

    Rules that pass give the very same answers again: to know them is to know where they count.
    """

    __slots__ = ("_metric", "found", "last")

    def __init__(self, metric: RuleMetric) -> None:
        self._metric = metric
        # Tuples, as threads share them. Of the very answers, and of others like them.
        self.found: tuple[tuple[Result, ...] | None, RequestLabels, Histogram] = _NOTHING
        self.last: tuple[Status | None, str, RequestLabels, Histogram] = (None, "", *_NOTHING[1:])

    def add(self, labels: RequestLabels, answers: tuple[Result, ...], seconds: float) -> None:
        for answer in answers:
            histogram = self._find(labels, answer)
            histogram.add(seconds)
            # Objects are not kept from one request to the next.
            is_kept = len(answers) == 1 and answer.patched is None and not answer.generated
            self.found = (answers if is_kept else None, labels, histogram)
            self.last = (answer.status, answer.rule, labels, histogram)

    def _find(self, labels: RequestLabels, answer: Result) -> Histogram:
        status, rule, known_labels, histogram = self.last
        if status is answer.status and rule is answer.rule and labels is known_labels:
            return histogram
        return self._metric.find(labels, answer)


class _LastRequest:
    """The request that was described last: all its rules ask for the same."""

    pair: tuple[Request | None, RequestLabels] = (None, _NOTHING[1])


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
    _LastRequest.pair = (request, labels)
    return labels


def _describe(error: Exception, policy: str, rule: str) -> LictorError:
    if isinstance(error, MemoryError):
        return TooLargeError("out of memory")
    # A mistake of ours must not take other policies' verdicts with it.
    log.error("rule broke", extra={"policy": policy, "rule": rule}, exc_info=error)
    return EvaluationError(f"this should not have happened ({type(error).__name__}: {error})")
