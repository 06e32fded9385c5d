"""Kyverno's classic policies (kyverno.io): rules in YAML, exceptions from them, and cleanups."""

from typing import TYPE_CHECKING

from lictor.families.registry import AbsentFields, PolicyKind, Role, WebhookPath
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


_SAMPLE = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "sample"},
    "spec": {
        "rules": [
            {
                "name": "sample",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "{{ to_upper('x') }}", "pattern": {"kind": "Pod"}},
            }
        ]
    },
}


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
        path=WebhookPath(mutating=True),
        is_asked=f"{_HERE}.actions:is_asked",
        read_mode=f"{_HERE}.actions:read_mode",
        build_status="lictor.report.policy_status:build_classic_status",
        sample=None if namespaced else _SAMPLE,
        lint="lictor.lint.documents_by_kind:check_classic_policy",
        list_generations=f"{_HERE}.actions:list_generations",
        list_existing_mutations=f"{_HERE}.actions:list_existing_mutations",
        skips_scan=f"{_HERE}.actions:is_about_every_kind",
        build_native="" if namespaced else "lictor.convert.native_classic:build_native_classic",
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
        lint="lictor.lint.documents_by_kind:check_cleanup",
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
        review_path=("exception-validating", "/exceptionvalidate"),
        lint="lictor.lint.documents_by_kind:check_exception",
    ),
    _declare_cleanup("ClusterCleanupPolicy", "clustercleanuppolicies", namespaced=False),
    _declare_cleanup("CleanupPolicy", "cleanuppolicies", namespaced=True),
)
