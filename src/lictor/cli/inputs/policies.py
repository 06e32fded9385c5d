"""Loads policy files: policies, exceptions, other kinds, and policies that cannot be used."""

import posixpath
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.sources import STDIN, SourceText, is_url
from lictor.core.errors import LoadError
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.load.policies import (
    Loaded,
    Sourced,
    describe_unsupported,
    join_loaded,
    load_documents,
    locate_finding,
)
from lictor.core.model.finding import Finding, Severity
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import JsonObject

_DEFINITION = "CustomResourceDefinition"
# Fields of a rule that is about images.
_IMAGES = ("verify_images", "image_extractors")
# Modes with separate evaluators: they evaluate requests to a service, not resources.
AUTHORIZING_MODES = ("HTTP", "Envoy")


class UnusablePolicy(msgspec.Struct, frozen=True):
    """A policy that cannot be used, and why."""

    name: str
    kind: str
    reason: str
    # The whole kind is not supported; the policy may be valid.
    is_later: bool = False


class LoadedPolicies(msgspec.Struct, frozen=True):
    """The content of policy files."""

    # Policies that evaluate requests, in their order.
    policies: tuple[PolicyRecord, ...] = ()
    # Those that delete on a schedule.
    deletions: tuple[PolicyRecord, ...] = ()
    exceptions: tuple[PolicyRecord, ...] = ()
    bindings: tuple[PolicyRecord, ...] = ()
    servers: tuple[PolicyRecord, ...] = ()
    unusable: tuple[UnusablePolicy, ...] = ()
    warnings: tuple[str, ...] = ()
    # Kinds that Kyverno deprecates: `FILE: text`.
    deprecations: tuple[str, ...] = ()
    # Documents that were left out; printed with -v.
    notes: tuple[str, ...] = ()
    # Definitions of custom resources: they define the names of kinds in policies.
    crds: tuple[JsonObject, ...] = ()

    def __len__(self) -> int:
        """How many policies can be used."""
        return len(self.policies) + len(self.listed_deletions)

    @property
    def listed_deletions(self) -> tuple[PolicyRecord, ...]:
        """Policies that delete, and that are tested and explained as the others are."""
        return tuple(each for each in self.deletions if registry().of(each).is_listed)

    @property
    def about_resources(self) -> tuple[PolicyRecord, ...]:
        """The policies about resources, not about requests to a service."""
        return tuple(each for each in self.policies if mode_of(each) not in AUTHORIZING_MODES)

    def of_mode(self, *modes: str) -> tuple[PolicyRecord, ...]:
        """The policies of these evaluation modes."""
        return tuple(each for each in self.policies if mode_of(each) in modes)


def mode_of(policy: PolicyRecord) -> str:
    """The evaluation mode of a policy; `Kubernetes` by default."""
    evaluation = getattr(policy.spec, "evaluation", None)
    return getattr(evaluation, "mode", "") or "Kubernetes"


def load_policy_files(
    texts: Iterable[SourceText], *, with_deprecations: bool = True
) -> LoadedPolicies:
    """Sort the documents of all files."""
    loaded = _load(texts)
    by_role: dict[Role, list[Sourced[PolicyRecord]]] = {role: [] for role in Role}
    for found in loaded.with_role(*Role):
        by_role[registry().of(found.record).role].append(found)
    policies = by_role.pop(Role.POLICY)
    named = [each for each in policies if registry().of(each.record).has_named_rules]
    refused = [found for found in loaded.problems if _is_fatal(found)]
    warnings = tuple(str(found) for found in loaded.problems if found not in refused)
    for each in named:
        # Looked up by name: rules of other families may have other fields.
        if any(getattr(rule, field, ()) for rule in each.record.spec.rules for field in _IMAGES):
            refused += _list_image_faults(each)
    without_rules = [each for each in named if not each.record.spec.rules]
    if refused:
        broken = {_identify(found) for found in refused}
        policies = [each for each in policies if _identify_policy(each) not in broken]
    policies = [each for each in policies if each not in without_rules]
    return LoadedPolicies(
        policies=tuple(each.record for each in policies),
        deletions=tuple(each.record for each in by_role[Role.DELETION]),
        exceptions=tuple(each.record for each in by_role[Role.EXCEPTION]),
        bindings=tuple(each.record for each in by_role[Role.BINDING]),
        servers=tuple(each.record for each in by_role[Role.SERVER]),
        unusable=(
            *(_list_broken(refused) if refused else ()),
            # Most likely because of a misspelt field: an error.
            *[_refuse(each, "the policy has no rules") for each in without_rules],
            *(_list_unsupported(loaded) if loaded.raw else ()),
        ),
        warnings=warnings,
        deprecations=tuple(dict.fromkeys(_list_deprecations(loaded))) if with_deprecations else (),
        notes=tuple(_list_left_out(loaded)) if loaded.resources or loaded.others else (),
        crds=tuple(
            found.record for found in loaded.resources if found.record.get("kind") == _DEFINITION
        ),
    )


def load_exceptions(texts: Iterable[SourceText]) -> tuple[PolicyRecord, ...]:
    """Load files of exceptions. Raises LoadError for other policies."""
    loaded = _load(texts)
    for problem in loaded.problems:
        if problem.severity is Severity.ERROR:
            raise LoadError(f"failed to load exceptions ({problem})")
    for policy in loaded.listed:
        raise LoadError(f"policy exception type not supported {policy.record.kind}")
    return tuple(each.record for each in loaded.with_role(Role.EXCEPTION))


def _load(texts: Iterable[SourceText]) -> Loaded:
    parts = [load_documents(text.content, text.path) for text in texts]
    loaded = parts[0] if len(parts) == 1 else join_loaded(parts)
    if not any(registry().of(each.record).family.names_files for each in loaded.documents):
        return loaded
    return replace(loaded, documents=tuple(map(_locate_files, loaded.documents)))


def _locate_files(found: Sourced[PolicyRecord]) -> Sourced[PolicyRecord]:
    """Resolve the paths in a policy relative to the folder of its file."""
    if is_url(found.source):
        return found
    folder = "." if found.source == STDIN else posixpath.dirname(found.source) or "."
    located = registry().of(found.record).family.locate_files(found.record, folder)
    return found if located is found.record else replace(found, record=located)


def _is_fatal(found: Finding) -> bool:
    # A misspelt field elsewhere makes a rule check less; here it lets images pass unverified, and
    # Kyverno refuses it as well.
    return found.severity is Severity.ERROR or "verifyImages" in found.path


def _list_image_faults(policy: Sourced[PolicyRecord]) -> Iterator[Finding]:
    # Imported here: most policies are not about images.
    from lictor.lint.policy import find_image_faults

    for fault in find_image_faults(policy.body):
        yield locate_finding(
            replace(fault, severity=Severity.ERROR),
            policy.document,
            policy.prefix,
            kind=policy.record.kind,
            name=policy.record.metadata.name,
        )


def _list_broken(errors: Iterable[Finding]) -> list[UnusablePolicy]:
    """Return one entry for each invalid document, with its first error."""
    found: dict[tuple[str, str, str], UnusablePolicy] = {}
    for error in errors:
        name = error.name or error.location.file
        found.setdefault(_identify(error), UnusablePolicy(name, error.kind, str(error)))
    return list(found.values())


def _identify(found: Finding) -> tuple[str, str, str]:
    return (found.location.file, found.kind, found.name or str(found.location.line))


def _identify_policy(policy: Sourced[PolicyRecord]) -> tuple[str, str, str]:
    return (policy.source, policy.record.kind, policy.record.metadata.name)


def _refuse(policy: Sourced[PolicyRecord], reason: str) -> UnusablePolicy:
    record, line = policy.record, policy.position()[0]
    return UnusablePolicy(record.metadata.name, record.kind, f"{policy.source}:{line}: {reason}")


def _list_deprecations(loaded: Loaded) -> Iterator[str]:
    for found in loaded.documents:
        _, _, version = str(found.record.api_version).rpartition("/")
        text = registry().of(found.record).describe_deprecation(version)
        if text:
            yield f"{found.source}: {text}"


def _list_left_out(loaded: Loaded) -> Iterator[str]:
    """Documents that are not policies: folders of policies often contain others."""
    for found in loaded.resources:
        kind = found.record.get("kind")
        if kind != _DEFINITION:
            yield f"{found.source}:{found.position()[0]}: {kind} is not a policy and was left out"
    for found in loaded.others:
        yield f"{found.source}:{found.position()[0]}: is no Kubernetes object and was left out"


def _list_unsupported(loaded: Loaded) -> list[UnusablePolicy]:
    return [
        UnusablePolicy(
            each.record.name,
            each.record.kind,
            f"{each.source}:{each.position()[0]}: {describe_unsupported(each.record.kind)}",
            is_later=True,
        )
        for each in loaded.unsupported
    ]
