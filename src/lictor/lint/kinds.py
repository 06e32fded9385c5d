"""Which of Kubernetes' own kinds, and of ours, are namespaced, and which are cluster-scoped?"""

from functools import cache
from typing import Final

from lictor.families.registry import registry
from lictor.kubernetes.resource_names import builtin_names

# Kinds that are only ever sent to a subresource.
SUBRESOURCE_KINDS: Final = frozenset(
    [
        *("Binding", "Eviction", "NodeProxyOptions", "PodAttachOptions", "PodExecOptions"),
        *("PodPortForwardOptions", "PodProxyOptions", "Scale", "ServiceProxyOptions"),
        "TokenRequest",
    ]
)


@cache
def known_kinds() -> dict[str, dict[str, bool]]:
    """By kind: the groups that have it, and whether it is namespaced there."""
    kinds: dict[str, dict[str, bool]] = {}
    for resource in builtin_names().known:
        kinds.setdefault(resource.kind, {})[resource.group] = bool(resource.namespaced)
    for policy in registry().kinds:
        kinds.setdefault(policy.kind, {})[policy.group] = policy.namespaced
    return kinds


def is_cluster_wide(group: str, kind: str) -> bool:
    """A known kind that has no namespace; `*` stands for any group."""
    return _has_scope(group, kind, namespaced=False)


def is_namespaced(group: str, kind: str) -> bool:
    """A known kind that lives in a namespace; `*` stands for any group."""
    return _has_scope(group, kind, namespaced=True)


def _has_scope(group: str, kind: str, *, namespaced: bool) -> bool:
    groups = known_kinds().get(kind, {})
    found = groups.values() if group == "*" else [groups[group]] if group in groups else []
    return namespaced in found
