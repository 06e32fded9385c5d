"""Kyverno's classic policies as records: ClusterPolicy and Policy of kyverno.io/v1 and v2beta1.

Null and absent mean the same everywhere, as they do to an API server. An attribute is the
snake_case of the YAML name. Free-form parts are `Json`; some of those carry the name of a record
that documents the expected fields.
"""

from typing import Annotated, Literal

import msgspec

from lictor.core.model.matching import (
    AnyCaseAction,
    Conditions,
    ContextEntry,
    FailureAction,
    FailurePolicy,
    Match,
    MatchCondition,
    RegistryCredentials,
    shaped_like,
)
from lictor.core.model.metadata import LabelSelector, Metadata, Strings
from lictor.core.model.signatures import AttestorSet
from lictor.core.raw import Json

# --- validate


class ActionOverride(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Another failure action in some namespaces."""

    action: AnyCaseAction = "Audit"
    namespaces: Strings = ()
    namespace_selector: LabelSelector | None = None


class Deny(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fail if the conditions hold; without conditions, always."""

    conditions: Conditions = None


class ForEachValidate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check of each element of a list."""

    list: str = ""
    element_scope: bool | None = None
    context: tuple[ContextEntry, ...] = ()
    preconditions: Conditions = None
    pattern: Json = None
    any_pattern: Json = None
    deny: Deny | None = None
    foreach: tuple["ForEachValidate", ...] = ()


class PodSecurityStandard(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A control from which some images or values are exempt."""

    control_name: Literal[
        "HostProcess",
        "Host Namespaces",
        "Privileged Containers",
        "Capabilities",
        "HostPath Volumes",
        "Host Ports",
        "AppArmor",
        "SELinux",
        "/proc Mount Type",
        "Seccomp",
        "Sysctls",
        "Volume Types",
        "Privilege Escalation",
        "Running as Non-root",
        "Running as Non-root user",
    ]
    images: Strings = ()
    restricted_field: str = ""
    values: Strings = ()


class PodSecurity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Pod Security Standard to comply with."""

    level: Literal["", "privileged", "baseline", "restricted"] = ""
    version: str = ""
    exclude: tuple[PodSecurityStandard, ...] = ()


class CelExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression that must be true."""

    expression: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""


class ParamKind(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The kind of the parameter objects."""

    api_version: str = ""
    kind: str = ""


class ParamRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which parameter objects."""

    name: str = ""
    namespace: str = ""
    selector: LabelSelector | None = None
    parameter_not_found_action: str = ""


class AuditAnnotation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression whose value goes to the audit log."""

    key: str
    value_expression: str


class CelVariable(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression that other expressions refer to by name."""

    name: str
    expression: str


class Cel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check in CEL."""

    generate: bool = False
    expressions: tuple[CelExpression, ...] = ()
    param_kind: ParamKind | None = None
    param_ref: ParamRef | None = None
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    variables: tuple[CelVariable, ...] = ()


class Validate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The required content of a resource: one of the bodies, and the action on failure."""

    message: str = ""
    failure_action: FailureAction | None = None
    failure_action_overrides: tuple[ActionOverride, ...] = ()
    allow_existing_violations: bool = True
    pattern: Json = None
    any_pattern: Json = None
    deny: Deny | None = None
    foreach: tuple[ForEachValidate, ...] = ()
    pod_security: PodSecurity | None = None
    cel: Cel | None = None
    manifests: Annotated[Json, shaped_like("Manifests")] = None
    assert_: Json = msgspec.field(default=None, name="assert")


# --- mutate


class ForEachMutate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change for each element of a list."""

    list: str = ""
    order: Literal["Ascending", "Descending"] | None = None
    context: tuple[ContextEntry, ...] = ()
    preconditions: Conditions = None
    patch_strategic_merge: Json = None
    patches_json6902: str = msgspec.field(default="", name="patchesJson6902")
    foreach: tuple["ForEachMutate", ...] = ()


class MutateTarget(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An existing object to change instead of the one of the request."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    selector: LabelSelector | None = None
    context: tuple[ContextEntry, ...] = ()
    preconditions: Conditions = None


class Mutate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a resource must change."""

    mutate_existing_on_policy_update: bool | None = None
    targets: tuple[MutateTarget, ...] = ()
    patch_strategic_merge: Json = None
    patches_json6902: str = msgspec.field(default="", name="patchesJson6902")
    foreach: tuple[ForEachMutate, ...] = ()


# --- generate


class Clone(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object to copy."""

    namespace: str = ""
    name: str = ""


class CloneList(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects to copy."""

    namespace: str = ""
    kinds: Strings = ()
    selector: LabelSelector | None = None


class ForEachGenerate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object to generate for each element of a list."""

    list: str = ""
    context: tuple[ContextEntry, ...] = ()
    preconditions: Conditions = None
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    data: Json = None
    clone: Clone = Clone()
    clone_list: CloneList = CloneList()


class Generate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects to generate."""

    generate_existing: bool | None = None
    synchronize: bool = False
    orphan_downstream_on_policy_delete: bool = False
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    data: Json = None
    clone: Clone = Clone()
    clone_list: CloneList = CloneList()
    foreach: tuple[ForEachGenerate, ...] = ()


# --- verifyImages


class Attestation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A signed statement about an image."""

    name: str = ""
    predicate_type: str = ""
    type: str = ""
    attestors: tuple[AttestorSet, ...] = ()
    conditions: tuple[Conditions, ...] = ()


class ValidateImage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check of an image after its verification."""

    message: str = ""
    deny: Deny | None = None


class VerifyImages(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which images must be signed, and by whom."""

    failure_action: FailureAction | None = None
    type: Literal["Cosign", "SigstoreBundle", "Notary"] = "Cosign"
    image: str = ""
    image_references: Strings = ()
    skip_image_references: Strings = ()
    key: str = ""
    roots: str = ""
    subject: str = ""
    issuer: str = ""
    additional_extensions: dict[str, str] = {}
    attestors: tuple[AttestorSet, ...] = ()
    attestations: tuple[Attestation, ...] = ()
    annotations: dict[str, str] = {}
    repository: str = ""
    cosign_oci11: bool = msgspec.field(default=False, name="cosignOCI11")
    mutate_digest: bool = True
    verify_digest: bool = True
    validate: ValidateImage | None = None
    required: bool = True
    image_registry_credentials: RegistryCredentials | None = None
    use_cache: bool = True


class ImageExtractor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a custom resource has its images."""

    path: str
    value: str = ""
    name: str = ""
    key: str = ""
    jmes_path: str = ""


# --- the policy


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What to match, and what to validate, mutate, generate or verify."""

    name: str
    match: Match
    exclude: Match | None = None
    context: tuple[ContextEntry, ...] = ()
    preconditions: Conditions = None
    cel_preconditions: tuple[MatchCondition, ...] = ()
    image_extractors: dict[str, tuple[ImageExtractor, ...]] = {}
    report_properties: dict[str, str] = {}
    validate: Validate | None = None
    mutate: Mutate | None = None
    generate: Generate | None = None
    verify_images: tuple[VerifyImages, ...] = ()
    skip_background_requests: bool = True


class WebhookConfiguration(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the API server calls the webhook for this policy."""

    failure_policy: FailurePolicy | None = None
    timeout_seconds: int | None = None
    match_conditions: tuple[MatchCondition, ...] = ()


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The rules, and the settings for all of them."""

    rules: tuple[Rule, ...] = ()
    apply_rules: Literal["All", "One"] = "All"
    failure_policy: FailurePolicy | None = None
    validation_failure_action: AnyCaseAction = "Audit"
    validation_failure_action_overrides: tuple[ActionOverride, ...] = ()
    emit_warning: bool = False
    admission: bool = True
    background: bool = True
    schema_validation: bool | None = None
    webhook_timeout_seconds: int | None = None
    mutate_existing_on_policy_update: bool = False
    generate_existing_on_policy_update: bool | None = None
    generate_existing: bool = False
    use_server_side_apply: bool = False
    webhook_configuration: WebhookConfiguration | None = None


class Policy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A ClusterPolicy, or a Policy of one namespace."""

    api_version: str
    kind: Literal["ClusterPolicy", "Policy"]
    metadata: Metadata
    spec: Spec
    status: Json = None
