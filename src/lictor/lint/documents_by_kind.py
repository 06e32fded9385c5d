"""Which check is for documents of which kind of policy? What the declarations of kinds refer to."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.registry import PolicyKind, resolve
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
    """What is known beside the document that is checked."""

    # The names of resources; asked for by few checks, and not cheap to make.
    find_names: Callable[[], ResourceNames] = builtin_names
    # The rules of the policies in the given files, by policy.
    rules: KnownRules = msgspec.field(default_factory=dict)
    # Kind and name of the other policies in the given files.
    policies: frozenset[tuple[str, str]] = frozenset()
    # What objects look like: those of Kubernetes, and of the definitions among the given files.
    schemas: KnownSchemas = msgspec.field(default_factory=KnownSchemas)
    # Whether to tell what a policy does in a cluster that its author may not have meant.
    asks_behaviour: bool = False
    # The ClusterRoles in the given files.
    cluster_roles: tuple[Json, ...] = ()


def lint_document(kind: PolicyKind, body: Json, context: LintContext) -> Iterable[Finding]:
    """What is wrong with a document of a kind of policy."""
    found: Iterable[Finding] = resolve(kind.lint)(body, context) if kind.lint else ()
    return found


def check_classic_policy(body: Json, context: LintContext) -> Iterable[Finding]:
    """A policy of which rules have names."""
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
    """A policy in CEL: the engine of that language is loaded here."""
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


# --- what a policy does in a cluster that its text does not say

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
