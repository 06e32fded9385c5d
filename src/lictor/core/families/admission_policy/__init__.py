"""Kubernetes' own admission policies (admissionregistration.k8s.io) and their bindings."""

from lictor.core.families.registry import PolicyKind, Role
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import RuleType

VALIDATING_KIND = "ValidatingAdmissionPolicy"
MUTATING_KIND = "MutatingAdmissionPolicy"
_HERE = "lictor.core.families.admission_policy"
_MODULES = {
    Phase.VALIDATE: "validating:compile_admission",
    Phase.MUTATE: "mutating:compile_mutating_admission",
}


def list_expected_work(_: PolicyRecord) -> frozenset[RuleType]:
    """A test hears of each policy that validates, whatever it says."""
    return frozenset([RuleType.VALIDATION])


def _declare(kind: str, plural: str, phase: Phase) -> tuple[PolicyKind, PolicyKind]:
    """A kind of policy, and that of its bindings."""
    policy = PolicyKind(
        family="admission_policy",
        group="admissionregistration.k8s.io",
        kind=kind,
        plural=plural,
        namespaced=False,
        versions=("v1", "v1beta1", "v1alpha1"),
        preferred_version="v1",
        is_native=True,
        record=f"{_HERE}.records:{kind}",
        phases=(phase,),
        compile=f"{_HERE}.{_MODULES[phase]}",
        lint="lictor.lint.documents_by_kind:check_cel_policy",
        # Of a change that is not made, nobody expects to hear.
        expected_work=list_expected_work if phase is Phase.VALIDATE else "",
        explain="lictor.core.report.cel_explanation:explain_cel",
        report_source=kind,
    )
    binding = PolicyKind(
        family="admission_policy",
        group=policy.group,
        kind=f"{kind}Binding",
        plural=plural.replace("policies", "policybindings"),
        namespaced=False,
        versions=policy.versions,
        preferred_version="v1",
        is_native=True,
        role=Role.BINDING,
        is_listed=False,
        record=f"{_HERE}.records:{kind}Binding",
        lint="lictor.lint.documents_by_kind:check_binding",
    )
    return policy, binding


KINDS = (
    *_declare(VALIDATING_KIND, "validatingadmissionpolicies", Phase.VALIDATE),
    *_declare(MUTATING_KIND, "mutatingadmissionpolicies", Phase.MUTATE),
)
