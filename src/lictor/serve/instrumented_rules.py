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
        for answer in answers:
            # Nearly always the same answer to the same kind of request: this runs for every rule.
            if (
                last.labels is labels
                and last.status is answer.status
                and last.rule is answer.rule
                and seconds <= SHORTEST
            ):
                histogram = last.histogram
                histogram.count += 1
                histogram.seconds += seconds
                histogram.buckets[0] += 1
            else:
                last.find(labels, answer).add(seconds)
        return answers

    return replace(rule, check=check)


class _LastObservation:
    """Where the answers of one rule count; what was found last is at hand."""

    __slots__ = ("_metric", "histogram", "labels", "rule", "status")

    def __init__(self, metric: RuleMetric) -> None:
        self._metric = metric
        self.labels: RequestLabels | None = None
        self.status: Status | None = None
        self.rule = ""
        self.histogram = Histogram()

    def find(self, labels: RequestLabels, answer: Result) -> Histogram:
        histogram = self._metric.find(labels, answer)
        self.labels, self.status, self.rule = labels, answer.status, answer.rule
        self.histogram = histogram
        return histogram


class _LastRequest:
    """The request that was described last: all its rules ask for the same."""

    pair: tuple[Request | None, RequestLabels] = (None, RequestLabels("", "", "", ""))


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
