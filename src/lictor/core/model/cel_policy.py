"""What Kyverno's CEL policies say: the specs of its kinds, and exceptions from such policies."""

from typing import Literal

import msgspec

from lictor.core.model.constraints import (
    MatchResources,
    Mutation,
    ReinvocationPolicy,
    ValidationAction,
)
from lictor.core.model.image_validation import (
    ImageAttestation,
    ImageAttestor,
    ImageCredentials,
    ImagesExpression,
    MatchImageReference,
    ValidationConfiguration,
)
from lictor.core.model.matching import FailurePolicy, MatchCondition
from lictor.core.model.metadata import Metadata, Strings
from lictor.core.model.policy import AuditAnnotation, CelExpression, CelVariable

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
    """What else is made of a policy that validates."""

    pod_controllers: PodControllers | None = None
    validating_admission_policy: DisabledByDefault = DisabledByDefault()


class MutatingAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is made of a policy that mutates."""

    pod_controllers: PodControllers | None = None
    mutating_admission_policy: DisabledByDefault = DisabledByDefault()


class ImageAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is made of a policy about images."""

    pod_controllers: PodControllers | None = None


class WebhookTimeout(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How long the API server waits for this policy."""

    timeout_seconds: int | None = None


# --- validate


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


# --- mutate


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


# --- generate


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


# --- delete


class DeletingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is deleted, and the cron schedule that says when."""

    schedule: str
    match_constraints: MatchResources | None = None
    conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    deletion_propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None


# --- images


class ImageValidatingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which images must be signed by whom, and what must hold for their attestations."""

    attestors: tuple[ImageAttestor, ...]
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
    credentials: ImageCredentials | None = None
    images: tuple[ImagesExpression, ...] = ()
    attestations: tuple[ImageAttestation, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: Evaluation = Evaluation()
    autogen: ImageAutogen = ImageAutogen()


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
