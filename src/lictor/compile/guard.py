"""What stands before a rule's body: context, preconditions and exceptions, in that order."""

import msgspec

from lictor.evaluate.conditions import Conditions, ask
from lictor.evaluate.context import Enter
from lictor.evaluate.exemption import Exempt, skip_exempted
from lictor.evaluate.setting import Outcome, Setting
from lictor.model.program import Case, Check
from lictor.model.result import Result, Status


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
