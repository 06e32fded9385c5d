"""Kyverno's CEL policies (policies.kyverno.io) as records, and the exceptions from them.

The versions v1, v1beta1 and v1alpha1 have the same fields. One record serves a kind and its
namespaced twin: `kind` tells them apart. An attribute is the snake_case of the YAML name.
"""

from typing import Literal, TypeAlias

import msgspec

from lictor.model.admission import (
    MatchResources,
    Mutation,
    ReinvocationPolicy,
    ValidationAction,
)
from lictor.model.image_validation import (
    Attestation,
    Attestor,
    Credentials,
    ImagesExpression,
    MatchImageReference,
    ValidationConfiguration,
)
from lictor.model.policy import (
    AuditAnnotation,
    CelExpression,
    CelVariable,
    FailurePolicy,
    MatchCondition,
    Metadata,
    Strings,
)
from lictor.raw import Json

# --- settings


class EnabledByDefault(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that an author may switch off."""

    enabled: bool = True


class DisabledByDefault(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that an author may switch on."""

    enabled: bool = False


class Evaluation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When a policy is asked, and about what: Kubernetes requests, or any JSON."""

    # Kubernetes or JSON; other evaluators of the same kind have modes of their own.
    mode: str = "Kubernetes"
    admission: EnabledByDefault = EnabledByDefault()
    background: EnabledByDefault = EnabledByDefault()


class MutatingEvaluation(Evaluation, frozen=True, rename="camel", omit_defaults=True):
    """The same, and whether objects that are there already are changed."""

    mutate_existing: DisabledByDefault = DisabledByDefault()


class GeneratingEvaluation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When objects are made, and what becomes of them later."""

    admission: EnabledByDefault = EnabledByDefault()
    generate_existing: DisabledByDefault = DisabledByDefault()
    synchronize: DisabledByDefault = DisabledByDefault()
    orphan_downstream_on_policy_delete: DisabledByDefault = DisabledByDefault()


class PodControllers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The kinds that a policy about Pods also covers: None is all of them, an empty list none."""

    controllers: Strings | None = None


class ValidatingAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is made of a ValidatingPolicy."""

    pod_controllers: PodControllers | None = None
    validating_admission_policy: DisabledByDefault = DisabledByDefault()


class MutatingAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is made of a MutatingPolicy."""

    pod_controllers: PodControllers | None = None
    mutating_admission_policy: DisabledByDefault = DisabledByDefault()


class ImageAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is made of an ImageValidatingPolicy."""

    pod_controllers: PodControllers | None = None


class WebhookTimeout(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How long the API server waits for this policy."""

    timeout_seconds: int | None = None


# --- ValidatingPolicy


class ValidatingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What must hold for which requests."""

    match_constraints: MatchResources | None = None
    validations: tuple[CelExpression, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    autogen: ValidatingAutogen = ValidatingAutogen()
    # None written means Deny.
    validation_actions: tuple[ValidationAction, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: Evaluation = Evaluation()


class ValidatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check."""

    api_version: str
    kind: Literal["ValidatingPolicy", "NamespacedValidatingPolicy"]
    metadata: Metadata
    spec: ValidatingSpec
    status: Json = None


# --- MutatingPolicy


class TargetMatchConstraints(MatchResources, frozen=True, rename="camel", omit_defaults=True):
    """Which objects that are there already are changed; the expression gives them directly."""

    expression: str = ""


class MutatingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is changed in which requests, or in which other objects."""

    match_constraints: MatchResources | None = None
    failure_policy: FailurePolicy = "Fail"
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    autogen: MutatingAutogen = MutatingAutogen()
    target_match_constraints: TargetMatchConstraints | None = None
    mutations: tuple[Mutation, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: MutatingEvaluation = MutatingEvaluation()
    reinvocation_policy: ReinvocationPolicy = "Never"


class MutatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change."""

    api_version: str
    kind: Literal["MutatingPolicy", "NamespacedMutatingPolicy"]
    metadata: Metadata
    spec: MutatingSpec
    status: Json = None


# --- GeneratingPolicy


class Generation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression that makes objects, by calling `generator.Apply`."""

    expression: str = ""


class GeneratingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is made when which requests come."""

    generate: tuple[Generation, ...]
    match_constraints: MatchResources | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    evaluation: GeneratingEvaluation = GeneratingEvaluation()
    webhook_configuration: WebhookTimeout = WebhookTimeout()


class GeneratingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects that shall exist because another one does."""

    api_version: str
    kind: Literal["GeneratingPolicy", "NamespacedGeneratingPolicy"]
    metadata: Metadata
    spec: GeneratingSpec
    status: Json = None


# --- DeletingPolicy


class DeletingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is deleted, and the cron schedule that says when."""

    schedule: str
    match_constraints: MatchResources | None = None
    conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    deletion_propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None


class DeletingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A cleanup."""

    api_version: str
    kind: Literal["DeletingPolicy", "NamespacedDeletingPolicy"]
    metadata: Metadata
    spec: DeletingSpec
    status: Json = None


# --- ImageValidatingPolicy


class ImageValidatingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which images must be signed by whom, and what must hold for their attestations."""

    attestors: tuple[Attestor, ...]
    validations: tuple[CelExpression, ...]
    match_constraints: MatchResources | None = None
    failure_policy: FailurePolicy = "Fail"
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    # None written means Deny.
    validation_actions: tuple[ValidationAction, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    validation_configurations: ValidationConfiguration = ValidationConfiguration()
    match_image_references: tuple[MatchImageReference, ...] = ()
    credentials: Credentials | None = None
    images: tuple[ImagesExpression, ...] = ()
    attestations: tuple[Attestation, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: Evaluation = Evaluation()
    autogen: ImageAutogen = ImageAutogen()


class ImageValidatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check of container images."""

    api_version: str
    kind: Literal["ImageValidatingPolicy", "NamespacedImageValidatingPolicy"]
    metadata: Metadata
    spec: ImageValidatingSpec
    status: Json = None


CelPolicy: TypeAlias = (
    ValidatingPolicy | MutatingPolicy | GeneratingPolicy | DeletingPolicy | ImageValidatingPolicy
)


# --- exceptions


class CelPolicyRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A policy by kind and name."""

    name: str
    kind: str


class CelExceptionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which requests, images or values need not keep which policies."""

    policy_refs: tuple[CelPolicyRef, ...]
    match_conditions: tuple[MatchCondition, ...] = ()
    images: Strings = ()
    allowed_values: Strings = ()
    report_result: Literal["skip", "pass"] = "skip"


class CelException(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A PolicyException of policies.kyverno.io: an exception from CEL policies."""

    api_version: str
    kind: Literal["PolicyException"]
    metadata: Metadata
    spec: CelExceptionSpec
