"""Classifies documents: policies that lictor runs, policies it does not run, and mistakes."""

import re
from functools import cache
from typing import Final

from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject

# Related to policies, but evaluates nothing itself.
COMPANION: Final = ("kyverno.io", "GlobalContextEntry")
# Policies of other engines, by group; an empty set means every kind. Lictor does not run them, and
# must not treat them as resources, which could pass.
_OTHER_ENGINES: Final[dict[str, frozenset[str]]] = {
    "json.kyverno.io": frozenset(["ValidatingPolicy"]),
    "templates.gatekeeper.sh": frozenset(["ConstraintTemplate"]),
    "constraints.gatekeeper.sh": frozenset(),
    "mutations.gatekeeper.sh": frozenset(),
    "expansion.gatekeeper.sh": frozenset(["ExpansionTemplate"]),
    "policy.sigstore.dev": frozenset(["ClusterImagePolicy"]),
    "policy.jspolicy.com": frozenset(["JsPolicy", "JsPolicyBundle"]),
    "policy.open-cluster-management.io": frozenset(["Policy", "ConfigurationPolicy"]),
}
# How kinds of policies that evaluate requests are named, and their fields: other projects have
# policies about traffic or quotas, which are plain resources.
_POLICY_KIND = re.compile(r"Polic(?:y|ies)(?:Group)?$|Constraint(?:Template)?$")
_JUDGING_FIELDS: Final = frozenset(
    (
        *("validations", "validationActions", "validationFailureAction", "matchConstraints"),
        *("module", "rego", "javascript", "violationPolicy", "enforcementAction"),
    )
)
# Not policies, though in such a group: some test files have `kyverno.io/v1`.
_OTHERS: Final = frozenset(
    ("kyverno.io", kind)
    for kind in ("UpdateRequest", "Test", "Values", "UserInfo", "Context", "ClusterResource")
)


def is_policy(group: str, kind: str) -> bool:
    """Whether documents of this kind are loaded as records."""
    return registry().find(group, kind) is not None


def is_raw(group: str, kind: str, body: JsonObject) -> bool:
    """Whether this stays plain JSON: related to policies, or a policy that lictor cannot run."""
    return (group, kind) == COMPANION or is_unsupported(group, kind, body)


def is_unsupported(group: str, kind: str, body: JsonObject) -> bool:
    """Whether this is a policy of another engine, or looks like one."""
    if is_policy(group, kind) or group in list_policy_groups() - _OTHER_ENGINES.keys():
        return False
    kinds = _OTHER_ENGINES.get(group)
    if kinds is not None:
        return not kinds or kind in kinds
    spec = body.get("spec")
    return (
        "." in group
        and _POLICY_KIND.search(kind) is not None
        and isinstance(spec, dict)
        and not _JUDGING_FIELDS.isdisjoint(spec)
        # A group that is nearly right is reported as a mistake.
        and find_unknown(group, kind) is None
    )


@cache
def _list_known() -> frozenset[tuple[str, str]]:
    unsupported = {(group, kind) for group, kinds in _OTHER_ENGINES.items() for kind in kinds}
    return frozenset([*(kind.key for kind in registry().kinds), COMPANION, *unsupported])


@cache
def list_policy_groups() -> frozenset[str]:
    """The groups that contain only policies and related kinds."""
    ours = (kind.group for kind in registry().kinds if not kind.is_native)
    return frozenset([*ours, "json.kyverno.io"])


def find_unknown(group: str, kind: str) -> tuple[str, str, str] | None:
    """The unknown part of what should be a policy: field, word, and suggestion."""
    # Imported on demand: unknown kinds are rare.
    from difflib import get_close_matches

    if group in list_policy_groups():
        kinds = [k for g, k in _list_known() if g == group]
        if kind in kinds or (group, kind) in _OTHERS:
            return None
        return "kind", kind, next(iter(get_close_matches(kind, kinds, n=1)), "")
    # Other projects have kinds of the same names: only a nearly right group is a mistake.
    groups = [g for g, k in _list_known() if k == kind and g != group]
    meant = get_close_matches(group, groups, n=1, cutoff=0.8)
    return ("apiVersion", group, meant[0]) if meant else None
