"""The checks for each kind of policy, referred to by the declarations of kinds."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
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
from lictor.lint.cluster_rights import check_cel_rights, check_cleanup_rights, check_rights
from lictor.lint.exceptions import (
    KnownRules,
    lint_binding,
    lint_cel_exception,
    lint_cleanup,
    lint_exception,
)
from lictor.lint.field import Field
from lictor.lint.policy import lint_policy
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.schema_rules import check_cleanup_schemas, check_rule_schemas


class LintContext(msgspec.Struct, frozen=True):
    """What is known besides the document."""

    # The names of resources; few checks need them, and they are expensive to build.
    find_names: Callable[[], ResourceNames] = builtin_names
    # The rules of the policies in the given files, by policy.
    rules: KnownRules = msgspec.field(default_factory=dict)
    # Kind and name of the other policies in the given files.
    policies: frozenset[tuple[str, str]] = frozenset()
    # The schemas of Kubernetes, and of the definitions among the given files.
    schemas: KnownSchemas = msgspec.field(default_factory=KnownSchemas)
    # Whether to report unintended effects of a policy in a cluster.
    asks_behaviour: bool = False
    # The ClusterRoles in the given files.
    cluster_roles: tuple[Json, ...] = ()


def lint_document(kind: PolicyKind, body: Json, context: LintContext) -> Iterable[Finding]:
    """The findings of a document of a kind of policy."""
    check = _CHECKS.get((kind.family.name, kind.role))
    return kind.family.lint(kind, body) if check is None else check(body, context)


def check_classic_policy(body: Json, context: LintContext) -> Iterable[Finding]:
    """A policy with named rules."""
    found = [*lint_policy(body, context.schemas), *check_rule_schemas(body, context.schemas)]
    if not context.asks_behaviour:
        return found
    return [*found, *check_behaviour(body, context.cluster_roles, context.find_names())]


def check_cleanup(body: Json, context: LintContext) -> Iterable[Finding]:
    """A cleanup policy."""
    schemas = context.schemas
    found = [*lint_cleanup(body, schemas), *check_cleanup_schemas(body, schemas)]
    if not context.asks_behaviour:
        return found
    rights = check_cleanup_rights(Field(body), context.cluster_roles, context.find_names())
    return [*found, *rights]


def check_exception(body: Json, context: LintContext) -> Iterable[Finding]:
    """An exception from classic policies."""
    return lint_exception(body, context.rules, context.schemas)


def check_cel_policy(body: Json, context: LintContext) -> Iterable[Finding]:
    """A CEL policy: imports the CEL engine."""
    from lictor.lint.cel_policies import lint_cel_policy

    names = context.find_names()
    found = lint_cel_policy(body, names, context.schemas)
    if not context.asks_behaviour:
        return found
    return [*found, *check_cel_behaviour(body, context.cluster_roles, names)]


def check_cel_exception(body: Json, context: LintContext) -> Iterable[Finding]:
    """An exception from policies in CEL."""
    return lint_cel_exception(body, context.policies)


def check_binding(body: Json, context: LintContext) -> Iterable[Finding]:
    """The binding of an admission policy."""
    return lint_binding(body, context.policies, context.find_names())


# The families of the core; those of add-ons bring their rules.
_CHECKS: dict[tuple[str, Role], Callable[[Json, LintContext], Iterable[Finding]]] = {
    ("classic", Role.POLICY): check_classic_policy,
    ("classic", Role.DELETION): check_cleanup,
    ("classic", Role.EXCEPTION): check_exception,
    ("kyverno_cel", Role.POLICY): check_cel_policy,
    ("kyverno_cel", Role.DELETION): check_cel_policy,
    ("kyverno_cel", Role.EXCEPTION): check_cel_exception,
    ("admission_policy", Role.POLICY): check_cel_policy,
    ("admission_policy", Role.BINDING): check_binding,
}

# --- unintended effects of a policy in a cluster

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
    """Unintended effects of a classic policy's rules; `roles` are the given ClusterRoles."""
    policy = Field(body)
    yield from check_rights(policy, roles, names)
    for rule in policy["spec"]["rules"].each():
        for check in _RULE_CHECKS:
            yield from check(policy, rule)


def check_cel_behaviour(
    body: Json, roles: Iterable[Json] = (), names: ResourceNames | None = None
) -> Iterator[Finding]:
    """Unintended effects of a CEL policy."""
    policy = Field(body)
    yield from check_cel_operations(policy["spec"])
    yield from check_cel_rights(policy, roles, names or builtin_names())
