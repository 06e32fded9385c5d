"""Kyverno's classic policies as records: ClusterPolicy and Policy of kyverno.io/v1 and v2beta1.

Null and absent mean the same everywhere, as they do to an API server. An attribute is the
snake_case of the YAML name. Parts of free form are `Json`; some of those carry the name of a record
that tells which fields a reader may expect there.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from lictor.model.metadata import LabelSelector, Metadata, Strings
from lictor.raw import Json


def shaped_like(record: str, items: str = "") -> msgspec.Meta:
    """A note on a free-form field: it should look like the named record of this module.

    Where it is a list, each of its entries should look like `items`.
    """
    return msgspec.Meta(extra={"shape": record, "items": items})


Conditions: TypeAlias = Annotated[Json, shaped_like("AnyAllConditions", items="Condition")]
FailureAction: TypeAlias = Literal["Audit", "Enforce"]
# The older fields also take lower case.
AnyCaseAction: TypeAlias = Literal["audit", "enforce", "Audit", "Enforce"]
FailurePolicy: TypeAlias = Literal["Ignore", "Fail"]
CredentialProvider: TypeAlias = Literal["default", "amazon", "azure", "google", "github"]


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One comparison of `preconditions` or `deny.conditions`."""

    key: Json = None
    operator: str = ""
    value: Json = None
    message: str = ""


class AnyAllConditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Comparisons of which one (`any`) or each (`all`) must hold."""

    any: tuple[Condition, ...] = ()
    all: tuple[Condition, ...] = ()


# --- match and exclude


class Subject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A user, a group or a service account."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class ResourceDescription(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a resource must be called, be labelled and be asked for."""

    kinds: Strings = ()
    name: str = ""
    names: Strings = ()
    namespaces: Strings = ()
    annotations: dict[str, str] = {}
    selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    operations: tuple[Literal["CREATE", "CONNECT", "UPDATE", "DELETE"], ...] = ()


class ResourceFilter(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource and a caller; every part that is given must fit."""

    resources: ResourceDescription = ResourceDescription()
    subjects: tuple[Subject, ...] = ()
    roles: Strings = ()
    cluster_roles: Strings = ()


class Match(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Filters of which one (`any`) or each (`all`) must fit; or, the older form, one filter."""

    any: tuple[ResourceFilter, ...] = ()
    all: tuple[ResourceFilter, ...] = ()
    resources: ResourceDescription = ResourceDescription()
    subjects: tuple[Subject, ...] = ()
    roles: Strings = ()
    cluster_roles: Strings = ()


class MatchCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression with a name."""

    name: str
    expression: str


# --- context entries


class ConfigMapReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A ConfigMap to read."""

    name: str
    namespace: str = ""


class RequestData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of the body of a POST."""

    key: str
    value: Json


class HttpHeader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One header of a call."""

    key: str
    value: str


class ServiceCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A service other than the API server."""

    url: str
    headers: tuple[HttpHeader, ...] = ()
    ca_bundle: str = ""


class ApiCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A call of the Kubernetes API (`url_path`) or of a service."""

    url_path: str = ""
    method: Literal["GET", "POST"] = "GET"
    data: tuple[RequestData, ...] = ()
    service: ServiceCall | None = None
    default: Json = None
    jmes_path: str = ""


class RegistryCredentials(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How to log in to a registry."""

    allow_insecure_registry: bool = False
    providers: tuple[CredentialProvider, ...] = ()
    secrets: Strings = ()


class ImageRegistry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a registry knows of an image."""

    reference: str
    jmes_path: str = ""
    image_registry_credentials: RegistryCredentials | None = None


class Variable(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A value, or a query on what is already known."""

    value: Json = None
    jmes_path: str = ""
    default: Json = None


class GlobalReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A GlobalContextEntry to read."""

    name: str
    jmes_path: str = ""


class ContextEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A variable of a rule and where its value comes from."""

    name: str
    config_map: ConfigMapReference | None = None
    api_call: ApiCall | None = None
    image_registry: ImageRegistry | None = None
    variable: Variable | None = None
    global_reference: GlobalReference | None = None


# --- validate


class ActionOverride(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Another failure action in some namespaces."""

    action: AnyCaseAction = "Audit"
    namespaces: Strings = ()
    namespace_selector: LabelSelector | None = None


class Deny(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fail where the conditions hold; without conditions, always."""

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
    """A control that some images or values need not keep."""

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
    """A Pod Security Standard to keep."""

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
    """A CEL expression that others refer to by name."""

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


class SecretReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Secret that holds a key."""

    name: str
    namespace: str


class Rekor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A transparency log."""

    url: str = ""
    pubkey: str = ""
    ignore_tlog: bool = False


class CtLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A certificate transparency log."""

    ignore_sct: bool = msgspec.field(default=False, name="ignoreSCT")
    pubkey: str = ""
    tsa_cert_chain: str = ""


class StaticKeys(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed with one of these keys."""

    public_keys: str = ""
    signature_algorithm: str = "sha256"
    kms: str = ""
    secret: SecretReference | None = None
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Certificates(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed with this certificate."""

    cert: str = ""
    cert_chain: str = ""
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Keyless(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed by this identity."""

    issuer: str = ""
    issuer_reg_exp: str = ""
    subject: str = ""
    subject_reg_exp: str = ""
    roots: str = ""
    additional_extensions: dict[str, str] = {}
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Attestor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who must have signed; `attestor` nests a whole AttestorSet."""

    keys: StaticKeys | None = None
    certificates: Certificates | None = None
    keyless: Keyless | None = None
    attestor: Annotated[Json, shaped_like("AttestorSet")] = None
    annotations: dict[str, str] = {}
    repository: str = ""
    signature_algorithm: str = "sha256"


class AttestorSet(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many of these must have signed; all, where no count is given."""

    count: int | None = None
    entries: tuple[Attestor, ...] = ()


class Validate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a resource must look like: one of the bodies, and what follows from a failure."""

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


class ManifestsDryRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whether the API server's defaults may differ from what was signed."""

    enable: bool = False
    namespace: str = ""


class ManifestsIgnore(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fields that may differ from what was signed."""

    fields: Strings = ()
    objects: Json = None


class Manifests(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A signed manifest (k8s-manifest-sigstore)."""

    attestors: tuple[AttestorSet, ...] = ()
    annotation_domain: str = ""
    ignore_fields: tuple[ManifestsIgnore, ...] = ()
    dry_run: ManifestsDryRun | None = None
    repository: str = ""


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
    """An existing object to change instead of the one under judgement."""

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
    """An object to make for each element of a list."""

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
    """Objects to make."""

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
    """Where a custom resource keeps its images."""

    path: str
    value: str = ""
    name: str = ""
    key: str = ""
    jmes_path: str = ""


# --- the policy


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What to look at, and what to check, change, make or verify there."""

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
    """How the API server shall call for this policy."""

    failure_policy: FailurePolicy | None = None
    timeout_seconds: int | None = None
    match_conditions: tuple[MatchCondition, ...] = ()


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The rules, and what holds for all of them."""

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
