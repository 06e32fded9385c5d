"""Compiles all given policies, in the same way for `apply`, `test` and `explain`."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lictor.cli.inputs.lookups import GivenObjects
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.core.assembly import CompileOptions, compile_documents
from lictor.core.errors import UsageError
from lictor.core.families.registry import registry
from lictor.core.lang.wasm_module import NoModules
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Program
from lictor.core.model.request import GroupVersionKind
from lictor.core.ports import Lookups
from lictor.core.release import REFERENCES

if TYPE_CHECKING:
    from lictor.core.facts.resource_names import ResourceNames
    from lictor.core.lang.wasm_module import Modules, WasmModule
    from lictor.core.model.constraints import MatchResources

# The oldest minor release whose CEL is known.
_OLDEST = 30


def compile_given(
    policies: LoadedPolicies,
    exceptions: Sequence[PolicyRecord],
    lookups: Lookups,
    given: GivenObjects,
) -> tuple[Program, ...]:
    """The programs of all policies about resources."""
    about_resources = policies.about_resources
    documents = (
        *about_resources,
        *_list_own_mutations(about_resources),
        *policies.bindings,
        *policies.servers,
        *exceptions,
    )
    return compile_documents(documents, **choose_options(given, lookups))


def _list_own_mutations(policies: Iterable[Any]) -> Iterator[PolicyRecord]:
    """Policies about existing objects once more, for the object of the request itself.

    In a cluster, admission changes the object, and the background controller the targets.
    """
    for policy in policies:
        evaluation: Any = getattr(policy.spec, "evaluation", None)
        existing = getattr(evaluation, "mutate_existing", None)
        if existing is not None and existing.enabled:
            own = replace(evaluation, mutate_existing=replace(existing, enabled=False))
            spec = replace(policy.spec, evaluation=own, target_match_constraints=None)
            yield replace(policy, spec=spec)


def compile_for_payloads(
    policies: Sequence[PolicyRecord],
    exceptions: Sequence[PolicyRecord],
    lookups: Lookups,
    given: GivenObjects,
) -> tuple[Program, ...]:
    """The programs of the policies for one kind of payload."""
    return compile_documents((*policies, *exceptions), **choose_options(given, lookups))


def choose_options(given: GivenObjects, lookups: Lookups) -> CompileOptions:
    """What policies are compiled with, as far as it was given."""
    options = CompileOptions(
        lookups=lookups,
        modules=GivenModules(),
        is_lazy=True,
        kubernetes_version=given.kubernetes_version,
    )
    if given.params or given.served is None:
        options["params"] = given.params
    if given.crds or given.served:
        options["resource_names"] = name_resources(given)
    return options


def parse_kubernetes_version(text: str) -> tuple[int, int] | None:
    """The release that a flag names; None if it is empty. Raises UsageError for unknown ones."""
    if not text:
        return None
    newest = int(REFERENCES["kubernetes"].split(".")[1])
    major, _, minor = text.removeprefix("v").partition(".")
    if major != "1" or not minor.isdecimal() or not _OLDEST <= int(minor) <= newest:
        raise UsageError(
            f"--kubernetes-version: unknown release {text!r}: use 1.{_OLDEST} to 1.{newest}"
        )
    return 1, int(minor)


def name_resources(given: GivenObjects) -> "ResourceNames":
    """The names of resources, with those of given definitions."""
    from lictor.core.facts.resource_names import builtin_names

    names = builtin_names().with_resources(given.served) if given.served else builtin_names()
    return names.with_crds(given.crds)


def report_guessed_names(
    policies: LoadedPolicies, given: GivenObjects
) -> Callable[[GroupVersionKind], str] | None:
    """Return the function that reports a kind whose resource name is a guess.

    It returns an empty text if the name is known. None: no policy depends on such a name.
    """
    listed = (*policies.policies, *policies.deletions)
    constraints = [getattr(policy.spec, "match_constraints", None) for policy in listed]
    groups = {group for each in constraints if each is not None for group in _groups(each)}
    if not groups:
        return None
    names = name_resources(given)

    def describe(kind: GroupVersionKind) -> str:
        if kind.group not in groups and "*" not in groups:
            return ""
        found = names.of_kind(kind.group, kind.version, kind.kind)
        if not found.guessed:
            return ""
        return (
            f"the resource name of {kind.api_version} {kind.kind} in resourceRules is unknown; "
            f'taken to be "{found.resource}" (give its CustomResourceDefinition to be sure)'
        )

    return describe


def _groups(constraints: "MatchResources") -> Iterator[str]:
    for rule in constraints.resource_rules:
        if any(not name.startswith("*") for name in rule.resources):
            yield from rule.api_groups


# --- modules of policies in Wasm


class GivenModules:
    """Implements `core.lang.wasm_module.Modules`: what an address names, fetched when first needed.

    The settings are those of the environment, as a policy server has them.
    """

    _store: "Modules | None" = None
    # The process that opened the store.
    _process = 0

    def load(self, address: str, namespace: str = "") -> "WasmModule":
        # Threads do not survive a fork, and the store needs one to end what loops.
        if self._store is None or self._process != os.getpid():
            # Loads wasmtime and the registry client, which most runs never need.
            found = (family.open_modules() for family in registry().families)
            self._store, self._process = next(filter(None, found), NoModules()), os.getpid()
        return self._store.load(address, namespace)
