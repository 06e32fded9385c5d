"""Which kinds of policies are there, in which versions, and which fields does a version lack?"""

from difflib import get_close_matches
from typing import Final, TypeAlias

import msgspec

from lictor.load.fields import Absent
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.policy import Match, Policy, Rule, Validate, VerifyImages

# Record, versions, and the field of `Loaded` where such records go.
KnownKind: TypeAlias = tuple[type[msgspec.Struct], tuple[str, ...], str]
# Group and kind -> what is known of it.
Known: TypeAlias = dict[tuple[str, str], KnownKind]

RECORDS: Final[Known] = {
    ("kyverno.io", "ClusterPolicy"): (Policy, ("v1", "v2beta1"), "policies"),
    ("kyverno.io", "Policy"): (Policy, ("v1", "v2beta1"), "policies"),
    ("kyverno.io", "PolicyException"): (PolicyException, ("v2", "v2beta1"), "exceptions"),
    ("kyverno.io", "CleanupPolicy"): (CleanupPolicy, ("v2", "v2beta1"), "cleanups"),
    ("kyverno.io", "ClusterCleanupPolicy"): (CleanupPolicy, ("v2", "v2beta1"), "cleanups"),
}

# Belongs to policies and judges nothing itself.
COMPANION: Final = "GlobalContextEntry"
_CEL_KINDS = (
    "ValidatingPolicy",
    "MutatingPolicy",
    "GeneratingPolicy",
    "DeletingPolicy",
    "ImageValidatingPolicy",
)
# Policies that are kept as they are: other families, each with a compiler of its own.
RAW: Final[frozenset[tuple[str, str]]] = frozenset(
    [
        *(("policies.kyverno.io", kind) for kind in _CEL_KINDS),
        *(("policies.kyverno.io", f"Namespaced{kind}") for kind in _CEL_KINDS),
        ("policies.kyverno.io", "PolicyException"),
        ("json.kyverno.io", "ValidatingPolicy"),
        ("kyverno.io", "GlobalContextEntry"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ]
)
# Policies of other engines, by group; an empty set means every kind. Nothing here runs them, and
# nothing must pass because they were taken for resources.
_OTHER_ENGINES: Final[dict[str, frozenset[str]]] = {
    "policies.kubewarden.io": frozenset(
        [
            "AdmissionPolicy",
            "AdmissionPolicyGroup",
            "ClusterAdmissionPolicy",
            "ClusterAdmissionPolicyGroup",
        ]
    ),
    "templates.gatekeeper.sh": frozenset(["ConstraintTemplate"]),
    "constraints.gatekeeper.sh": frozenset(),
    "mutations.gatekeeper.sh": frozenset(),
    "expansion.gatekeeper.sh": frozenset(["ExpansionTemplate"]),
    "policy.sigstore.dev": frozenset(["ClusterImagePolicy"]),
}
# A kind of these groups that stands in no table is a mistake, not a resource.
POLICY_GROUPS: Final = frozenset(["kyverno.io", "policies.kyverno.io", "json.kyverno.io"])
# Not policies, though they may stand in such a group: some test files say `kyverno.io/v1`.
_OTHERS: Final = frozenset(
    ("kyverno.io", kind)
    for kind in ("UpdateRequest", "Test", "Values", "UserInfo", "Context", "ClusterResource")
)

_ONE_FILTER = frozenset(["resources", "subjects", "roles", "clusterRoles"])
_ONLY_ANY_ALL: Absent = {Match: _ONE_FILTER}
_V2BETA1: Absent = {
    Match: _ONE_FILTER,
    Rule: frozenset(["reportProperties"]),
    Validate: frozenset(["allowExistingViolations"]),
    VerifyImages: frozenset(
        [
            "image",
            "key",
            "roots",
            "subject",
            "issuer",
            "additionalExtensions",
            "annotations",
            "cosignOCI11",
        ]
    ),
}


def absent_fields(record: type[msgspec.Struct], version: str) -> Absent:
    """Fields that the record has for other versions' sake."""
    if record is not Policy:
        return _ONLY_ANY_ALL
    return _V2BETA1 if version == "v2beta1" else {}


def find_kind(group: str, kind: str) -> KnownKind | None:
    """The record of a kind of policy, of either family; None for what has no record."""
    found = RECORDS.get((group, kind))
    if found is None and (group, kind) in RAW:
        # Some sixty records that most runs never need.
        from lictor.load.cel_kinds import CEL_RECORDS

        found = CEL_RECORDS.get((group, kind))
    return found


def is_unsupported(group: str, kind: str) -> bool:
    """Whether this is a policy that is kept as it is: of another engine, or of a family to come."""
    kinds = _OTHER_ENGINES.get(group)
    if kinds is not None:
        return not kinds or kind in kinds
    return (group, kind) in RAW and find_kind(group, kind) is None and kind != COMPANION


_KNOWN: Final = RECORDS.keys() | RAW


def find_unknown(group: str, kind: str) -> tuple[str, str, str] | None:
    """What is unknown of something that should be a policy: field, word, and the word meant."""
    if group in POLICY_GROUPS:
        kinds = [k for g, k in _KNOWN if g == group]
        if kind in kinds or (group, kind) in _OTHERS:
            return None
        return "kind", kind, next(iter(get_close_matches(kind, kinds, n=1)), "")
    # `ClusterPolicy` is others' word too: only a group that is nearly right is a mistake.
    groups = [g for g, k in _KNOWN if k == kind and g != group]
    meant = get_close_matches(group, groups, n=1, cutoff=0.8)
    return ("apiVersion", group, meant[0]) if meant else None
