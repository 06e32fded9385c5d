"""CleanupPolicy and ClusterCleanupPolicy: what would be deleted, and when next."""

from collections.abc import Callable

from lictor.core.compile.context import CompileContext
from lictor.core.evaluate.conditions import compile_conditions, evaluate_conditions
from lictor.core.evaluate.context import compile_context
from lictor.core.evaluate.rule_context import RuleContext
from lictor.core.evaluate.scope import build_scope
from lictor.core.families.classic.records import CleanupPolicy
from lictor.core.families.kind_facts import DeletionTargets
from lictor.core.lang.schedule import compile_schedule
from lictor.core.match.classic import CLEANUP, compile_filter
from lictor.core.match.combine import remember, within
from lictor.core.model.program import CleanupProgram, Select
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import PolicyRef, RuleType


def compile_cleanup(policy: CleanupPolicy, context: CompileContext) -> CleanupProgram:
    """Turn a cleanup policy into a program; raise CompileError where it makes no sense."""
    ref = PolicyRef(
        name=policy.metadata.name,
        namespace=policy.metadata.namespace if policy.kind == "CleanupPolicy" else "",
        kind=policy.kind,
        api_version=policy.api_version,
        annotations=policy.metadata.annotations,
        labels=policy.metadata.labels,
    )
    return CleanupProgram(
        policy=ref,
        next_run=compile_schedule(policy.spec.schedule),
        concerns=_compile_concern(policy, ref, context),
        propagation=policy.spec.deletion_propagation_policy or "",
    )


def list_deletion_targets(policy: CleanupPolicy) -> DeletionTargets:
    """Every kind that a policy names, with the names of objects that belong to it."""
    match = policy.spec.match
    described = (*(each.resources for each in (*match.any, *match.all)), match.resources)
    return DeletionTargets(
        kinds=tuple(
            (kind, (*each.names, *((each.name,) if each.name else ())))
            for each in described
            for kind in each.kinds
        )
    )


def _compile_concern(
    policy: CleanupPolicy, ref: PolicyRef, context: CompileContext
) -> Callable[[Request], bool]:
    setting = RuleContext(
        policy=ref,
        rule="",
        type=RuleType.CLEANUP,
        expressions=context.expressions,
        lookups=context.lookups,
        properties=context.expressions.document({}),
    )
    wanted = _bind(remember(compile_filter(policy.spec.match, CLEANUP)), ref)
    spared = (
        None
        if policy.spec.exclude is None
        else remember(compile_filter(policy.spec.exclude, CLEANUP, where="exclude"))
    )
    enter = compile_context(policy.spec.context, setting)
    asks = compile_conditions(policy.spec.conditions, context.expressions, where="conditions")

    def concerns(request: Request) -> bool:
        if not _selects(wanted, request) or (spared is not None and _selects(spared, request)):
            return False
        if asks is None:
            return True
        scope = build_scope(request).child(target=request.resource)
        return evaluate_conditions(
            asks, enter(scope) if enter is not None else scope, "conditions"
        )[0]

    return concerns


def _bind(select: Select, ref: PolicyRef) -> Select:
    return within(ref.namespace, select) if ref.namespace else select


def _selects(select: Select, request: Request) -> bool:
    matches = select(request.kind, request.subresource, Operation.DELETE)
    return matches is not None and matches(request)
