"""Rules that measure their own duration, and whose bugs do not reach other rules."""

import logging
import time

from msgspec.structs import replace

from lictor.errors import EvaluationError, LictorError, TooLargeError
from lictor.model.program import Case, CompiledRule, Program
from lictor.model.request import Request
from lictor.model.result import Result, Status
from lictor.serve.counters import SHORTEST, Histogram
from lictor.serve.metrics import RequestLabels, RuleMetric

log = logging.getLogger(__name__)

# Classes of requests that are told apart; a forger could make more.
_MAX_ASKED = 5000


def instrument_rules(program: Program, metric: RuleMetric) -> Program:
    """The same program, measured and fenced."""
    return replace(
        program,
        rules=tuple(_instrument(program.policy.key, rule, metric) for rule in program.rules),
    )


def _instrument(policy: str, rule: CompiledRule, metric: RuleMetric) -> CompiledRule:
    inner = rule.check
    meter = _Meter(metric)
    clock = time.perf_counter

    def check(case: Case) -> tuple[Result, ...]:
        began = clock()
        try:
            answers = inner(case)
        except (LictorError, RecursionError):
            raise
        except Exception as error:
            raise _describe(error, policy, rule.name) from error
        seconds = clock() - began
        request, asked = _Last.pair
        if request is not case.request:
            asked = _describe_asked(case.request)
        for answer in answers:
            # Nearly always the same answer to the same kind of request: asked first, as it is
            # asked for every rule.
            if (
                meter.asked is asked
                and meter.status is answer.status
                and meter.rule is answer.rule
                and seconds <= SHORTEST
            ):
                histogram = meter.histogram
                histogram.count += 1
                histogram.seconds += seconds
                histogram.buckets[0] += 1
            else:
                meter.find(asked, answer).add(seconds)
        return answers

    return replace(rule, check=check)


class _Meter:
    """Where the answers of one rule count; what was found last is at hand."""

    __slots__ = ("_metric", "asked", "histogram", "rule", "status")

    def __init__(self, metric: RuleMetric) -> None:
        self._metric = metric
        self.asked: RequestLabels | None = None
        self.status: Status | None = None
        self.rule = ""
        self.histogram = Histogram()

    def find(self, asked: RequestLabels, answer: Result) -> Histogram:
        histogram = self._metric.find(asked, answer)
        self.asked, self.status, self.rule = asked, answer.status, answer.rule
        self.histogram = histogram
        return histogram


class _Last:
    """The request that was described last: all its rules ask for the same."""

    pair: tuple[Request | None, RequestLabels] = (None, RequestLabels("", "", "", ""))


_known: dict[tuple[str, str, str, bool], RequestLabels] = {}


def _describe_asked(request: Request) -> RequestLabels:
    admission = request.admission or {}
    namespace = str(admission.get("namespace") or "")
    key = (request.kind.kind, namespace, request.operation.value, bool(admission.get("dryRun")))
    asked = _known.get(key)
    if asked is None:
        if len(_known) >= _MAX_ASKED:
            _known.clear()
        kind, _, operation, dry = key
        asked = RequestLabels(kind, namespace, operation.lower(), "true" if dry else "false")
        _known[key] = asked
    _Last.pair = (request, asked)
    return asked


def _describe(error: Exception, policy: str, rule: str) -> LictorError:
    if isinstance(error, MemoryError):
        return TooLargeError("out of memory")
    # A mistake of ours must not take other policies' verdicts with it.
    log.error("rule broke", extra={"policy": policy, "rule": rule}, exc_info=error)
    return EvaluationError(f"this should not have happened ({type(error).__name__}: {error})")
