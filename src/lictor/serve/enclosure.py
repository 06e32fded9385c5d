"""Each rule in its enclosure: its answers are timed, and what breaks in it stays in it."""

import logging
import time

from msgspec.structs import replace

from lictor.errors import EvaluationError, LictorError, TooLargeError
from lictor.model.program import Case, CompiledRule, Program
from lictor.model.request import Request
from lictor.model.result import Result, Status
from lictor.serve.book import SHORTEST, Spread
from lictor.serve.instruments import Asked, Gauge

log = logging.getLogger(__name__)

# Classes of requests that are told apart; a forger could make more.
_MAX_ASKED = 5000


def enclose_rules(program: Program, gauge: Gauge) -> Program:
    """The same program, measured and fenced."""
    return replace(
        program, rules=tuple(_enclose(program.policy.key, rule, gauge) for rule in program.rules)
    )


def _enclose(policy: str, rule: CompiledRule, gauge: Gauge) -> CompiledRule:
    inner = rule.check
    meter = _Meter(gauge)
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
                spread = meter.spread
                spread.count += 1
                spread.seconds += seconds
                spread.buckets[0] += 1
            else:
                meter.find(asked, answer).add(seconds)
        return answers

    return replace(rule, check=check)


class _Meter:
    """Where the answers of one rule count; what was found last is at hand."""

    __slots__ = ("_gauge", "asked", "rule", "spread", "status")

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self.asked: Asked | None = None
        self.status: Status | None = None
        self.rule = ""
        self.spread = Spread()

    def find(self, asked: Asked, answer: Result) -> Spread:
        spread = self._gauge.find(asked, answer)
        self.asked, self.status, self.rule = asked, answer.status, answer.rule
        self.spread = spread
        return spread


class _Last:
    """The request that was described last: all its rules ask for the same."""

    pair: tuple[Request | None, Asked] = (None, Asked("", "", "", ""))


_known: dict[tuple[str, str, str, bool], Asked] = {}


def _describe_asked(request: Request) -> Asked:
    admission = request.admission or {}
    namespace = str(admission.get("namespace") or "")
    key = (request.kind.kind, namespace, request.operation.value, bool(admission.get("dryRun")))
    asked = _known.get(key)
    if asked is None:
        if len(_known) >= _MAX_ASKED:
            _known.clear()
        kind, _, operation, dry = key
        asked = Asked(kind, namespace, operation.lower(), "true" if dry else "false")
        _known[key] = asked
    _Last.pair = (request, asked)
    return asked


def _describe(error: Exception, policy: str, rule: str) -> LictorError:
    if isinstance(error, MemoryError):
        return TooLargeError("out of memory")
    # A mistake of ours must not take other policies' verdicts with it.
    log.error("rule broke", extra={"policy": policy, "rule": rule}, exc_info=error)
    return EvaluationError(f"this should not have happened ({type(error).__name__}: {error})")
