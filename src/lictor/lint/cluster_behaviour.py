"""What does a policy do in a cluster that its text does not say? All checks of that."""

from collections.abc import Iterable, Iterator

from lictor.kubernetes.resource_names import ResourceNames, builtin_names
from lictor.lint.cluster_mutations import (
    check_additions,
    check_fixed_fields,
    check_refused,
    check_repetition,
)
from lictor.lint.cluster_requests import (
    check_cel_operations,
    check_deletions,
    check_old_object,
    check_system_namespaces,
)
from lictor.lint.cluster_rights import check_cel_rights, check_rights
from lictor.lint.field import Field
from lictor.model.finding import Finding
from lictor.raw import Json

_RULE_CHECKS = (
    check_deletions,
    check_old_object,
    check_system_namespaces,
    check_additions,
    check_repetition,
    check_fixed_fields,
    check_refused,
)


def check_behaviour(body: Json, roles: Iterable[Json], names: ResourceNames) -> Iterator[Finding]:
    """What rules of a classic policy do that nobody meant; `roles` are the ClusterRoles at hand."""
    policy = Field(body)
    yield from check_rights(policy, roles, names)
    for rule in policy["spec"]["rules"].each():
        for check in _RULE_CHECKS:
            yield from check(policy, rule)


def check_cel_behaviour(
    body: Json, roles: Iterable[Json] = (), names: ResourceNames | None = None
) -> Iterator[Finding]:
    """What a policy in CEL does that nobody meant."""
    policy = Field(body)
    yield from check_cel_operations(policy["spec"])
    yield from check_cel_rights(policy, roles, names or builtin_names())
