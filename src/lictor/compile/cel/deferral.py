"""Compiling when first needed, and answering with the reason where a policy does not compile."""

from collections.abc import Callable

from msgspec.structs import replace

from lictor.compile.cel.selection import select_all
from lictor.errors import CompileError
from lictor.model.program import Bounds, Case, Check, CompiledRule, Phase, Select
from lictor.model.result import Action, Result


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
        return CompiledRule(name, phase, select_all, _failing(error), action)


def bind_rule(rule: CompiledRule, namespace: str) -> CompiledRule:
    """The rule with the namespace that `asked_within` binds its selection to, for the index."""
    if not namespace or rule.select is select_all:
        return rule
    return replace(rule, bounds=Bounds(asked_in=namespace))


def build_or_fail(build: Callable[[], Check]) -> Check:
    """The check, or one that answers every request with what is wrong with the policy."""
    try:
        return build()
    except CompileError as error:
        return _failing(error)


def build_when_used(build: Callable[[], Check]) -> Check:
    """The check, compiled for the first request: most policies never meet a CronJob."""
    made: list[Check] = []

    def check(case: Case) -> tuple[Result, ...]:
        if not made:
            made.append(build_or_fail(build))
        return made[0](case)

    return check


def _failing(error: CompileError) -> Check:
    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return check
