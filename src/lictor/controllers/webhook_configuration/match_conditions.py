"""Conditions that keep a cluster bootable when no webhook answers.

The API server evaluates them before it calls: what a cold cluster needs to start is never sent to
lictor, unless a policy names it. Neither are objects that the settings exempt.
"""

from collections.abc import Callable, Iterable

import msgspec

from lictor.controllers.webhook_configuration.rules import (
    ALL,
    RuleEntry,
    excludes_namespace,
    names_namespace,
)
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import JsonObject
from lictor.kubernetes.discovery import ServedResource
from lictor.kubernetes.names import Names
from lictor.kubernetes.settings import CallerExclusion, Settings
from lictor.kubernetes.stored_policy import StoredPolicy

KUBE_SYSTEM = "kube-system"
# Group, and resource with subresource: without these neither nodes nor controllers come up.
_NEEDED = (
    ("", "nodes"),
    ("", "serviceaccounts/token"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
)
_CLUSTER_ROLES = ("rbac.authorization.k8s.io", "clusterroles")
# The API server itself: at start it writes roles, priority levels and Services.
_API_SERVER = "system:apiserver"
_RESOURCE = 'request.resource.group + "/" + request.resource.resource'
_SUBRESOURCE = '(has(request.subResource) ? "/" + request.subResource : "")'


class Exemptions(msgspec.Struct, frozen=True):
    """What is never sent to the webhooks of this installation."""

    own_namespace: str
    # The ClusterRole that owns the webhooks: while it cannot be deleted, neither can they.
    owner_role: str
    # Unless the settings select the namespaces themselves.
    system_namespaces: tuple[str, ...] = ()
    # Only for webhooks for everything: a policy that matches `*` need not name these.
    namespaces: tuple[str, ...] = ()
    users: tuple[str, ...] = (_API_SERVER,)
    groups: tuple[str, ...] = ()
    # Such as `/events` or `apps/replicasets/status`
    resources: tuple[str, ...] = ()


def build_exemptions(
    names: Names, settings: Settings, find: Callable[[str], tuple[ServedResource, ...]]
) -> Exemptions:
    """The exemptions of an installation with these settings, in a cluster with these kinds."""
    spoken = settings.webhook_namespace_selector is not None
    users, groups = settings.exclude_usernames, settings.exclude_groups
    # `!name` among the exclusions may include a caller again: only the server can decide that.
    roles, cluster_roles = settings.exclude_roles, settings.exclude_cluster_roles
    plain = not any(each.included for each in (users, groups, roles, cluster_roles))
    return Exemptions(
        names.namespace,
        names.owner_role,
        () if spoken else (KUBE_SYSTEM,),
        _list_filtered_namespaces(settings),
        tuple(sorted({_API_SERVER, *(_list_exact(users) if plain else ())})),
        tuple(sorted(_list_exact(groups))) if plain else (),
        _list_filtered_resources(settings, find),
    )


def build_conditions(
    exemptions: Exemptions,
    rules: list[JsonObject],
    named: Iterable[tuple[str, str]],
    selector: JsonObject,
    policies: Iterable[StoredPolicy],
) -> list[JsonObject]:
    """The conditions that a webhook with these rules needs.

    `named` are the groups and resources that policies name explicitly: those are sent.
    """
    wide = any(path.startswith(ALL) for rule in rules for path in rule["resources"])
    namespaces = {exemptions.own_namespace, *exemptions.system_namespaces}
    conditions = _exempt_namespaces(
        namespaces | set(exemptions.namespaces if wide else ()), selector, tuple(policies)
    )
    if any(_covers(rule, *_CLUSTER_ROLES) for rule in rules):
        conditions += _exempt_owner(exemptions)
    if wide:
        explicit = {(group, path.partition("/")[0]) for group, path in named}
        conditions += _exempt_needed(rules, explicit)
        conditions += _exempt_callers(exemptions)
        conditions += _exempt_filtered(exemptions)
    return conditions


def select_kinds(entries: Iterable[RuleEntry]) -> JsonObject:
    """The condition that admits only kinds that the cluster does not serve yet."""
    tests = set()
    for entry in entries:
        test = f"request.kind.kind == {_quote([entry.unserved_kind])[1:-1]}"
        if entry.subresource:
            # The kind of `widgets/scale` is Scale.
            part = _quote([entry.subresource])[1:-1]
            test = f"(has(request.subResource) && request.subResource == {part})"
        if entry.group != ALL:
            test = f"({test} && request.resource.group == {_quote([entry.group])[1:-1]})"
        tests.add(test)
    return {"name": "only-kinds-not-served-yet", "expression": " || ".join(sorted(tests))}


def list_named(rules: Iterable[JsonObject]) -> set[tuple[str, str]]:
    """The groups and resources that rules name without a wildcard."""
    return {
        (group, path)
        for rule in rules
        for group in rule["apiGroups"]
        for path in rule["resources"]
        if ALL not in (group, path.partition("/")[0])
    }


def _exempt_namespaces(
    namespaces: set[str], selector: JsonObject, policies: tuple[StoredPolicy, ...]
) -> list[JsonObject]:
    left = [
        namespace
        for namespace in sorted(namespaces)
        if not excludes_namespace(selector, namespace)
        and not any(names_namespace(policy, namespace) for policy in policies)
    ]
    if not left:
        return []
    within = f"(has(request.namespace) && request.namespace in {_quote(left)})"
    # When a Namespace is created, it is in no namespace yet.
    itself = (
        f'({_RESOURCE} == "/namespaces" && has(request.name) && request.name in {_quote(left)})'
    )
    return [{"name": "leave-namespaces-alone", "expression": f"!({within} || {itself})"}]


def _exempt_owner(exemptions: Exemptions) -> list[JsonObject]:
    name = f"has(request.name) && request.name in {_quote([exemptions.owner_role])}"
    text = f'!({_RESOURCE} == "{"/".join(_CLUSTER_ROLES)}" && {name})'
    return [{"name": "leave-owner-alone", "expression": text}]


def _exempt_needed(rules: list[JsonObject], explicit: set[tuple[str, str]]) -> list[JsonObject]:
    needed = [
        (group, path)
        for group, path in _NEEDED
        if (group, path.partition("/")[0]) not in explicit
        and any(_covers(rule, group, path) for rule in rules)
    ]
    # A whole resource includes its subresources (`nodes/status`).
    whole = [f"{group}/{path}" for group, path in needed if "/" not in path]
    parts = [f"{group}/{path}" for group, path in needed if "/" in path]
    tests = [f"{_RESOURCE} in {_quote(whole)}"] if whole else []
    tests += [f"{_RESOURCE} + {_SUBRESOURCE} in {_quote(parts)}"] if parts else []
    if not tests:
        return []
    return [{"name": "leave-cold-start-alone", "expression": f"!({' || '.join(tests)})"}]


def _covers(rule: JsonObject, group: str, path: str) -> bool:
    if not {group, ALL} & set(rule["apiGroups"]):
        return False
    resource, _, subresource = path.partition("/")
    return any(_covers_path(each, resource, subresource) for each in rule["resources"])


def _covers_path(pattern: str, resource: str, subresource: str) -> bool:
    wanted, _, part = pattern.partition("/")
    return wanted in (ALL, resource) and (not subresource or part in (ALL, subresource))


def _exempt_callers(exemptions: Exemptions) -> list[JsonObject]:
    user = (
        f"has(request.userInfo.username) && request.userInfo.username in {_quote(exemptions.users)}"
    )
    tests = [f"({user})"]
    if exemptions.groups:
        groups = f"request.userInfo.groups.exists(group, group in {_quote(exemptions.groups)})"
        tests.append(f"(has(request.userInfo.groups) && {groups})")
    return [{"name": "leave-callers-alone", "expression": f"!({' || '.join(tests)})"}]


def _exempt_filtered(exemptions: Exemptions) -> list[JsonObject]:
    if not exemptions.resources:
        return []
    text = f"!({_RESOURCE} + {_SUBRESOURCE} in {_quote(exemptions.resources)})"
    return [{"name": "leave-filtered-alone", "expression": text}]


def _list_filtered_namespaces(settings: Settings) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                each.namespace
                for each in settings.resource_filters
                if each.kind == "*/*" and each.name == ALL and not has_wildcard(each.namespace)
            }
            - {""}
        )
    )


def _list_filtered_resources(
    settings: Settings, find: Callable[[str], tuple[ServedResource, ...]]
) -> tuple[str, ...]:
    """Kinds whose objects are all exempt by the filters."""
    kinds = [
        each.kind
        for each in settings.resource_filters
        if each.namespace == each.name == ALL and _names_all_versions(each.kind)
    ]
    return tuple(sorted({f"{each.group}/{each.path}" for kind in kinds for each in find(kind)}))


def _names_all_versions(kind: str) -> bool:
    selector = parse_kind_selector(kind)
    return selector.version == ALL and not has_wildcard(selector.kind)


def _list_exact(exclusion: CallerExclusion) -> list[str]:
    return [name for name in exclusion.excluded if not has_wildcard(name)]


def _quote(texts: Iterable[str]) -> str:
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "[" + ", ".join(f'"{text}"' for text in escaped) + "]"
