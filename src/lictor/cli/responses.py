"""Results grouped as tests expect them: one response per resource, policy and type of rule."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lictor.cli.inputs.policies import mode_of
from lictor.core.families.registry import refer, registry
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import Result, RuleType, Verdict
from lictor.core.raw import JsonObject

# apiVersion, kind, namespace, name
ResourceKey = tuple[str, str, str, str]


class PolicyUnderTest(msgspec.Struct, frozen=True):
    """A policy, and the types of rules that a test expects a response of, even an empty one."""

    policy: PolicyRecord
    works: frozenset[RuleType]

    @property
    def key(self) -> tuple[str, str]:
        """The kind and name of the policy as results have them."""
        return self.policy.kind, refer(self.policy).key


class TestedResponse(msgspec.Struct, frozen=True):
    """The results of the rules of one policy and type for one resource; may be empty."""

    policy: PolicyRecord
    type: RuleType
    results: tuple[Result, ...]
    resource: JsonObject
    # The resource as the mutations up to this policy left it.
    patched: JsonObject


class TestAnswers(msgspec.Struct, frozen=True):
    """All responses of a test: by resource, and by the other objects that mutations changed."""

    triggers: dict[ResourceKey, list[TestedResponse]] = msgspec.field(default_factory=dict)
    targets: dict[ResourceKey, list[TestedResponse]] = msgspec.field(default_factory=dict)
    # The same for requests of the operations that rows of the test name.
    by_operation: "dict[str, TestAnswers]" = msgspec.field(default_factory=dict)


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


# --- which responses a test expects


def list_tested_policies(policies: Iterable[PolicyRecord]) -> list[PolicyUnderTest]:
    """Return all policies, in the order of evaluation."""
    return [PolicyUnderTest(policy, _list_work(policy)) for policy in policies]


def _list_work(policy: PolicyRecord) -> frozenset[RuleType]:
    if mode_of(policy) != "Kubernetes":
        return frozenset()
    return registry().of(policy).family.list_expected_work(policy)


# --- responses


def list_responses(
    verdict: Verdict, tested_policies: Sequence[PolicyUnderTest]
) -> list[TestedResponse]:
    """A response for each policy and type of rule, also an empty one if the test expects it.

    Generation is named only if objects were generated.
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
) -> Iterator[TestedResponse]:
    resource = verdict.request.resource
    patched = resource
    for work in _WORKS:
        for tested in tested_policies:
            results = tuple(found.get((tested.key, work), ()))
            if not results and work not in tested.works:
                continue
            patched = _last_patched(results, patched)
            shown = patched
            kind = registry().of(tested.policy)
            if work is RuleType.MUTATION and kind.phases == (Phase.MUTATE,) and not kind.is_native:
                # Kyverno evaluates all of them, and compares with the final object.
                shown = _last_patched(verdict.results, resource)
            yield TestedResponse(tested.policy, work, results, resource, shown)


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
