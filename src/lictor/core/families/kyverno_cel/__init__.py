"""Kyverno's policies in CEL (policies.kyverno.io), and exceptions from them."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lictor.core.families.registry import CrdShape, PolicyKind, Role, WebhookPath
from lictor.core.model.program import Phase

if TYPE_CHECKING:
    from lictor.core.model.cel_policy import CelException

_GROUP = "policies.kyverno.io"
_HERE = "lictor.core.families.kyverno_cel"
_VERSIONS = "v1 v1beta1* v1alpha1!"
_MATCH = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}
_SAMPLE = {
    "apiVersion": f"{_GROUP}/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "sample"},
    "spec": {"matchConstraints": _MATCH, "validations": [{"expression": "object != null"}]},
}


def names_policy(exception: "CelException", kind: PolicyKind, key: str) -> bool:
    """May the exception be from this policy?"""
    name = key.rpartition("/")[2]
    return kind.family == "kyverno_cel" and any(
        ref.name == name for ref in exception.spec.policy_refs
    )


def list_excepted(exception: "CelException") -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The policies that need not be kept; their rules have no names."""
    return tuple((ref.name, ()) for ref in exception.spec.policy_refs)


def _declare(
    kind: str,
    short_name: str,
    compile_policy: str,
    crd: CrdShape,
    /,
    **own: Any,
) -> tuple[PolicyKind, PolicyKind]:
    """A kind for the whole cluster, and the same for one namespace; `own` is what is its own."""
    cluster = PolicyKind(
        family="kyverno_cel",
        group=_GROUP,
        kind=kind,
        plural=f"{kind.lower().removesuffix('y')}ies",
        namespaced=False,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1beta1",
        short_name=short_name,
        crd=replace(crd, description=f"{crd.description}, for the whole cluster."),
        record=f"{_HERE}.records:{kind}",
        compile=f"{_HERE}.{compile_policy}",
        compile_failing=f"{_HERE}.failing:fail_cel_policy",
        webhook_match=f"{_HERE}.autogen:describe_match",
        lint="lictor.lint.documents_by_kind:check_cel_policy",
        build_status="lictor.core.report.policy_status:build_cel_status",
        explain="lictor.core.report.cel_explanation:explain_cel",
        report_source=f"Kyverno{kind}",
        **own,
    )
    return cluster, _declare_namespaced(cluster, crd)


def _declare_namespaced(cluster: PolicyKind, crd: CrdShape) -> PolicyKind:
    words = f"{crd.description}, for the namespace that the policy is in."
    short_name = f"n{cluster.short_name}"
    return replace(
        cluster,
        kind=f"Namespaced{cluster.kind}",
        plural=f"namespaced{cluster.plural}",
        namespaced=True,
        sample=None,
        short_name=short_name,
        # Newer than the kind for the cluster.
        versions=("v1", "v1beta1"),
        crd=CrdShape("v1 v1beta1*", words, crd.status),
        path=replace(cluster.path, segment=short_name) if cluster.path else None,
    )


KINDS = (
    *_declare(
        "ValidatingPolicy",
        "vpol",
        "validating:compile_validating",
        CrdShape(_VERSIONS, "What must hold, in CEL"),
        phases=(Phase.VALIDATE,),
        cel_profile="validating",
        path=WebhookPath("vpol"),
        expected_work=f"{_HERE}.autogen:list_expected_work",
        duration_metric="kyverno_validating_policy_execution_duration_seconds",
        build_native="lictor.controllers.native_policies.native_cel:build_native_validating",
        sample=_SAMPLE,
    ),
    *_declare(
        "MutatingPolicy",
        "mpol",
        "mutating:compile_mutating",
        CrdShape(_VERSIONS, "What is changed, in CEL"),
        phases=(Phase.MUTATE,),
        cel_profile="mutating",
        path=WebhookPath("mpol", mutating=True, validating=False),
        expected_work=f"{_HERE}.autogen:list_expected_work",
        list_existing_mutations=f"{_HERE}.mutating:list_existing_mutations",
        duration_metric="kyverno_mutating_policy_execution_duration_seconds",
        build_native="lictor.controllers.native_policies.native_cel:build_native_mutating",
    ),
    *_declare(
        "GeneratingPolicy",
        "gpol",
        "generating:compile_generating",
        CrdShape(_VERSIONS, "Objects that are made because of others, in CEL", "GeneratingStatus"),
        phases=(Phase.GENERATE,),
        cel_profile="generating",
        path=WebhookPath("gpol"),
        # Nothing is refused for want of an object that is generated.
        failure_policy="Ignore",
        expected_work=f"{_HERE}.autogen:list_expected_work",
        list_generations=f"{_HERE}.generating:list_generations",
        duration_metric="kyverno_generating_policy_execution_duration_seconds",
    ),
    *_declare(
        "ImageValidatingPolicy",
        "ivpol",
        "image_validating:compile_image_validating",
        CrdShape(_VERSIONS, "Whose images may be used, in CEL", "ImageStatus"),
        phases=(Phase.VERIFY_IMAGES,),
        cel_profile="image",
        path=WebhookPath("ivpol", mutating=True),
        expected_work=f"{_HERE}.autogen:list_expected_work",
        duration_metric="kyverno_image_validating_policy_execution_duration_seconds",
    ),
    *_declare(
        "DeletingPolicy",
        "dpol",
        "deleting:compile_deleting",
        CrdShape(_VERSIONS, "Objects that are deleted on a schedule, in CEL", "DeletingStatus"),
        role=Role.DELETION,
        list_deletion_targets=f"{_HERE}.deleting:list_deletion_targets",
        cel_profile="deleting",
    ),
    PolicyKind(
        family="kyverno_cel",
        group=_GROUP,
        kind="PolicyException",
        plural="policyexceptions",
        namespaced=True,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1beta1",
        # The short name polex belongs to the other PolicyException.
        crd=CrdShape(
            _VERSIONS,
            "Requests, images or values that need not keep some CEL policies.",
            status="",
            columns="",
        ),
        role=Role.EXCEPTION,
        is_listed=False,
        record="lictor.core.model.cel_policy:CelException",
        excepts=names_policy,
        list_excepted=list_excepted,
        review_path=("cel-exception-validating", "/celexception/validate"),
        lint="lictor.lint.documents_by_kind:check_cel_exception",
    ),
)
