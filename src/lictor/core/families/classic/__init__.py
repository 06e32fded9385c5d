"""Kyverno's classic policies (kyverno.io): rules in YAML, exceptions from them, and cleanups."""

from typing import TYPE_CHECKING

from lictor.core.families.registry import (
    AGE_COLUMN,
    AbsentFields,
    CrdShape,
    PolicyKind,
    Role,
    WebhookPath,
)
from lictor.core.model.program import Phase

if TYPE_CHECKING:
    from lictor.core.model.exception import PolicyException

_GROUP = "kyverno.io"
_HERE = "lictor.core.families.classic"
_RECORDS = f"{_HERE}.records"


def find_absent_rule_fields(version: str) -> AbsentFields:
    """What rules of a version lack."""
    from lictor.core.model.matching import Match
    from lictor.core.model.policy import Rule, Validate, VerifyImages

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
    from lictor.core.model.matching import Match

    return {Match: _ONE_FILTER}


def names_policy(exception: "PolicyException", kind: PolicyKind, key: str) -> bool:
    """Is the exception from this policy?"""
    return kind.family == "classic" and any(
        entry.policy_name == key for entry in exception.spec.exceptions
    )


def list_excepted(exception: "PolicyException") -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The policies and rules that need not be kept."""
    return tuple((each.policy_name, each.rule_names) for each in exception.spec.exceptions)


_ONE_FILTER = frozenset(["resources", "subjects", "roles", "clusterRoles"])
_OLD_IMAGE_FIELDS = frozenset(
    [
        *("image", "key", "roots", "subject", "issuer"),
        *("additionalExtensions", "annotations", "cosignOCI11"),
    ]
)


_POLICY_COLUMNS = f"""
ADMISSION | boolean | .spec.admission
BACKGROUND | boolean | .spec.background
READY | string | .status.conditions[?(@.type == "Ready")].status
{AGE_COLUMN}
FAILURE POLICY | string | .spec.failurePolicy | +
VALIDATE | integer | .status.rulecount.validate | +
MUTATE | integer | .status.rulecount.mutate | +
GENERATE | integer | .status.rulecount.generate | +
VERIFY IMAGES | integer | .status.rulecount.verifyimages | +
MESSAGE | string | .status.conditions[?(@.type == "Ready")].message
"""
_CLEANUP_COLUMNS = """
Schedule | string | .spec.schedule
Age | date | .metadata.creationTimestamp
"""
_RULES = (
    "Rules for the {}: what resources must look like, how they are changed, what is made for them, "
    "whose images they may use."
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
    where = "namespace that the policy is in" if namespaced else "whole cluster"
    return PolicyKind(
        family="classic",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        versions=("v1", "v2beta1"),
        preferred_version="v1",
        short_name="pol" if namespaced else "cpol",
        crd=CrdShape("v1* v2beta1", _RULES.format(where), "PolicyStatus", _POLICY_COLUMNS),
        phases=tuple(Phase),
        has_named_rules=True,
        record="lictor.core.model.policy:Policy",
        absent_fields=find_absent_rule_fields,
        compile=f"{_HERE}.compiler:compile_policy",
        compile_failing=f"{_HERE}.compiler:compile_failing",
        expected_work=f"{_HERE}.actions:list_expected_work",
        path=WebhookPath(mutating=True),
        is_asked=f"{_HERE}.actions:is_asked",
        shared_webhook=f"{_HERE}.webhooks:find_webhook_match",
        list_named_namespaces=f"{_HERE}.webhooks:list_named_namespaces",
        limit_program=f"{_HERE}.webhooks:limit_to_named_kinds",
        read_mode=f"{_HERE}.actions:read_mode",
        build_status="lictor.core.report.policy_status:build_classic_status",
        sample=None if namespaced else _SAMPLE,
        lint="lictor.lint.documents_by_kind:check_classic_policy",
        list_generations=f"{_HERE}.actions:list_generations",
        list_chained_rules=f"{_HERE}.actions:list_chained_rules",
        list_existing_mutations=f"{_HERE}.actions:list_existing_mutations",
        skips_scan=f"{_HERE}.actions:is_about_every_kind",
        build_native=""
        if namespaced
        else "lictor.controllers.native_policies.native_classic:build_native_classic",
        convert="lictor.addons.convert.conversion:convert_policy",
        explain="lictor.core.report.explanation:explain_classic",
    )


def _declare_cleanup(kind: str, plural: str, *, namespaced: bool) -> PolicyKind:
    where = "this namespace" if namespaced else "the whole cluster"
    return PolicyKind(
        family="classic",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        versions=("v2", "v2beta1"),
        preferred_version="v2",
        short_name="cleanpol" if namespaced else "ccleanpol",
        crd=CrdShape(
            "v2* v2beta1!",
            f"Objects of {where} that are deleted on a schedule.",
            "CleanupStatus",
            _CLEANUP_COLUMNS,
        ),
        role=Role.DELETION,
        is_listed=False,
        record=f"{_RECORDS}:CleanupPolicy",
        absent_fields=find_absent_match_fields,
        compile=f"{_HERE}.cleanup:compile_cleanup",
        list_deletion_targets=f"{_HERE}.cleanup:list_deletion_targets",
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
        short_name="polex",
        crd=CrdShape(
            "v2* v2beta1!",
            "Resources that need not keep some rules of ClusterPolicies and Policies.",
            status="",
            columns="",
        ),
        role=Role.EXCEPTION,
        is_listed=False,
        record="lictor.core.model.exception:PolicyException",
        absent_fields=find_absent_match_fields,
        excepts=names_policy,
        list_excepted=list_excepted,
        review_path=("exception-validating", "/exceptionvalidate"),
        lint="lictor.lint.documents_by_kind:check_exception",
    ),
    _declare_cleanup("ClusterCleanupPolicy", "clustercleanuppolicies", namespaced=False),
    _declare_cleanup("CleanupPolicy", "cleanuppolicies", namespaced=True),
)
