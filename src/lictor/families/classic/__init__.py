"""Kyverno's classic policies (kyverno.io): rules in YAML, exceptions from them, and cleanups."""

from typing import TYPE_CHECKING

from lictor.families.registry import AbsentFields, PolicyKind, Role
from lictor.model.program import Phase

if TYPE_CHECKING:
    from lictor.model.exception import PolicyException

_GROUP = "kyverno.io"
_HERE = "lictor.families.classic"
_RECORDS = f"{_HERE}.records"


def find_absent_rule_fields(version: str) -> AbsentFields:
    """What rules of a version lack."""
    from lictor.model.policy import Match, Rule, Validate, VerifyImages

    if version != "v2beta1":
        return {}
    return {
        Match: _ONE_FILTER,
        Rule: frozenset(["reportProperties"]),
        Validate: frozenset(["allowExistingViolations"]),
        VerifyImages: _OLD_IMAGE_FIELDS,
    }


def find_absent_match_fields(_: str) -> AbsentFields:
    """Exceptions and cleanups have `any` and `all` only, in every version."""
    from lictor.model.policy import Match

    return {Match: _ONE_FILTER}


def names_policy(exception: "PolicyException", kind: PolicyKind, key: str) -> bool:
    """Is the exception from this policy?"""
    return kind.family == "classic" and any(
        entry.policy_name == key for entry in exception.spec.exceptions
    )


_ONE_FILTER = frozenset(["resources", "subjects", "roles", "clusterRoles"])
_OLD_IMAGE_FIELDS = frozenset(
    [
        *("image", "key", "roots", "subject", "issuer"),
        *("additionalExtensions", "annotations", "cosignOCI11"),
    ]
)


def _declare_policy(kind: str, plural: str, *, namespaced: bool) -> PolicyKind:
    return PolicyKind(
        family="classic",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        versions=("v1", "v2beta1"),
        preferred_version="v1",
        phases=tuple(Phase),
        has_named_rules=True,
        record="lictor.model.policy:Policy",
        absent_fields=find_absent_rule_fields,
        compile=f"{_HERE}.compiler:compile_policy",
        compile_failing=f"{_HERE}.compiler:compile_failing",
        expected_work=f"{_HERE}.actions:list_expected_work",
        convert="lictor.convert.conversion:convert_policy",
        explain="lictor.report.explanation:explain_classic",
    )


def _declare_cleanup(kind: str, plural: str, *, namespaced: bool) -> PolicyKind:
    return PolicyKind(
        family="classic",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        versions=("v2", "v2beta1"),
        preferred_version="v2",
        role=Role.DELETION,
        is_listed=False,
        record=f"{_RECORDS}:CleanupPolicy",
        absent_fields=find_absent_match_fields,
        compile=f"{_HERE}.cleanup:compile_cleanup",
    )


KINDS = (
    _declare_policy("ClusterPolicy", "clusterpolicies", namespaced=False),
    _declare_policy("Policy", "policies", namespaced=True),
    PolicyKind(
        family="classic",
        group=_GROUP,
        kind="PolicyException",
        plural="policyexceptions",
        namespaced=True,
        versions=("v2", "v2beta1"),
        preferred_version="v2",
        role=Role.EXCEPTION,
        is_listed=False,
        record="lictor.model.exception:PolicyException",
        absent_fields=find_absent_match_fields,
        excepts=names_policy,
    ),
    _declare_cleanup("ClusterCleanupPolicy", "clustercleanuppolicies", namespaced=False),
    _declare_cleanup("CleanupPolicy", "cleanuppolicies", namespaced=True),
)
