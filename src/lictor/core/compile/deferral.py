"""Compiling when first needed, and answering with the reason where a policy does not compile."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from lictor.core.compile.selection import select_all
from lictor.core.errors import CompileError, DeadlineError, LictorError, SlowRequestError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.model.program import (
    Bounds,
    Case,
    Check,
    CompiledRule,
    DeferredCheck,
    Phase,
    Select,
)
from lictor.core.model.result import Action, Result


def make_rule(
    name: str,
    phase: Phase,
    action: Action,
    *,
    select: Callable[[], Select],
    check: Callable[[], Check],
    applies: Callable[[], Check] | None = None,
) -> CompiledRule:
    """The rule, or one that answers every request with what is wrong with its constraints."""
    asks = build_when_used(applies) if applies is not None else None
    try:
        return CompiledRule(name, phase, select(), build_or_fail(check), action, applies=asks)
    except CompileError as error:
        return CompiledRule(name, phase, select_all, fail_always(error), action)


def bind_rule(rule: CompiledRule, bounds: Bounds) -> CompiledRule:
    """The rule with what its selection is bound to, for the index."""
    # What is wrong with a policy is told to everyone whom it might concern.
    if rule.select is select_all or bounds == Bounds():
        return rule
    return replace(rule, bounds=bounds)


def put_off(build: Callable[[], Check], around: CelContext) -> Callable[[], Check]:
    """The same builder; where most checks are never asked, one that puts the work off."""
    return (lambda: build_when_used(build)) if around.is_lazy else build


def build_or_fail(build: Callable[[], Check]) -> Check:
    """The check, or one that answers every request with what is wrong with the policy."""
    try:
        return build()
    except (DeadlineError, SlowRequestError):
        # Whoever waits for it has no more time; that says nothing about the policy.
        raise
    except LictorError as error:
        return fail_always(error)


def build_when_used(build: Callable[[], Check]) -> Check:
    """The check, compiled for the first request: most policies never meet a CronJob."""
    return DeferredCheck(partial(build_or_fail, build))


def fail_always(error: LictorError) -> Check:
    """A check that raises the error for every case."""

    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return check
