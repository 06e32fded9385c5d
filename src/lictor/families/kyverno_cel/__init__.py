"""Kyverno's policies in CEL (policies.kyverno.io), and exceptions from them."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lictor.families.registry import PolicyKind, Role
from lictor.model.program import Phase

if TYPE_CHECKING:
    from lictor.model.cel_policy import CelException

_GROUP = "policies.kyverno.io"
_HERE = "lictor.families.kyverno_cel"


def names_policy(exception: "CelException", kind: PolicyKind, key: str) -> bool:
    """May the exception be from this policy?"""
    name = key.rpartition("/")[2]
    return kind.family == "kyverno_cel" and any(
        ref.name == name for ref in exception.spec.policy_refs
    )


def _declare(
    kind: str, plural: str, compile_policy: str, *phases: Phase
) -> tuple[PolicyKind, PolicyKind]:
    """A kind for the whole cluster, and the same for one namespace."""
    cluster = PolicyKind(
        family="kyverno_cel",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=False,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1beta1",
        # Without a phase it is about no requests: it deletes on a schedule.
        role=Role.POLICY if phases else Role.DELETION,
        phases=phases,
        record=f"{_HERE}.records:{kind}",
        compile=f"{_HERE}.{compile_policy}",
        compile_failing=f"{_HERE}.failing:fail_cel_policy",
        expected_work=f"{_HERE}.autogen:list_expected_work" if phases else "",
        explain="lictor.report.cel_explanation:explain_cel",
        report_source=f"Kyverno{kind}",
    )
    return cluster, replace(
        cluster,
        kind=f"Namespaced{kind}",
        plural=f"namespaced{plural}",
        namespaced=True,
        # Newer than the kind for the cluster.
        versions=("v1", "v1beta1"),
    )


KINDS = (
    *_declare(
        "ValidatingPolicy", "validatingpolicies", "validating:compile_validating", Phase.VALIDATE
    ),
    *_declare("MutatingPolicy", "mutatingpolicies", "mutating:compile_mutating", Phase.MUTATE),
    *_declare(
        "GeneratingPolicy", "generatingpolicies", "generating:compile_generating", Phase.GENERATE
    ),
    *_declare(
        "ImageValidatingPolicy",
        "imagevalidatingpolicies",
        "image_validating:compile_image_validating",
        Phase.VERIFY_IMAGES,
    ),
    *_declare("DeletingPolicy", "deletingpolicies", "deleting:compile_deleting"),
    PolicyKind(
        family="kyverno_cel",
        group=_GROUP,
        kind="PolicyException",
        plural="policyexceptions",
        namespaced=True,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1beta1",
        role=Role.EXCEPTION,
        is_listed=False,
        record="lictor.model.cel_policy:CelException",
        excepts=names_policy,
    ),
)
