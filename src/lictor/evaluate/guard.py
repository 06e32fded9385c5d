"""What stands before a rule's body: context, preconditions and exceptions, in that order."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from lictor.errors import EvaluationError
from lictor.evaluate.conditions import Conditions, ask, compile_conditions
from lictor.evaluate.context import Enter
from lictor.evaluate.expressions import Expressions
from lictor.evaluate.setting import Outcome, Setting
from lictor.lang.wildcard import compile_wildcard
from lictor.match.classic import EXCEPTION, compile_filter
from lictor.match.combine import remember
from lictor.model.exception import PolicyException
from lictor.model.policy import PodSecurityStandard
from lictor.model.program import Case, Check
from lictor.model.result import ExceptionRef, Result, Status


class Exempted(msgspec.Struct, frozen=True):
    """An exception that holds; with `pod_security`, only from those controls."""

    ref: ExceptionRef
    pod_security: tuple[PodSecurityStandard, ...] = ()


Exempt: TypeAlias = Callable[[Case], tuple[Exempted, ...]]


def skip_exempted(case: Case, found: tuple[Exempted, ...], setting: Setting) -> Result:
    """The answer of a rule from which the case is freed."""
    names = ", ".join(each.ref.key for each in found)
    outcome = Outcome(Status.SKIP, f"rule is skipped due to policy exceptions {names}")
    return setting.result(case, outcome, exceptions=tuple(each.ref for each in found))


def compile_exceptions(
    exceptions: Iterable[PolicyException], policy: str, rule: str, expressions: Expressions
) -> Exempt | None:
    """The exceptions that name this rule, joined; None where there are none."""
    chosen = [e for e in exceptions if _names(e, policy, rule)]
    if not chosen:
        return None
    tests = [_compile_one(exception, expressions) for exception in chosen]
    return lambda case: tuple(made for test in tests if (made := test(case)) is not None)


def _names(exception: PolicyException, policy: str, rule: str) -> bool:
    return any(
        entry.policy_name == policy and _fits_any(entry.rule_names, rule)
        for entry in exception.spec.exceptions
    )


def _fits_any(patterns: Sequence[str], rule: str) -> bool:
    return any(compile_wildcard(pattern)(rule) for pattern in patterns)


def _compile_one(
    exception: PolicyException, expressions: Expressions
) -> Callable[[Case], Exempted | None]:
    select = remember(compile_filter(exception.spec.match, EXCEPTION))
    asks: Conditions | None = compile_conditions(
        exception.spec.conditions, expressions, where="exception.conditions"
    )
    metadata = exception.metadata
    made = Exempted(ExceptionRef(metadata.name, metadata.namespace), exception.spec.pod_security)

    def exempt(case: Case) -> Exempted | None:
        request = case.request
        matches = select(request.kind, request.subresource, request.operation)
        if matches is None or not matches(request):
            return None
        if asks is not None:
            try:
                if not asks(case.scope)[0]:
                    return None
            except EvaluationError:
                return None  # an exception that cannot be decided frees nobody
        return made

    return exempt


class Guard(msgspec.Struct, frozen=True):
    """The parts that are there; None for those that are not."""

    enter: Enter | None
    asks: Conditions | None
    exempt: Exempt | None


def guard(check: Check, parts: Guard, setting: Setting) -> Check:
    """The check behind its guards; the very same where there are none, to save a call."""
    if parts.exempt is not None:
        check = _guard_exceptions(check, parts.exempt, setting)
    if parts.asks is not None:
        check = _guard_preconditions(check, parts.asks, setting)
    if parts.enter is not None:
        check = _guard_context(check, parts.enter)
    return check


def _guard_context(check: Check, enter: Enter) -> Check:
    return lambda case: check(case.with_scope(enter(case.scope)))


def _guard_preconditions(check: Check, asks: Conditions, setting: Setting) -> Check:
    unmet = setting.fixed(Status.SKIP, "preconditions not met")

    def guarded(case: Case) -> tuple[Result, ...]:
        holds, text = ask(asks, case.scope, "failed to evaluate preconditions")
        if holds:
            return check(case)
        if not text and unmet is not None:
            return unmet
        skipped = "; ".join(filter(None, ("preconditions not met", text)))
        return (setting.result(case, Outcome(Status.SKIP, skipped)),)

    return guarded


def _guard_exceptions(check: Check, exempt: Exempt, setting: Setting) -> Check:
    def guarded(case: Case) -> tuple[Result, ...]:
        found = exempt(case)
        return (skip_exempted(case, found, setting),) if found else check(case)

    return guarded
