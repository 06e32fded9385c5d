"""On which path of the webhook server is each policy served?

The webhook configurations name these paths, the server looks policies up by them. Both read the
same list of policies at different moments: a path that the API server still calls must find its
policies after other policies have come, changed or gone.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby

import msgspec

from lictor.cluster.flags import Flags
from lictor.cluster.store import StoredPolicy
from lictor.model.policy import Mutate, Policy, Rule

FINE_GRAINED = "finegrained"
_KUBERNETES = "Kubernetes"


class Family(StrEnum):
    """Policies of one kind share their paths; the value is the first part of the path."""

    CLASSIC = "classic"
    VALIDATING = "vpol"
    NAMESPACED_VALIDATING = "nvpol"
    MUTATING = "mpol"
    NAMESPACED_MUTATING = "nmpol"
    GENERATING = "gpol"
    NAMESPACED_GENERATING = "ngpol"
    IMAGE_VALIDATING = "ivpol"
    NAMESPACED_IMAGE_VALIDATING = "nivpol"


FAMILY_OF_KIND = {
    "ClusterPolicy": Family.CLASSIC,
    "Policy": Family.CLASSIC,
    "ValidatingPolicy": Family.VALIDATING,
    "NamespacedValidatingPolicy": Family.NAMESPACED_VALIDATING,
    "MutatingPolicy": Family.MUTATING,
    "NamespacedMutatingPolicy": Family.NAMESPACED_MUTATING,
    "GeneratingPolicy": Family.GENERATING,
    "NamespacedGeneratingPolicy": Family.NAMESPACED_GENERATING,
    "ImageValidatingPolicy": Family.IMAGE_VALIDATING,
    "NamespacedImageValidatingPolicy": Family.NAMESPACED_IMAGE_VALIDATING,
}
_IMAGES = (Family.IMAGE_VALIDATING, Family.NAMESPACED_IMAGE_VALIDATING)
_MUTATING = (Family.MUTATING, Family.NAMESPACED_MUTATING, *_IMAGES)
_VALIDATING = (
    Family.VALIDATING,
    Family.NAMESPACED_VALIDATING,
    Family.GENERATING,
    Family.NAMESPACED_GENERATING,
    *_IMAGES,
)


class Route(msgspec.Struct, frozen=True):
    """A path, and the policies that are asked there."""

    path: str
    mutating: bool
    failure_policy: str
    # StoredPolicy.key, unique within a family.
    policy_keys: tuple[str, ...]
    family: Family
    # One policy with conditions or limits of its own.
    fine_grained: bool = False


def list_routes(policies: Iterable[StoredPolicy], flags: Flags) -> tuple[Route, ...]:
    """All paths that the policies of now are served on."""
    served = [policy for policy in policies if is_served(policy)]
    routes: list[Route] = []
    for mutating in (True, False):
        routes += _list_classic(served, flags, mutating=mutating)
        for family in _MUTATING if mutating else _VALIDATING:
            members = [policy for policy in served if family_of(policy) == family]
            routes += _list_cel(family, members, mutating=mutating)
    return tuple(routes)


def find_policies(
    path: str, policies: Iterable[StoredPolicy], *, fine_grained: bool = True
) -> tuple[StoredPolicy, ...]:
    """The policies that a path stands for; names that are not there any more are passed over.

    `fine_grained` is False where the configurations are not kept in step with the policies: then
    the two wide paths are all there is.
    """
    first, *rest = path.strip("/").split("/")
    if first in ("validate", "mutate"):
        return _find_classic(rest, policies, mutating=first == "mutate", fine_grained=fine_grained)
    family = _family_of_path(first)
    if family is None:
        return ()
    mutating = family in (Family.MUTATING, Family.NAMESPACED_MUTATING)
    if family in _IMAGES:
        mutating = rest[:1] == ["mutate"]
        rest = rest[1:]
    names = frozenset(rest)
    return tuple(
        policy
        for policy in policies
        if policy.name in names
        and family_of(policy) == family
        and is_asked(policy, mutating=mutating)
    )


def family_of(policy: StoredPolicy) -> Family | None:
    """Which paths a policy belongs to; None for kinds that no request is judged by."""
    return FAMILY_OF_KIND.get(policy.resource.kind)


def failure_policy_of(policy: StoredPolicy) -> str:
    """What the API server does when we do not answer; nothing is refused for want of a copy."""
    generates = family_of(policy) in (Family.GENERATING, Family.NAMESPACED_GENERATING)
    return "Ignore" if generates else policy.failure_policy


def is_served(policy: StoredPolicy) -> bool:
    """Shall the API server ask us about this policy at all?"""
    if not policy.admission or policy.is_native or policy.record is None:
        return False
    if isinstance(policy.record, Policy):
        return True
    mode = ((policy.document.get("spec") or {}).get("evaluation") or {}).get("mode")
    return family_of(policy) is not None and mode in (None, "", _KUBERNETES)


def is_asked(policy: StoredPolicy, *, mutating: bool) -> bool:
    """Has a policy something to say when objects are changed, or when they are checked?"""
    if not is_served(policy):
        return False
    record = policy.record
    if isinstance(record, Policy):
        test = is_mutating_rule if mutating else is_validating_rule
        rules = record.spec.rules
        return policy.derive(("is_asked", mutating), lambda: any(map(test, rules)))
    return family_of(policy) in (_MUTATING if mutating else _VALIDATING)


def is_mutating_rule(rule: Rule) -> bool:
    """Can a rule change the object of a request?"""
    changes = rule.mutate is not None and rule.mutate != Mutate() and not rule.mutate.targets
    return changes or bool(rule.verify_images)


def is_validating_rule(rule: Rule) -> bool:
    """Does a rule check the object as it will be stored, or follow from it being stored?"""
    checks_images = any(each.verify_digest or each.required for each in rule.verify_images)
    changes_others = rule.mutate is not None and bool(rule.mutate.targets)
    return rule.validate is not None or rule.generate is not None or changes_others or checks_images


def has_own_conditions(policy: StoredPolicy) -> bool:
    """Has a classic policy conditions that the API server tests before it calls us?"""
    if not isinstance(policy.record, Policy):
        return False
    configuration = policy.record.spec.webhook_configuration
    return configuration is not None and bool(configuration.match_conditions)


def build_classic_path(policy: StoredPolicy | None, failure_policy: str, *, mutating: bool) -> str:
    """The path of the classic policies with a failure policy, or of one with its own webhook."""
    path = f"/{'mutate' if mutating else 'validate'}/{failure_policy.lower()}"
    return path if policy is None else f"{path}/{FINE_GRAINED}/{policy.key}"


def build_cel_path(family: Family, names: Iterable[str], *, mutating: bool) -> str:
    """The path of CEL policies: it names them."""
    stage = ("mutate" if mutating else "validate",) if family in _IMAGES else ()
    return "/" + "/".join((family.value, *stage, *sorted(set(names))))


def _list_classic(served: list[StoredPolicy], flags: Flags, *, mutating: bool) -> list[Route]:
    asked = [
        policy
        for policy in served
        if family_of(policy) == Family.CLASSIC and is_asked(policy, mutating=mutating)
    ]
    routes: list[Route] = []
    for failure_policy in ("Fail", "Ignore"):
        members = [policy for policy in asked if policy.failure_policy == failure_policy]
        own = [each for each in members if flags.auto_update_webhooks and has_own_conditions(each)]
        keys = tuple(sorted(policy.key for policy in members if policy not in own))
        if keys:
            path = build_classic_path(None, failure_policy, mutating=mutating)
            routes.append(Route(path, mutating, failure_policy, keys, Family.CLASSIC))
        for policy in own:
            path = build_classic_path(policy, failure_policy, mutating=mutating)
            route = Route(
                path, mutating, failure_policy, (policy.key,), Family.CLASSIC, fine_grained=True
            )
            routes.append(route)
    return routes


def _list_cel(family: Family, members: list[StoredPolicy], *, mutating: bool) -> list[Route]:
    ordered = sorted(members, key=lambda policy: (failure_policy_of(policy), policy.key))
    routes: list[Route] = []
    for failure_policy, group in groupby(ordered, key=failure_policy_of):
        chosen = list(group)
        path = build_cel_path(family, (policy.name for policy in chosen), mutating=mutating)
        keys = tuple(policy.key for policy in chosen)
        routes.append(Route(path, mutating, failure_policy, keys, family))
    return routes


def _find_classic(
    rest: list[str], policies: Iterable[StoredPolicy], *, mutating: bool, fine_grained: bool
) -> tuple[StoredPolicy, ...]:
    asked = [
        policy
        for policy in policies
        if family_of(policy) == Family.CLASSIC and is_asked(policy, mutating=mutating)
    ]
    match rest:
        case []:
            return tuple(asked)
        case [failure_policy]:
            return tuple(
                policy
                for policy in asked
                if policy.failure_policy.lower() == failure_policy
                and not (fine_grained and has_own_conditions(policy))
            )
        case [_, "finegrained", *key]:
            # By its name alone: its failure policy may have changed since.
            return tuple(policy for policy in asked if policy.key == "/".join(key))
        case _:
            return ()


def _family_of_path(first: str) -> Family | None:
    try:
        family = Family(first)
    except ValueError:
        return None
    return None if family is Family.CLASSIC else family
