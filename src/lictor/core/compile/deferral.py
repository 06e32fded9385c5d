"""Defers compilation to the first use, and turns compile errors into error results."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lictor.core.compile.selection import select_all
from lictor.core.errors import CompileError, DeadlineError, LictorError, SlowRequestError
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

if TYPE_CHECKING:
    from lictor.core.evaluate.cel.context import CelContext


def make_rule(
    name: str,
    phase: Phase,
    action: Action,
    *,
    select: Callable[[], Select],
    check: Callable[[], Check],
    applies: Callable[[], Check] | None = None,
) -> CompiledRule:
    """The rule, or one that returns the error of its constraints for every request."""
    asks = build_when_used(applies) if applies is not None else None
    try:
        return CompiledRule(name, phase, select(), build_or_fail(check), action, applies=asks)
    except CompileError as error:
        return CompiledRule(name, phase, select_all, fail_always(error), action)


def bind_rule(rule: CompiledRule, bounds: Bounds) -> CompiledRule:
    """The rule with the bounds of its selection, for the index."""
    # The error of an invalid policy is returned for every request that it may match.
    if rule.select is select_all or bounds == Bounds():
        return rule
    return replace(rule, bounds=bounds)


def put_off(build: Callable[[], Check], around: "CelContext") -> Callable[[], Check]:
    """The same builder, or one that defers the work if most checks are never used."""
    return (lambda: build_when_used(build)) if around.is_lazy else build


def build_or_fail(build: Callable[[], Check]) -> Check:
    """The check, or one that returns the policy's error for every request."""
    try:
        return build()
    except (DeadlineError, SlowRequestError):
        # The deadline of the request has passed; that is no error of the policy.
        raise
    except LictorError as error:
        return fail_always(error)


def defer_check(compile_check: Callable[..., Check], *arguments: Any) -> Check:
    """A check that is compiled when first used; the only place, with two others here, that defers.

    The arguments are kept instead of a closure, which needs more memory.
    """
    return DeferredCheck(compile_check, *arguments)


def wrap_check(check: Check, wrap: Callable[[Check], Check]) -> Check:
    """A check with something around it; if it is not compiled yet, it stays so."""
    if isinstance(check, DeferredCheck):
        return DeferredCheck(lambda: wrap(check.resolve()))
    return wrap(check)


def build_when_used(build: Callable[[], Check]) -> Check:
    """The check, compiled for the first request: most policies never see a CronJob."""
    return DeferredCheck(partial(build_or_fail, build))


def fail_always(error: LictorError) -> Check:
    """A check that raises the error for every case."""

    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return check
