"""Kyverno's policies in CEL (policies.kyverno.io), and exceptions from them."""

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lictor.families.registry import CrdShape, PolicyKind, Role, WebhookPath
from lictor.model.program import Phase

if TYPE_CHECKING:
    from lictor.model.cel_policy import CelException

_GROUP = "policies.kyverno.io"
_HERE = "lictor.families.kyverno_cel"
# The functions that build admission policies of Kubernetes which do the same.
_NATIVE = {
    Phase.VALIDATE: "lictor.convert.native_cel:build_native_validating",
    Phase.MUTATE: "lictor.convert.native_cel:build_native_mutating",
}
_VERSIONS = "v1 v1beta1* v1alpha1!"
_METRIC = "kyverno_{}_execution_duration_seconds"


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


def _declare(
    kind: str, short_name: str, compile_policy: str, crd: CrdShape, *phases: Phase
) -> tuple[PolicyKind, PolicyKind]:
    """A kind for the whole cluster, and the same for one namespace."""
    plural = f"{kind.lower().removesuffix('y')}ies"
    stage: Phase | None = phases[0] if phases else None
    kind_words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
    is_changing = stage in (Phase.MUTATE, Phase.VERIFY_IMAGES)
    cluster = PolicyKind(
        family="kyverno_cel",
        group=_GROUP,
        kind=kind,
        plural=plural,
        namespaced=False,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1beta1",
        short_name=short_name,
        crd=replace(crd, description=f"{crd.description}, for the whole cluster."),
        # Without a phase it is about no requests: it deletes on a schedule.
        role=Role.POLICY if phases else Role.DELETION,
        phases=phases,
        record=f"{_HERE}.records:{kind}",
        compile=f"{_HERE}.{compile_policy}",
        compile_failing=f"{_HERE}.failing:fail_cel_policy",
        path=WebhookPath(short_name, is_changing, stage is not Phase.MUTATE) if phases else None,
        webhook_match=f"{_HERE}.autogen:describe_match",
        # Nothing is refused for want of an object that is generated.
        failure_policy="Ignore" if stage is Phase.GENERATE else "",
        duration_metric=_METRIC.format(kind_words) if phases else "",
        sample=_SAMPLE if stage is Phase.VALIDATE else None,
        lint="lictor.lint.documents_by_kind:check_cel_policy",
        list_generations=f"{_HERE}.generating:list_generations" if stage is Phase.GENERATE else "",
        list_existing_mutations=f"{_HERE}.mutating:list_existing_mutations"
        if stage is Phase.MUTATE
        else "",
        build_native=_NATIVE.get(stage, "") if stage else "",
        build_status="lictor.report.policy_status:build_cel_status",
        expected_work=f"{_HERE}.autogen:list_expected_work" if phases else "",
        explain="lictor.report.cel_explanation:explain_cel",
        report_source=f"Kyverno{kind}",
    )
    return cluster, replace(
        cluster,
        kind=f"Namespaced{kind}",
        plural=f"namespaced{plural}",
        namespaced=True,
        sample=None,
        short_name=f"n{short_name}",
        crd=replace(
            crd,
            versions="v1 v1beta1*",
            description=f"{crd.description}, for the namespace that the policy is in.",
        ),
        path=replace(cluster.path, segment=f"n{short_name}") if cluster.path else None,
        # Newer than the kind for the cluster.
        versions=("v1", "v1beta1"),
    )


KINDS = (
    *_declare(
        "ValidatingPolicy",
        "vpol",
        "validating:compile_validating",
        CrdShape(_VERSIONS, "What must hold, in CEL"),
        Phase.VALIDATE,
    ),
    *_declare(
        "MutatingPolicy",
        "mpol",
        "mutating:compile_mutating",
        CrdShape(_VERSIONS, "What is changed, in CEL"),
        Phase.MUTATE,
    ),
    *_declare(
        "GeneratingPolicy",
        "gpol",
        "generating:compile_generating",
        CrdShape(_VERSIONS, "Objects that are made because of others, in CEL", "GeneratingStatus"),
        Phase.GENERATE,
    ),
    *_declare(
        "ImageValidatingPolicy",
        "ivpol",
        "image_validating:compile_image_validating",
        CrdShape(_VERSIONS, "Whose images may be used, in CEL", "ImageStatus"),
        Phase.VERIFY_IMAGES,
    ),
    *_declare(
        "DeletingPolicy",
        "dpol",
        "deleting:compile_deleting",
        CrdShape(_VERSIONS, "Objects that are deleted on a schedule, in CEL", "DeletingStatus"),
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
        record="lictor.model.cel_policy:CelException",
        excepts=names_policy,
        review_path=("cel-exception-validating", "/celexception/validate"),
        lint="lictor.lint.documents_by_kind:check_cel_exception",
    ),
)
