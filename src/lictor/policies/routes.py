"""On which path of the webhook server is each policy served?

The webhook configurations name these paths, the server looks policies up by them. Both read the
same list of policies at different moments: a path that the API server still calls must find its
policies after other policies have come, changed or gone.
"""

from collections.abc import Iterable
from functools import cache
from itertools import groupby

import msgspec

from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import WebhookPath
from lictor.core.families.registry import registry
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.stored_policy import StoredPolicy

FINE_GRAINED = "finegrained"
_KUBERNETES = "Kubernetes"


class Route(msgspec.Struct, frozen=True):
    """A path, and the policies that it serves."""

    path: str
    mutating: bool
    failure_policy: str
    # StoredPolicy.key, unique within what begins with the same part of a path.
    policy_keys: tuple[str, ...]
    segment: str
    # One policy with its own conditions or limits.
    fine_grained: bool = False


def list_routes(policies: Iterable[StoredPolicy], flags: Flags) -> tuple[Route, ...]:
    """All paths that the policies of now are served on."""
    served = [policy for policy in policies if is_served(policy)]
    routes: list[Route] = []
    for mutating in (True, False):
        routes += _list_classic(served, flags, mutating=mutating)
        for kind in list_path_kinds(mutating=mutating):
            members = [policy for policy in served if policy.kind is kind]
            routes += _list_named(kind, members, mutating=mutating)
    routes += [_route_alone(policy) for policy in served if is_for_own_server(policy)]
    return tuple(routes)


def _route_alone(policy: StoredPolicy) -> Route:
    path = f"/validate/{policy.unique_name}"
    return Route(
        path,
        mutating=True,
        failure_policy=policy.failure_policy,
        policy_keys=(policy.key,),
        segment="",
        fine_grained=True,
    )


@cache
def _list_prefixes() -> tuple[str, ...]:
    kinds = (kind.path for kind in registry().kinds if kind.path is not None)
    prefixes = [path.policy_prefix for path in kinds if path.per_policy]
    return tuple(f"{prefix}{separator}" for prefix in prefixes for separator in "-.")


def is_unique_name(text: str) -> bool:
    """Is it the name of a policy that has its own path?"""
    return text.startswith(_list_prefixes())


def is_for_own_server(policy: StoredPolicy) -> bool:
    """Has it its own path, and no other server than the default one, which lictor may be?"""
    path = policy.kind.path
    if path is None or not policy.unique_name:
        return False
    named = (policy.document.get("spec") or {}).get("policyServer")
    return named in (None, "", path.default_server)


def find_policies(
    path: str, policies: Iterable[StoredPolicy], *, fine_grained: bool = True
) -> tuple[StoredPolicy, ...]:
    """The policies that a path stands for; names that are not there any more are passed over.

    `fine_grained` is False where the configurations are not kept in step with the policies: then
    the two wide paths are all there is.
    """
    first, *rest = path.strip("/").split("/")
    if len(rest) == 1 and is_unique_name(rest[0]):
        return tuple(policy for policy in policies if policy.unique_name == rest[0])
    if first in ("validate", "mutate"):
        return _find_classic(rest, policies, mutating=first == "mutate", fine_grained=fine_grained)
    kind = find_path_kind(first)
    if kind is None or kind.path is None:
        return ()
    mutating = kind.path.mutating
    if kind.path.names_stage:
        mutating = rest[:1] == ["mutate"]
        rest = rest[1:]
    names = frozenset(rest)
    return tuple(
        policy
        for policy in policies
        if policy.name in names and policy.kind is kind and is_asked(policy, mutating=mutating)
    )


def list_path_kinds(*, mutating: bool) -> tuple[PolicyKind, ...]:
    """The kinds that have their own paths for mutation, or for validation."""
    return tuple(
        kind
        for kind in registry().kinds
        if kind.path is not None
        and kind.path.segment
        and (kind.path.mutating if mutating else kind.path.validating)
    )


def find_path_kind(segment: str) -> PolicyKind | None:
    """The kind whose paths begin so."""
    known = (kind for kind in registry().kinds if kind.path is not None and kind.path.segment)
    return next((kind for kind in known if kind.path and kind.path.segment == segment), None)


def shares_paths(policy: StoredPolicy) -> bool:
    """Is a policy served on the paths that kinds without their own share?"""
    return policy.kind.path is not None and policy.kind.path.is_shared


def is_served(policy: StoredPolicy) -> bool:
    """Does the API server call the webhook for this policy at all?"""
    if not policy.admission or policy.is_native or policy.record is None:
        return False
    mode = ((policy.document.get("spec") or {}).get("evaluation") or {}).get("mode")
    return policy.kind.path is not None and mode in (None, "", _KUBERNETES)


def is_asked(policy: StoredPolicy, *, mutating: bool) -> bool:
    """Is a policy evaluated by mutating webhooks, or by validating ones?"""
    if not is_served(policy):
        return False
    record, kind = policy.record, policy.kind
    return policy.derive(
        ("is_asked", mutating),
        lambda: record is not None and kind.family.is_asked(kind, record, mutating=mutating),
    )


def has_own_conditions(policy: StoredPolicy) -> bool:
    """Has a classic policy conditions that the API server tests before it calls us?"""
    if not shares_paths(policy) or policy.record is None:
        return False
    configuration = policy.record.spec.webhook_configuration
    return configuration is not None and bool(configuration.match_conditions)


def build_classic_path(policy: StoredPolicy | None, failure_policy: str, *, mutating: bool) -> str:
    """The path of the classic policies with a failure policy, or of one with its own webhook."""
    path = f"/{'mutate' if mutating else 'validate'}/{failure_policy.lower()}"
    return path if policy is None else f"{path}/{FINE_GRAINED}/{policy.key}"


def build_named_path(kind: PolicyKind, names: Iterable[str], *, mutating: bool) -> str:
    """The path of policies whose kind has its own path: it names them."""
    path = kind.path or WebhookPath()
    stage = ("mutate" if mutating else "validate",) if path.names_stage else ()
    return "/" + "/".join((path.segment, *stage, *sorted(set(names))))


def _list_classic(served: list[StoredPolicy], flags: Flags, *, mutating: bool) -> list[Route]:
    evaluated = [
        policy for policy in served if shares_paths(policy) and is_asked(policy, mutating=mutating)
    ]
    routes: list[Route] = []
    for failure_policy in ("Fail", "Ignore"):
        members = [policy for policy in evaluated if policy.failure_policy == failure_policy]
        own = [each for each in members if flags.auto_update_webhooks and has_own_conditions(each)]
        keys = tuple(sorted(policy.key for policy in members if policy not in own))
        if keys:
            path = build_classic_path(None, failure_policy, mutating=mutating)
            routes.append(Route(path, mutating, failure_policy, keys, ""))
        for policy in own:
            path = build_classic_path(policy, failure_policy, mutating=mutating)
            route = Route(path, mutating, failure_policy, (policy.key,), "", fine_grained=True)
            routes.append(route)
    return routes


def _list_named(kind: PolicyKind, members: list[StoredPolicy], *, mutating: bool) -> list[Route]:
    ordered = sorted(members, key=lambda policy: (policy.failure_policy, policy.key))
    routes: list[Route] = []
    for failure_policy, group in groupby(ordered, key=lambda policy: policy.failure_policy):
        chosen = list(group)
        path = build_named_path(kind, (policy.name for policy in chosen), mutating=mutating)
        keys = tuple(policy.key for policy in chosen)
        routes.append(
            Route(path, mutating, failure_policy, keys, kind.path.segment if kind.path else "")
        )
    return routes


def _find_classic(
    rest: list[str], policies: Iterable[StoredPolicy], *, mutating: bool, fine_grained: bool
) -> tuple[StoredPolicy, ...]:
    evaluated = [
        policy
        for policy in policies
        if shares_paths(policy) and is_asked(policy, mutating=mutating)
    ]
    match rest:
        case []:
            return tuple(evaluated)
        case [failure_policy]:
            return tuple(
                policy
                for policy in evaluated
                if policy.failure_policy.lower() == failure_policy
                and not (fine_grained and has_own_conditions(policy))
            )
        case [_, "finegrained", *key]:
            # By its name alone: its failure policy may have changed since.
            return tuple(policy for policy in evaluated if policy.key == "/".join(key))
        case _:
            return ()
