"""Kubernetes' own admission policies (admissionregistration.k8s.io) and their bindings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from lictor.core.families.family import Family, PolicyKind, expect_record
from lictor.core.families.kind_facts import Role
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import Result, RuleType

if TYPE_CHECKING:
    from lictor.core.compile.context import CompileContext
    from lictor.core.families.explanation import RuleExplanation
    from lictor.core.lang.watch import ClosureAnswer
    from lictor.core.model.program import Program

VALIDATING_KIND = "ValidatingAdmissionPolicy"
MUTATING_KIND = "MutatingAdmissionPolicy"


class AdmissionPolicyFamily(Family):
    """The policies that the API server evaluates itself."""

    name = "admission_policy"

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        validating = self._declare(VALIDATING_KIND, "validatingadmissionpolicies", Phase.VALIDATE)
        mutating = self._declare(MUTATING_KIND, "mutatingadmissionpolicies", Phase.MUTATE)
        return (*validating, *mutating)

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        from lictor.core.families.admission_policy.records import RECORDS

        return RECORDS[kind.kind]

    def compile(self, record: PolicyRecord, context: "CompileContext") -> "Program":
        from lictor.core.families.admission_policy import records

        if isinstance(record, records.MutatingAdmissionPolicy):
            from lictor.core.families.admission_policy.mutating import compile_mutating_admission

            return compile_mutating_admission(record, context)
        from lictor.core.families.admission_policy.validating import compile_admission

        return compile_admission(expect_record(record, records.ValidatingAdmissionPolicy), context)

    def list_expected_work(self, record: PolicyRecord) -> frozenset[RuleType]:
        """A test expects a result of each policy that validates; not of a change."""
        return frozenset([RuleType.VALIDATION] if record.kind == VALIDATING_KIND else ())

    def explain(
        self,
        record: PolicyRecord,
        bindings: Sequence[PolicyRecord],
        recorded: "Sequence[ClosureAnswer]",
        results: Sequence[Result],
    ) -> "tuple[RuleExplanation, ...]":
        from lictor.core.families.cel_explanation import explain_cel

        return explain_cel(record, bindings, recorded, results)

    def _declare(self, kind: str, plural: str, phase: Phase) -> tuple[PolicyKind, PolicyKind]:
        """A kind of policy, and that of its bindings."""
        policy = PolicyKind(
            family=self,
            group="admissionregistration.k8s.io",
            kind=kind,
            plural=plural,
            namespaced=False,
            versions=("v1", "v1beta1", "v1alpha1"),
            preferred_version="v1",
            is_native=True,
            phases=(phase,),
            report_source=kind,
        )
        binding = PolicyKind(
            family=self,
            group=policy.group,
            kind=f"{kind}Binding",
            plural=plural.replace("policies", "policybindings"),
            namespaced=False,
            versions=policy.versions,
            preferred_version="v1",
            is_native=True,
            role=Role.BINDING,
            is_listed=False,
        )
        return policy, binding


FAMILY = AdmissionPolicyFamily()
