"""Which requests Kyverno's CEL policies match, and the action on failure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lictor.core.lang.watch import watch_nothing
from lictor.core.match.combine import remember, requested_within
from lictor.core.match.constraints import compile_constraints, find_labelled_namespaces
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Bounds, Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Action, PolicyRef

if TYPE_CHECKING:
    from lictor.core.evaluate.cel.context import CelContext


def select_constrained(
    constraints: MatchResources | None, ref: PolicyRef, around: "CelContext"
) -> Select:
    """The requests that the constraints match; without constraints, none."""
    if constraints is None:
        return select_none
    watch = around.watch_rule("")
    select_any = compile_constraints(constraints, around.resource_names, watch=watch)

    def select(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        if not kind.is_bookkeeping:
            return select_any(kind, subresource, operation)
        naming = _without_wildcards(constraints)
        if not naming.resource_rules:
            return None
        select_named = compile_constraints(naming, around.resource_names, watch=watch)
        return select_named(kind, subresource, operation)

    return remember(requested_within(ref.namespace, select) if ref.namespace else select)


def _without_wildcards(constraints: MatchResources) -> MatchResources:
    """The constraints for Events, Leases and reports, which wildcards do not match."""
    rules = (
        replace(rule, resources=tuple(name for name in rule.resources if name[:1] != "*"))
        for rule in constraints.resource_rules
    )
    return replace(constraints, resource_rules=tuple(rule for rule in rules if rule.resources))


def bound_constrained(
    constraints: MatchResources | None, ref: PolicyRef, around: "CelContext"
) -> Bounds:
    """Bounds outside of which `select_constrained` matches nothing."""
    if around.watch_rule is not watch_nothing or constraints is None:
        # When traced, every rule must report why it does not match.
        return Bounds()
    labelled = find_labelled_namespaces(constraints, around.resource_names)
    return Bounds(asked_in=ref.namespace, labelled=labelled)


def select_all(_kind: GroupVersionKind, _subresource: str, _operation: Operation) -> Matcher:
    """Everything: for policies about any JSON."""
    return _always


def select_none(_kind: GroupVersionKind, _subresource: str, _operation: Operation) -> None:
    """Nothing."""


def choose_action(actions: Sequence[str]) -> Action:
    """The action on failure; default: deny."""
    return Action.ENFORCE if not actions or "Deny" in actions else Action.AUDIT


def _always(_: Request) -> bool:
    return True
