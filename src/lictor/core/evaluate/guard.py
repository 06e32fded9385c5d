"""Wraps a rule's check: context, preconditions, exceptions, existing violations."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import EvaluationError, LictorError
from lictor.core.evaluate.conditions import Conditions, compile_conditions
from lictor.core.evaluate.context import Enter
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.match.classic import EXCEPTION, compile_filter
from lictor.core.match.combine import remember
from lictor.core.model.exception import PolicyException
from lictor.core.model.policy import PodSecurityStandard
from lictor.core.model.program import Case, Check, Matcher, UpdateCheck
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.core.model.result import ExceptionRef, Result, Status

_NOBODY = Caller("kyverno:kyverno-invalid-controller", "kyverno:invaliduid")
_SKIPPED = "skipping the rule evaluation as pre-existing violations are allowed"
# Values given explicitly that describe the update, not the old object.
_OF_THE_UPDATE = ("request.object", "request.oldObject", "request.operation")


def allow_existing(check: Check, matches: Matcher) -> Check:
    """The check, except for updates of objects that already violated the rule.

    `matches` is evaluated on the old object without a caller or subresource: a rule about callers
    or subresources only never matches it, and stays strict.
    """

    def relaxed(case: Case) -> tuple[Result, ...]:
        results = check(case)
        request = case.request
        if request.old_object is None or not any(
            result.status is Status.FAIL for result in results
        ):
            return results
        if not matches(_as_stored(request)) or not _was_broken(check, case):
            return results
        return (replace(results[0], status=Status.SKIP, message=_SKIPPED, failure=None),)

    return UpdateCheck(relaxed, check)


def _was_broken(check: Check, case: Case) -> bool:
    try:
        results = check(Case(_as_created(case.request), case.builder))
    except LictorError:
        # It is unknown whether the old object complied: the violation stands.
        return False
    return any(result.status is Status.FAIL for result in results)


def _as_stored(request: Request) -> Request:
    """The old object as such, without a known caller."""
    old = request.old_object or {}
    kind = GroupVersionKind.of(str(old.get("apiVersion") or ""), str(old.get("kind") or ""))
    return replace(
        request,
        # The body of a subresource (a Scale) is not of its owner's kind.
        kind=kind if kind.kind else request.kind,
        object=old,
        old_object=None,
        operation=Operation.CREATE,
        subresource="",
        caller=_NOBODY,
    )


def _as_created(request: Request) -> Request:
    """The old object as if the same caller created it now."""
    admission = request.admission
    if admission is not None:
        admission = {**admission, "oldObject": None}
    return replace(
        request,
        object=request.old_object,
        old_object=None,
        operation=Operation.CREATE,
        variables={
            name: value
            for name, value in request.variables.items()
            if not name.startswith(_OF_THE_UPDATE)
        },
        admission=admission,
    )


class Exempted(msgspec.Struct, frozen=True):
    """An exception that applies; with `pod_security`, only from those controls."""

    ref: ExceptionRef
    pod_security: tuple[PodSecurityStandard, ...] = ()


Exempt: TypeAlias = Callable[[Case], tuple[Exempted, ...]]


def skip_exempted(case: Case, found: tuple[Exempted, ...], setting: RuleContext) -> Result:
    """The result of a rule from which the case is exempt."""
    names = ", ".join(each.ref.key for each in found)
    outcome = RuleOutcome(Status.SKIP, f"rule is skipped due to policy exceptions {names}")
    return setting.result(case, outcome, exceptions=tuple(each.ref for each in found))


def compile_exceptions(
    exceptions: Iterable[PolicyException], policy: str, rule: str, expressions: Expressions
) -> Exempt | None:
    """The exceptions that name this rule, joined; None if there are none."""
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
                return None  # an exception that fails with an error exempts nothing
        return made

    return exempt


class RuleGuard(msgspec.Struct, frozen=True):
    """The guards of a rule; None for those it does not have."""

    enter: Enter | None
    asks: Conditions | None
    exempt: Exempt | None


def guard(check: Check, parts: RuleGuard, setting: RuleContext) -> Check:
    """The check behind its guards; the check itself if there are none, to save a call."""
    if parts.exempt is not None:
        check = _guard_exceptions(check, parts.exempt, setting)
    if parts.asks is not None:
        check = _guard_preconditions(check, parts.asks, setting)
    if parts.enter is not None:
        check = _guard_context(check, parts.enter)
    return check


def _guard_context(check: Check, enter: Enter) -> Check:
    return lambda case: check(case.with_scope(enter(case.scope)))


def _guard_preconditions(check: Check, asks: Conditions, setting: RuleContext) -> Check:
    unmet = setting.fixed(Status.SKIP, "preconditions not met")

    def guarded(case: Case) -> tuple[Result, ...]:
        try:
            holds, text = asks(case.scope)
        except EvaluationError as error:
            raise EvaluationError(f"failed to evaluate preconditions: {error}") from error
        if holds:
            return check(case)
        if not text and unmet is not None:
            return unmet
        skipped = "; ".join(filter(None, ("preconditions not met", text)))
        return (setting.result(case, RuleOutcome(Status.SKIP, skipped)),)

    return guarded


def _guard_exceptions(check: Check, exempt: Exempt, setting: RuleContext) -> Check:
    def guarded(case: Case) -> tuple[Result, ...]:
        found = exempt(case)
        return (skip_exempted(case, found, setting),) if found else check(case)

    return guarded
