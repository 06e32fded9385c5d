"""Kyverno's CEL policies: the specs of its kinds, and the exceptions from such policies."""

from datetime import datetime
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
    """A feature that is on unless switched off."""

    enabled: bool = True


class DisabledByDefault(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A feature that is off unless switched on."""

    enabled: bool = False


class Evaluation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When a policy is evaluated, and on what: Kubernetes requests or any JSON."""

    # Kubernetes or JSON; other evaluators of the same kind define further modes.
    mode: str = "Kubernetes"
    admission: EnabledByDefault = EnabledByDefault()
    background: EnabledByDefault = EnabledByDefault()


class MutatingEvaluation(Evaluation, frozen=True, rename="camel", omit_defaults=True):
    """The same, and whether existing objects are changed."""

    mutate_existing: DisabledByDefault = DisabledByDefault()
    # Do requests of the background controller not trigger it?
    skip_background_requests: bool = True
    # Are atomic lists and maps replaced as a whole, instead of refused?
    use_server_side_apply: bool = False


class GeneratingEvaluation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When objects are generated, and whether they are synchronized later."""

    admission: EnabledByDefault = EnabledByDefault()
    generate_existing: DisabledByDefault = DisabledByDefault()
    synchronize: DisabledByDefault = DisabledByDefault()
    orphan_downstream_on_policy_delete: DisabledByDefault = DisabledByDefault()
    skip_background_requests: bool = True


class PodControllers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The kinds that a policy about Pods also covers: None is all of them, an empty list none."""

    controllers: Strings | None = None


class ValidatingAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is generated from a validating policy."""

    pod_controllers: PodControllers | None = None
    validating_admission_policy: DisabledByDefault = DisabledByDefault()


class MutatingAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is generated from a mutating policy."""

    pod_controllers: PodControllers | None = None
    mutating_admission_policy: DisabledByDefault = DisabledByDefault()


class ImageAutogen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What else is generated from an image policy."""

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
    # Default: Deny.
    validation_actions: tuple[ValidationAction, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: Evaluation = Evaluation()


# --- mutate


class TargetMatchConstraints(MatchResources, frozen=True, rename="camel", omit_defaults=True):
    """Which existing objects are changed; the expression returns them directly."""

    expression: str = ""


class MutatingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is changed in which requests, or in which other objects."""

    match_constraints: MatchResources | None = None
    failure_policy: FailurePolicy = "Fail"
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    autogen: MutatingAutogen = MutatingAutogen()
    target_match_constraints: TargetMatchConstraints | None = None
    # What must hold for a target beside its constraints.
    target_match_conditions: tuple[MatchCondition, ...] = ()
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()
    evaluation: MutatingEvaluation = MutatingEvaluation()
    reinvocation_policy: ReinvocationPolicy = "Never"


# --- generate


class GenerationTemplate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects as YAML; with `interpolate: cel`, `(( expression ))` stands for its value."""

    value: str
    interpolate: Literal["none", "cel"] = "none"


class Generation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A template of objects, or a CEL expression that calls `generator.Apply`."""

    expression: str = ""
    template: GenerationTemplate | None = None


class GeneratingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which objects are generated for which requests."""

    generate: tuple[Generation, ...]
    match_constraints: MatchResources | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[CelVariable, ...] = ()
    evaluation: GeneratingEvaluation = GeneratingEvaluation()
    use_server_side_apply: bool = False
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    webhook_configuration: WebhookTimeout = WebhookTimeout()


# --- delete


class DeletingSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which objects are deleted, and the cron schedule."""

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
    # Default: Deny.
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
    """Which requests, images or values are exempt from which policies."""

    policy_refs: tuple[CelPolicyRef, ...]
    match_conditions: tuple[MatchCondition, ...] = ()
    images: Strings = ()
    allowed_values: Strings = ()
    report_result: Literal["skip", "pass"] = "skip"
    # RFC 3339; from then on, the exception is ignored.
    expires_at: str = ""
    # Free metadata; no part of Kyverno or lictor reads these two.
    properties: dict[str, str] = {}
    evaluation_mode: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether it only allows single images or values."""
        return bool(self.images or self.allowed_values)

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over; a time that cannot be read is over."""
        if not self.expires_at:
            return False
        try:
            until = datetime.fromisoformat(self.expires_at)
        except ValueError:
            return True
        return until.tzinfo is None or now > until


class CelException(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A PolicyException of policies.kyverno.io: an exception from CEL policies."""

    api_version: str
    kind: Literal["PolicyException"]
    metadata: Metadata
    spec: CelExceptionSpec
