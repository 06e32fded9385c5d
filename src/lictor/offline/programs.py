"""Compiles all given policies, in the same way for `apply`, `test` and `explain`."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lictor.assembly import CelDocuments, compile_documents
from lictor.model.program import Program
from lictor.model.request import GroupVersionKind
from lictor.offline.lookups import GivenObjects
from lictor.offline.policies import GivenExceptions, LoadedPolicies
from lictor.ports import Lookups

if TYPE_CHECKING:
    from lictor.lang.resource_names import ResourceNames
    from lictor.model.admission import MatchResources
    from lictor.model.cel_policy import CelPolicy


def compile_given(
    policies: LoadedPolicies,
    exceptions: GivenExceptions,
    lookups: Lookups,
    given: GivenObjects,
) -> tuple[Program, ...]:
    """The programs of all policies about resources."""
    documents = describe_given(exceptions, given)
    documents["admission_policies"] = policies.cel.admission_policies
    documents["bindings"] = policies.cel.bindings
    documents["cel_policies"] = policies.cel.judging
    return compile_documents(
        policies.usable, exceptions=exceptions.classic, lookups=lookups, **documents
    )


def compile_for_payloads(
    policies: "Sequence[CelPolicy]",
    exceptions: GivenExceptions,
    lookups: Lookups,
    given: GivenObjects,
) -> tuple[Program, ...]:
    """The programs of the policies that judge one kind of payload."""
    documents = describe_given(exceptions, given)
    documents["cel_policies"] = policies
    return compile_documents((), lookups=lookups, **documents)


def describe_given(exceptions: GivenExceptions, given: GivenObjects) -> CelDocuments:
    """What belongs to policies in CEL, besides the policies."""
    documents = CelDocuments(cel_exceptions=exceptions.cel)
    if given.params or given.served is None:
        documents["params"] = given.params
    if given.crds or given.served:
        documents["resource_names"] = name_resources(given)
    return documents


def name_resources(given: GivenObjects) -> "ResourceNames":
    """The names of resources, with those of given definitions."""
    from lictor.lang.resource_names import builtin_names

    names = builtin_names().with_resources(given.served) if given.served else builtin_names()
    return names.with_crds(given.crds)


def report_guessed_names(
    policies: LoadedPolicies, given: GivenObjects
) -> Callable[[GroupVersionKind], str]:
    """What to tell of a kind whose resource name is a guess; empty where nothing depends on it."""
    groups = {
        group for constraints in _list_constraints(policies) for group in _groups(constraints)
    }
    if not groups:
        return lambda _: ""
    names = name_resources(given)

    def tell(kind: GroupVersionKind) -> str:
        if kind.group not in groups and "*" not in groups:
            return ""
        found = names.of_kind(kind.group, kind.version, kind.kind)
        if not found.guessed:
            return ""
        return (
            f"nothing tells how {kind.api_version} {kind.kind} is called in resourceRules; "
            f'taken to be "{found.resource}" (give its CustomResourceDefinition to be sure)'
        )

    return tell


def _list_constraints(policies: LoadedPolicies) -> "Iterator[MatchResources]":
    for policy in (*policies.cel.admission_policies, *policies.cel.policies):
        constraints = policy.spec.match_constraints
        if constraints is not None:
            yield constraints


def _groups(constraints: "MatchResources") -> Iterator[str]:
    for rule in constraints.resource_rules:
        if any(not name.startswith("*") for name in rule.resources):
            yield from rule.api_groups
