"""The kinds of policies that are written in CEL. Imported only where a file holds one of them."""

from typing import Final

from lictor.load.kinds import Known
from lictor.model.admission import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lictor.model.cel_policy import (
    CelException,
    CelPolicy,
    DeletingPolicy,
    GeneratingPolicy,
    ImageValidatingPolicy,
    MutatingPolicy,
    ValidatingPolicy,
)

_KYVERNO = "policies.kyverno.io"
_KUBERNETES = "admissionregistration.k8s.io"
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
# Newer than the kinds that they are twins of.
_NAMESPACED_VERSIONS = ("v1", "v1beta1")
_POLICIES: Final[tuple[type[CelPolicy], ...]] = (
    ValidatingPolicy,
    MutatingPolicy,
    GeneratingPolicy,
    DeletingPolicy,
    ImageValidatingPolicy,
)


def _policy_kinds() -> Known:
    known: Known = {}
    for record in _POLICIES:
        kind = record.__name__
        known[_KYVERNO, kind] = (record, _VERSIONS, "cel_policies")
        known[_KYVERNO, f"Namespaced{kind}"] = (record, _NAMESPACED_VERSIONS, "cel_policies")
    return known


CEL_RECORDS: Final[Known] = {
    **_policy_kinds(),
    (_KYVERNO, "PolicyException"): (CelException, _VERSIONS, "cel_exceptions"),
    (_KUBERNETES, "ValidatingAdmissionPolicy"): (
        ValidatingAdmissionPolicy,
        _VERSIONS,
        "admission_policies",
    ),
    (_KUBERNETES, "MutatingAdmissionPolicy"): (
        MutatingAdmissionPolicy,
        _VERSIONS,
        "admission_policies",
    ),
    (_KUBERNETES, "ValidatingAdmissionPolicyBinding"): (
        ValidatingAdmissionPolicyBinding,
        _VERSIONS,
        "bindings",
    ),
    (_KUBERNETES, "MutatingAdmissionPolicyBinding"): (
        MutatingAdmissionPolicyBinding,
        _VERSIONS,
        "bindings",
    ),
}
