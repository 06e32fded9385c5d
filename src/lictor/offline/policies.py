"""Policy files sorted into policies, exceptions, other kinds, and those that cannot be used."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from lictor.errors import LoadError
from lictor.load.policies import Loaded, describe_unsupported, load_documents
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.finding import Finding, Severity
from lictor.model.policy import Policy
from lictor.offline.sources import SourceText
from lictor.raw import JsonObject

if TYPE_CHECKING:
    from lictor.load.policies import Loaded
    from lictor.model.admission import AdmissionPolicy, Binding
    from lictor.model.cel_policy import CelException, CelPolicy, DeletingPolicy
    from lictor.model.policy import Policy


# Evaluators of their own: what they judge are requests to a service, not resources.
AUTHORIZING_MODES = ("HTTP", "Envoy")


class CelRecords(msgspec.Struct, frozen=True):
    """The policies that files hold, and what belongs to them."""

    admission_policies: "tuple[AdmissionPolicy, ...]" = ()
    bindings: "tuple[Binding, ...]" = ()
    policies: "tuple[CelPolicy, ...]" = ()
    exceptions: "tuple[CelException, ...]" = ()

    def __len__(self) -> int:
        """How many policies there are."""
        return len(self.admission_policies) + len(self.policies)

    @property
    def judging(self) -> "tuple[CelPolicy, ...]":
        """Kyverno's policies about resources."""
        return tuple(
            policy
            for policy in self.policies
            if kind_of(policy) != "DeletingPolicy" and mode_of(policy) not in AUTHORIZING_MODES
        )

    @property
    def deleting(self) -> "tuple[DeletingPolicy, ...]":
        return tuple(self._of_kind("DeletingPolicy"))

    def of_mode(self, *modes: str) -> "tuple[CelPolicy, ...]":
        """Those that judge what these modes are about."""
        return tuple(policy for policy in self.policies if mode_of(policy) in modes)

    def _of_kind(self, kind: str) -> "Iterator[DeletingPolicy]":
        for policy in self.policies:
            if kind_of(policy) == kind:
                yield policy  # type: ignore[misc]  # the kind tells the record


def collect_records(loaded: "Loaded") -> CelRecords:
    """The records of loaded files."""
    return CelRecords(
        tuple(each.record for each in loaded.admission_policies),
        tuple(each.record for each in loaded.bindings),
        tuple(each.record for each in loaded.cel_policies),
        tuple(each.record for each in loaded.cel_exceptions),
    )


def kind_of(policy: "Policy | AdmissionPolicy | CelPolicy") -> str:
    """The kind; a namespaced one and its twin are one."""
    return policy.kind.removeprefix("Namespaced")


def mode_of(policy: "CelPolicy") -> str:
    """What is judged: `Kubernetes` requests unless the policy says otherwise."""
    evaluation = getattr(policy.spec, "evaluation", None)
    return getattr(evaluation, "mode", "") or "Kubernetes"


_DEFINITION = "CustomResourceDefinition"


class GivenExceptions(msgspec.Struct, frozen=True):
    """Exceptions from classic policies, and those from policies in CEL."""

    classic: tuple[PolicyException, ...] = ()
    cel: "tuple[CelException, ...]" = ()

    def __len__(self) -> int:
        return len(self.classic) + len(self.cel)

    def __add__(self, other: "GivenExceptions") -> "GivenExceptions":
        return GivenExceptions(self.classic + other.classic, self.cel + other.cel)


class UnusablePolicy(msgspec.Struct, frozen=True):
    """A policy that cannot be used, and why."""

    name: str
    kind: str
    reason: str
    # A whole family of policies that comes later, not a fault of this one.
    is_later: bool = False


class LoadedPolicies(msgspec.Struct, frozen=True):
    """What policy files hold."""

    usable: tuple[Policy, ...] = ()
    exceptions: tuple[PolicyException, ...] = ()
    unusable: tuple[UnusablePolicy, ...] = ()
    cleanups: tuple[CleanupPolicy, ...] = ()
    warnings: tuple[str, ...] = ()
    # What was left out, for those who ask.
    notes: tuple[str, ...] = ()
    cel: CelRecords = CelRecords()
    # Definitions of custom resources: they tell how kinds are called in policies.
    crds: tuple[JsonObject, ...] = ()

    def __len__(self) -> int:
        """How many policies can be used."""
        return len(self.usable) + len(self.cel)

    @property
    def all_exceptions(self) -> GivenExceptions:
        return GivenExceptions(self.exceptions, self.cel.exceptions)


def load_policy_files(texts: Iterable[SourceText]) -> LoadedPolicies:
    """Sort the documents of all files."""
    loaded = _load(texts)
    errors = [found for found in loaded.problems if found.severity is Severity.ERROR]
    return LoadedPolicies(
        usable=tuple(policy.record for policy in loaded.policies if policy.record.spec.rules),
        exceptions=tuple(exception.record for exception in loaded.exceptions),
        cleanups=tuple(cleanup.record for cleanup in loaded.cleanups),
        unusable=(
            *_list_broken(errors),
            *_list_without_rules(loaded),
            *_list_unsupported(loaded),
        ),
        warnings=tuple(str(found) for found in loaded.problems if found not in errors),
        notes=tuple(_list_left_out(loaded)),
        cel=collect_records(loaded),
        crds=tuple(
            found.record for found in loaded.resources if found.record.get("kind") == _DEFINITION
        ),
    )


def load_exceptions(texts: Iterable[SourceText]) -> GivenExceptions:
    """Files that hold exceptions and nothing else."""
    loaded = _load(texts)
    for problem in loaded.problems:
        if problem.severity is Severity.ERROR:
            raise LoadError(f"failed to load exceptions ({problem})")
    for policy in _list_policies(loaded):
        raise LoadError(f"policy exception type not supported {policy.kind}")
    return GivenExceptions(
        tuple(exception.record for exception in loaded.exceptions),
        tuple(exception.record for exception in loaded.cel_exceptions),
    )


def _load(texts: Iterable[SourceText]) -> Loaded:
    loaded = Loaded()
    for text in texts:
        loaded += load_documents(text.content, text.path)
    return loaded


def _list_policies(loaded: Loaded) -> "Iterator[Policy | AdmissionPolicy | CelPolicy]":
    yield from (sourced.record for sourced in loaded.policies)
    yield from (sourced.record for sourced in loaded.admission_policies)
    yield from (sourced.record for sourced in loaded.cel_policies)


def _list_broken(errors: Iterable[Finding]) -> list[UnusablePolicy]:
    """One entry for each broken document, with the first thing that is wrong with it."""
    found: dict[tuple[str, str, str], UnusablePolicy] = {}
    for error in errors:
        key = (error.location.file, error.kind, error.name or str(error.location.line))
        name = error.name or error.location.file
        found.setdefault(key, UnusablePolicy(name, error.kind, str(error)))
    return list(found.values())


def _list_without_rules(loaded: Loaded) -> list[UnusablePolicy]:
    """Policies that decide nothing, most likely for a misspelt field: that is no success."""
    return [
        UnusablePolicy(
            policy.record.metadata.name,
            policy.record.kind,
            f"{policy.source}:{policy.position()[0]}: the policy has no rules",
        )
        for policy in loaded.policies
        if not policy.record.spec.rules
    ]


def _list_left_out(loaded: Loaded) -> Iterator[str]:
    """What stands among policies and is none: folders of policies hold more than that."""
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
