"""Kubernetes' own admission policies and their bindings: admissionregistration.k8s.io.

The versions v1, v1beta1 and v1alpha1 have the same fields. What an API server fills in where a
field is left out is the default here.
"""

from typing import Literal, TypeAlias

import msgspec

from lictor.core.model.constraints import (
    MatchResources,
    Mutation,
    ReinvocationPolicy,
    ValidationAction,
)
from lictor.core.model.matching import FailurePolicy, MatchCondition
from lictor.core.model.metadata import Metadata
from lictor.core.model.policy import (
    AuditAnnotation,
    CelExpression,
    CelVariable,
    ParamKind,
    ParamRef,
)
from lictor.core.raw import Json


class ValidatingAdmissionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What must hold for which requests."""

    param_kind: ParamKind | None = None
    match_constraints: MatchResources | None = None
    validations: tuple[CelExpression, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()


class ValidatingAdmissionPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check that the API server makes itself."""

    api_version: str
    kind: Literal["ValidatingAdmissionPolicy"]
    metadata: Metadata
    spec: ValidatingAdmissionSpec = ValidatingAdmissionSpec()
    status: Json = None


class MutatingAdmissionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is changed in which requests."""

    param_kind: ParamKind | None = None
    match_constraints: MatchResources | None = None
    variables: tuple[CelVariable, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    match_conditions: tuple[MatchCondition, ...] = ()
    reinvocation_policy: ReinvocationPolicy = "Never"


class MutatingAdmissionPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change that the API server makes itself."""

    api_version: str
    kind: Literal["MutatingAdmissionPolicy"]
    metadata: Metadata
    spec: MutatingAdmissionSpec = MutatingAdmissionSpec()
    status: Json = None


AdmissionPolicy: TypeAlias = ValidatingAdmissionPolicy | MutatingAdmissionPolicy


class ValidatingBindingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which policy holds where, with which parameters, and what follows from a failure."""

    policy_name: str = ""
    param_ref: ParamRef | None = None
    match_resources: MatchResources | None = None
    validation_actions: tuple[ValidationAction, ...] = ()


class ValidatingAdmissionPolicyBinding(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True
):
    """Puts a ValidatingAdmissionPolicy into force."""

    api_version: str
    kind: Literal["ValidatingAdmissionPolicyBinding"]
    metadata: Metadata
    spec: ValidatingBindingSpec = ValidatingBindingSpec()


class MutatingBindingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which policy holds where, and with which parameters."""

    policy_name: str = ""
    param_ref: ParamRef | None = None
    match_resources: MatchResources | None = None


class MutatingAdmissionPolicyBinding(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True
):
    """Puts a MutatingAdmissionPolicy into force."""

    api_version: str
    kind: Literal["MutatingAdmissionPolicyBinding"]
    metadata: Metadata
    spec: MutatingBindingSpec = MutatingBindingSpec()


Binding: TypeAlias = ValidatingAdmissionPolicyBinding | MutatingAdmissionPolicyBinding


RECORDS: dict[str, type[msgspec.Struct]] = {
    record.__name__: record
    for record in (
        ValidatingAdmissionPolicy,
        MutatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
        MutatingAdmissionPolicyBinding,
    )
}
