"""Which requests does a policy of Kubernetes itself concern, together with one of its bindings?"""

from msgspec.structs import replace

from lictor.core.compile.selection import select_none
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.expressions import ExpressionCompiler
from lictor.core.families.admission_policy.records import AdmissionPolicy, Binding
from lictor.core.match.combine import remember
from lictor.core.match.constraints import compile_constraints, is_exempt
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation


def select_bound(
    constraints: MatchResources | None,
    binding: Binding | None,
    name: str,
    around: CelContext,
) -> Select:
    """What both the policy and its binding want; without constraints, a policy wants nothing."""
    if constraints is None:
        return select_none
    names, watch = around.resource_names, around.watch_rule(name)
    select = compile_constraints(constraints, names, watch=watch)
    if binding is None or binding.spec.match_resources is None:
        return remember(_spare(select))
    # A binding that only selects by labels takes all that its policy takes.
    narrower = compile_constraints(
        with_operations(binding.spec.match_resources),
        names,
        where=f"{binding.metadata.name}: matchResources",
        watch=watch,
    )
    return remember(_spare(select_both(select, narrower)))


def with_operations(resources: MatchResources) -> MatchResources:
    """Take rules without operations as rules for every operation."""
    rules = tuple(
        rule if rule.operations else replace(rule, operations=("*",))
        for rule in resources.resource_rules
    )
    return replace(resources, resource_rules=rules)


def _spare(select: Select) -> Select:
    def spared(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        return None if is_exempt(kind) else select(kind, subresource, operation)

    return spared


def select_both(first: Select, second: Select) -> Select:
    """What both select."""

    def select(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        one = first(kind, subresource, operation)
        other = second(kind, subresource, operation) if one is not None else None
        if one is None or other is None:
            return None
        return lambda request: one(request) and other(request)

    return select


def compile_language(
    policy: AdmissionPolicy, around: CelContext, *, has_patches: bool = False
) -> ExpressionCompiler:
    """What the expressions of a policy may use, with its variables."""
    environment = around.native_environment(
        has_params=policy.spec.param_kind is not None, has_patches=has_patches
    )
    watch = around.watch_rule(policy.metadata.name)
    language = ExpressionCompiler(environment, around.host_functions(), watch=watch, lenient=True)
    return language.declare(policy.spec.variables)
