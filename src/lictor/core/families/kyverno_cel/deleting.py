"""DeletingPolicy and NamespacedDeletingPolicy: what would be deleted, and when next."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from lictor.core.compile.context import CompileContext
from lictor.core.compile.selection import select_constrained
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import compile_exemptions, find_exceptions
from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.core.evaluate.scope import build_scope
from lictor.core.families.kind_facts import DeletionTargets
from lictor.core.families.kyverno_cel.records import DeletingPolicy
from lictor.core.families.registry import refer
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.schedule import compile_schedule
from lictor.core.model.cel_policy import DeletingSpec
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Case, CleanupProgram, Select
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef


def compile_deleting(policy: DeletingPolicy, context: CompileContext) -> CleanupProgram:
    """Turn a policy into a program; raise CompileError where it makes no sense."""
    around = context.cel
    ref = refer(policy)
    return CleanupProgram(
        policy=ref,
        next_run=compile_schedule(policy.spec.schedule),
        concerns=_compile_concern(policy.spec, ref, around),
        propagation=policy.spec.deletion_propagation_policy or "",
    )


def list_deletion_targets(policy: DeletingPolicy) -> DeletionTargets:
    """The resource rules of a policy, and the labels that objects must have."""
    constraints = policy.spec.match_constraints
    if constraints is None:
        return DeletionTargets()
    return DeletionTargets(rules=constraints.resource_rules, selector=constraints.object_selector)


def _compile_concern(
    spec: DeletingSpec, ref: PolicyRef, around: CelContext
) -> Callable[[Request], bool]:
    select = _select(spec.match_constraints, ref, around)
    plain = ExpressionCompiler(
        kyverno_environment("deleting", is_namespaced=bool(ref.namespace)),
        around.host_functions(ref.namespace),
        watch=around.watch_rule(""),
    )
    language = plain.declare(spec.variables)
    holds = compile_match_conditions(spec.conditions, language, where="conditions")
    exemptions = compile_exemptions(around.exceptions, ref, plain)
    view = around.viewpoint.view(_list_texts(spec))

    def concerns(request: Request) -> bool:
        # A bare payload has no kind: only the conditions are evaluated.
        if request.kind.kind:
            matches = select(request.kind, request.subresource, request.operation)
            if matches is None or not matches(request):
                return False
        # The object is deleted, independently of the operation.
        case = Case(replace(request, object=request.resource), build_scope)
        activation = view(case)
        if exemptions and find_exceptions(exemptions, activation):
            return False
        return holds is None or holds(activation)

    return concerns


def _select(constraints: MatchResources | None, ref: PolicyRef, around: CelContext) -> Select:
    """The constraints without their operations: a sweep is none."""
    if constraints is not None:
        rules = tuple(replace(rule, operations=("*",)) for rule in constraints.resource_rules)
        constraints = replace(constraints, resource_rules=rules)
    return select_constrained(constraints, ref, around)


def _list_texts(spec: DeletingSpec) -> Iterator[str]:
    for condition in spec.conditions:
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
