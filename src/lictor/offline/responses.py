"""Results grouped as tests expect them: one response per resource, policy and type of rule."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lictor.model.policy import Policy, Rule
from lictor.model.result import PolicyRef, Result, RuleType, Verdict
from lictor.offline.policies import CelRecords, kind_of, mode_of
from lictor.raw import JsonObject

if TYPE_CHECKING:
    from lictor.model.admission import AdmissionPolicy, MatchResources
    from lictor.model.cel_policy import CelPolicy

# apiVersion, kind, namespace, name
ResourceKey = tuple[str, str, str, str]
AnyPolicy: TypeAlias = "Policy | AdmissionPolicy | CelPolicy"


class PolicyUnderTest(msgspec.Struct, frozen=True):
    """A policy, and the work of which a test should hear even where it said nothing."""

    policy: "AnyPolicy"
    works: frozenset[RuleType]

    @property
    def key(self) -> tuple[str, str]:
        """The kind and name under which results speak of the policy."""
        kind, metadata = self.policy.kind, self.policy.metadata
        namespaced = kind == "Policy" or kind.startswith("Namespaced")
        namespace = (metadata.namespace or "default") if namespaced else ""
        return kind, PolicyRef(metadata.name, namespace).key


class PolicyResponse(msgspec.Struct, frozen=True):
    """What the rules of one policy, of one kind of work, said about one resource: maybe nothing."""

    policy: "AnyPolicy"
    type: RuleType
    results: tuple[Result, ...]
    resource: JsonObject
    # The resource as the mutations up to this policy left it.
    patched: JsonObject


class TestAnswers(msgspec.Struct, frozen=True):
    """All responses of a test: by resource, and by the other objects that mutations changed."""

    triggers: dict[ResourceKey, list[PolicyResponse]] = msgspec.field(default_factory=dict)
    targets: dict[ResourceKey, list[PolicyResponse]] = msgspec.field(default_factory=dict)
    # Policies that could not be used, and why.
    invalid: dict[str, str] = msgspec.field(default_factory=dict)


def key_of(resource: JsonObject) -> ResourceKey:
    """Under which key a resource is found."""
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    fields = (
        resource.get("apiVersion"),
        resource.get("kind"),
        metadata.get("namespace"),
        metadata.get("name"),
    )
    api_version, kind, namespace, name = ("" if part is None else str(part) for part in fields)
    return api_version, kind, namespace, name


# --- who is expected to speak


def list_tested_policies(policies: Sequence[Policy], cel: CelRecords) -> list[PolicyUnderTest]:
    """All policies, in the order in which they are asked."""
    tested_policies = [
        PolicyUnderTest(policy, frozenset(_list_works(policy))) for policy in policies
    ]
    tested_policies += [
        PolicyUnderTest(policy, _list_native_works(policy)) for policy in cel.admission_policies
    ]
    tested_policies += [PolicyUnderTest(policy, _list_cel_works(policy)) for policy in cel.policies]
    return tested_policies


def _list_works(policy: Policy) -> Iterator[RuleType]:
    for work in (RuleType.MUTATION, RuleType.IMAGE_VERIFY, RuleType.VALIDATION):
        if any(_does(rule, work) for rule in policy.spec.rules):
            yield work


def _does(rule: Rule, work: RuleType) -> bool:
    match work:
        case RuleType.MUTATION:
            return rule.mutate is not None
        case RuleType.IMAGE_VERIFY:
            return bool(rule.verify_images)
        case _:
            return rule.validate is not None


def _list_native_works(policy: "AdmissionPolicy") -> frozenset[RuleType]:
    kind = policy.kind
    return frozenset([RuleType.VALIDATION] if kind == "ValidatingAdmissionPolicy" else [])


def _list_cel_works(policy: "CelPolicy") -> frozenset[RuleType]:
    """Kyverno wants to hear of a silent policy only where it chooses by more than one rule."""
    work = _CEL_WORKS.get(kind_of(policy))
    if work is None or mode_of(policy) != "Kubernetes":
        return frozenset()
    if work is not RuleType.IMAGE_VERIFY and not _chooses(policy):
        return frozenset()
    return frozenset([work])


_CEL_WORKS = {
    "ValidatingPolicy": RuleType.VALIDATION,
    "MutatingPolicy": RuleType.MUTATION,
    "ImageValidatingPolicy": RuleType.IMAGE_VERIFY,
}


def _chooses(policy: "CelPolicy") -> bool:
    from lictor.compile.cel.autogen import list_floors

    constraints = policy.spec.match_constraints
    if constraints is None or not _is_plain(constraints):
        return True
    controllers = policy.spec.autogen.pod_controllers  # type: ignore[union-attr]  # of both kinds
    return any(not _is_plain(floor.constraints) for floor in list_floors(constraints, controllers))


def _is_plain(constraints: "MatchResources") -> bool:
    """One rule about resources, and nothing else."""
    selectors = (constraints.namespace_selector, constraints.object_selector)
    return (
        not any(s is not None and (s.match_labels or s.match_expressions) for s in selectors)
        and not constraints.exclude_resource_rules
        and len(constraints.resource_rules) == 1
        and not constraints.resource_rules[0].resource_names
    )


# --- what they said


def list_responses(
    verdict: Verdict, tested_policies: Sequence[PolicyUnderTest]
) -> list[PolicyResponse]:
    """A response for each policy and kind of work, also where a test should hear of a silent one.

    Generation alone is named only where it happened: nobody expects it elsewhere.
    """
    found: dict[tuple[tuple[str, str], RuleType], list[Result]] = {}
    for result in verdict.results:
        key = (result.policy.kind, result.policy.key)
        found.setdefault((key, result.type), []).append(result)
    return list(_walk(verdict, tested_policies, found))


def _walk(
    verdict: Verdict,
    tested_policies: Sequence[PolicyUnderTest],
    found: dict[tuple[tuple[str, str], RuleType], list[Result]],
) -> Iterator[PolicyResponse]:
    resource = verdict.request.resource
    patched = resource
    for work in _WORKS:
        for tested in tested_policies:
            results = tuple(found.get((tested.key, work), ()))
            if not results and work not in tested.works:
                continue
            patched = _last_patched(results, patched)
            shown = patched
            if work is RuleType.MUTATION and kind_of(tested.policy) == "MutatingPolicy":
                # Kyverno asks all of them at once, and compares with what came of it in the end.
                shown = _last_patched(verdict.results, resource)
            yield PolicyResponse(tested.policy, work, results, resource, shown)


_WORKS = (
    RuleType.MUTATION,
    RuleType.IMAGE_VERIFY,
    RuleType.VALIDATION,
    RuleType.GENERATION,
    RuleType.CLEANUP,
)


def _last_patched(results: Iterable[Result], patched: JsonObject) -> JsonObject:
    for result in results:
        if result.patched is not None and result.target is None:
            patched = result.patched
    return patched
