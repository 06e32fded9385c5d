"""Answers in the order people expect: one Response per resource, policy and kind of work."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lictor.model.policy import Policy, Rule
from lictor.model.result import PolicyRef, Result, RuleType, Verdict
from lictor.raw import JsonObject

# apiVersion, kind, namespace, name
ResourceKey = tuple[str, str, str, str]


class Response(msgspec.Struct, frozen=True):
    """What the rules of one policy, of one kind of work, said about one resource: maybe nothing."""

    policy: Policy
    type: RuleType
    results: tuple[Result, ...]
    resource: JsonObject
    # The resource as the mutations up to this policy left it.
    patched: JsonObject


class Answers(msgspec.Struct, frozen=True):
    """All responses of a test: by resource, and by the other objects that mutations changed."""

    triggers: dict[ResourceKey, list[Response]] = msgspec.field(default_factory=dict)
    targets: dict[ResourceKey, list[Response]] = msgspec.field(default_factory=dict)
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


def list_responses(verdict: Verdict, policies: Sequence[Policy]) -> list[Response]:
    """A response for each policy and kind of work it does, even where no rule had anything to say.

    Generation alone is named only where it happened: nobody expects it elsewhere.
    """
    found: dict[tuple[str, RuleType], list[Result]] = {}
    for result in verdict.results:
        found.setdefault((result.policy.key, result.type), []).append(result)
    return list(_walk(verdict, policies, found))


def refer_to(policy: Policy) -> str:
    """The key under which results name a policy."""
    namespace = (policy.metadata.namespace or "default") if policy.kind == "Policy" else ""
    return PolicyRef(policy.metadata.name, namespace).key


def _walk(
    verdict: Verdict,
    policies: Sequence[Policy],
    found: dict[tuple[str, RuleType], list[Result]],
) -> Iterator[Response]:
    resource = verdict.request.resource
    patched = resource
    for work in _WORKS:
        for policy in policies:
            results = tuple(found.get((refer_to(policy), work), ()))
            if not results and (work is RuleType.GENERATION or not _does(policy, work)):
                continue
            patched = _last_patched(results, patched)
            yield Response(policy, work, results, resource, patched)


_WORKS = (RuleType.MUTATION, RuleType.IMAGE_VERIFY, RuleType.VALIDATION, RuleType.GENERATION)


def _does(policy: Policy, work: RuleType) -> bool:
    return any(_rule_does(rule, work) for rule in policy.spec.rules)


def _rule_does(rule: Rule, work: RuleType) -> bool:
    match work:
        case RuleType.MUTATION:
            return rule.mutate is not None
        case RuleType.IMAGE_VERIFY:
            return bool(rule.verify_images)
        case RuleType.VALIDATION:
            return rule.validate is not None
        case _:
            return False


def _last_patched(results: Iterable[Result], patched: JsonObject) -> JsonObject:
    for result in results:
        if result.patched is not None and result.target is None:
            patched = result.patched
    return patched
