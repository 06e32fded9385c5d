"""What may Kyverno's controllers do that lictor's may not?

Policies that make, change or delete objects need rights on their kinds. Those that were given by a
label (`rbac.kyverno.io/aggregate-to-...`) count for lictor too; those that Kyverno's own roles give
may not be there any more.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from lictor.raw import JsonObject

_ALL = "*"
_CORE = ":core"
# What lictor does not need, because it keeps no such objects, or asks for it in another way.
_UNNEEDED = frozenset((
    "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io",
    "coordination.k8s.io", "events.k8s.io", "kyverno.io", "openreports.io", "policies.kyverno.io",
    "reports.kyverno.io", "wgpolicyk8s.io",
))  # fmt: skip
_READING = frozenset(("get", "list", "watch"))
# Kinds of the group without a name that are about the installation itself.
_OWN_CORE = frozenset(("events", "namespaces", "secrets", "configmaps", "serviceaccounts", "pods"))


class MissingRight(msgspec.Struct, frozen=True, order=True):
    """Something that a role of Kyverno's gives, and lictor's of the same name does not."""

    role: str
    resource: str
    verbs: tuple[str, ...]


def find_missing_rights(
    objects: Iterable[JsonObject], manifests: Iterable[JsonObject]
) -> Iterator[MissingRight]:
    """Compare the ClusterRoles of Kyverno's controllers with those that take their place."""
    ours = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "ClusterRole"}
    for role in objects:
        name = role["metadata"]["name"]
        if role["kind"] != "ClusterRole" or not name.endswith(_CORE) or name not in ours:
            continue
        given = set(_expand(ours[name].get("rules") or ()))
        missing: dict[str, list[str]] = {}
        for right in sorted(set(_expand(role.get("rules") or ()))):
            group, resource, verb = right
            if _concerns_policies(group, resource, verb) and not _is_given(given, right):
                missing.setdefault(_write_resource(group, resource), []).append(verb)
        for resource, verbs in missing.items():
            yield MissingRight(name.removesuffix(_CORE), resource, tuple(verbs))


def _expand(rules: Iterable[JsonObject]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        # A right on objects of certain names is about the installation's own.
        if not rule.get("resourceNames"):
            yield from product(
                rule.get("apiGroups") or (), rule.get("resources") or (), rule.get("verbs") or ()
            )


def _concerns_policies(group: str, resource: str, verb: str) -> bool:
    """Is it a right to change what policies may be about?"""
    if verb in _READING:
        return False
    if group == "":
        return resource.partition("/")[0] not in _OWN_CORE
    return group not in _UNNEEDED


def _is_given(given: set[tuple[str, str, str]], right: tuple[str, str, str]) -> bool:
    choices = product(*((part, _ALL) for part in right))
    return any(choice in given for choice in choices)


def _write_resource(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource
