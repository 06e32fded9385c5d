"""Kubewarden's kinds as records: policies in Wasm, groups of them, and their servers.

`v1alpha2` has the same fields as `v1`; Kubewarden converts neither.
"""

import posixpath
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import (
    ContextAwareResource,
    GroupEntry,
    MemberEntry,
    PolicyEntry,
    PolicyMode,
    ServerEntry,
)
from lictor.addons.kubewarden.family.policy_server import (
    DEFAULT_SERVER,
    PolicyServerSpec,
    name_policy,
)
from lictor.core.model.constraints import MatchPolicy, MatchResources, ResourceRule
from lictor.core.model.matching import FailurePolicy, MatchCondition
from lictor.core.model.metadata import LabelSelector, Metadata, Strings
from lictor.core.raw import Json, JsonObject

_FILE = "file://"
ModeWord: TypeAlias = Literal["protect", "monitor"]
SideEffects: TypeAlias = Literal["None", "NoneOnDryRun", "Some", "Unknown"]


class OperationRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Operations on resources, as a webhook configuration names them."""

    operations: tuple[Literal["*", "CREATE", "UPDATE", "DELETE", "CONNECT"], ...] = ()
    api_groups: Strings = ()
    api_versions: Strings = ()
    resources: Strings = ()
    scope: Literal["*", "Cluster", "Namespaced"] = "*"


class RequestSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The requests that a policy or a group evaluates, and the server that runs it."""

    rules: tuple[OperationRule, ...]
    policy_server: str = DEFAULT_SERVER
    mode: ModeWord = "protect"
    failure_policy: FailurePolicy = "Fail"
    background_audit: bool = True
    match_policy: MatchPolicy = "Equivalent"
    match_conditions: tuple[MatchCondition, ...] = ()
    object_selector: LabelSelector | None = None
    side_effects: SideEffects = "None"
    timeout_seconds: int = 10


class WasmPolicySpec(RequestSpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A policy in Wasm that evaluates the requests of its namespace."""

    module: str
    mutating: bool
    settings: JsonObject = {}
    timeout_eval_seconds: int | None = None
    message: str | None = None


class ClusterWasmPolicySpec(
    WasmPolicySpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True
):
    """A policy in Wasm that evaluates the requests of the whole cluster."""

    namespace_selector: LabelSelector | None = None
    context_aware_resources: tuple[ContextAwareResource, ...] = ()
    allow_inside_admission_controller_namespace: bool = False


class WasmMember(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A policy in Wasm that is a member of a group."""

    module: str
    settings: JsonObject = {}
    timeout_eval_seconds: int | None = None


class ClusterWasmMember(WasmMember, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A member of a group of the whole cluster: it may read objects."""

    context_aware_resources: tuple[ContextAwareResource, ...] = ()


class WasmGroupSpec(RequestSpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Policies in Wasm that decide together about the requests of their namespace."""

    expression: str
    message: str
    policies: dict[str, WasmMember]


class ClusterWasmGroupSpec(
    RequestSpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True
):
    """Policies in Wasm that decide together about the requests of the whole cluster."""

    expression: str
    message: str
    policies: dict[str, ClusterWasmMember]
    namespace_selector: LabelSelector | None = None
    allow_inside_admission_controller_namespace: bool = False


class WasmPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """AdmissionPolicy."""

    api_version: str
    kind: Literal["AdmissionPolicy"]
    metadata: Metadata
    spec: WasmPolicySpec
    status: Json = None


class ClusterWasmPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """ClusterAdmissionPolicy."""

    api_version: str
    kind: Literal["ClusterAdmissionPolicy"]
    metadata: Metadata
    spec: ClusterWasmPolicySpec
    status: Json = None


class WasmGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """AdmissionPolicyGroup."""

    api_version: str
    kind: Literal["AdmissionPolicyGroup"]
    metadata: Metadata
    spec: WasmGroupSpec
    status: Json = None


class ClusterWasmGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """ClusterAdmissionPolicyGroup."""

    api_version: str
    kind: Literal["ClusterAdmissionPolicyGroup"]
    metadata: Metadata
    spec: ClusterWasmGroupSpec
    status: Json = None


class PolicyServerDocument(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """PolicyServer."""

    api_version: str
    kind: Literal["PolicyServer"]
    metadata: Metadata
    spec: PolicyServerSpec
    status: Json = None


WasmRecord: TypeAlias = WasmPolicy | ClusterWasmPolicy | WasmGroup | ClusterWasmGroup
RECORDS: dict[str, type[msgspec.Struct]] = {
    "AdmissionPolicy": WasmPolicy,
    "ClusterAdmissionPolicy": ClusterWasmPolicy,
    "AdmissionPolicyGroup": WasmGroup,
    "ClusterAdmissionPolicyGroup": ClusterWasmGroup,
    "PolicyServer": PolicyServerDocument,
}


def find_namespace(record: WasmRecord) -> str:
    """The namespace whose requests a policy evaluates; empty for the whole cluster."""
    if isinstance(record, WasmPolicy | WasmGroup):
        return record.metadata.namespace or "default"
    return ""


def name_uniquely(record: WasmRecord) -> str:
    """The name by which servers, webhooks and reports know a policy."""
    return name_policy(
        namespace=find_namespace(record),
        name=record.metadata.name,
        is_group=isinstance(record, WasmGroup | ClusterWasmGroup),
    )


def describe_constraints(record: WasmRecord) -> MatchResources:
    """The requests of the rules and selectors; a namespace is not among them."""
    spec = record.spec
    namespaces = getattr(spec, "namespace_selector", None)
    return MatchResources(
        namespace_selector=namespaces,
        object_selector=spec.object_selector,
        resource_rules=tuple(
            ResourceRule(
                operations=rule.operations,
                api_groups=rule.api_groups,
                api_versions=rule.api_versions,
                resources=rule.resources,
                scope=rule.scope,
            )
            for rule in spec.rules
        ),
        match_policy=spec.match_policy,
    )


def describe_entry(record: WasmRecord, namespaced_capabilities: Strings = ()) -> ServerEntry:
    """The policy as its server knows it.

    `namespaced_capabilities` are the host calls that the server allows policies of namespaces;
    policies of the whole cluster may make all of them.
    """
    capabilities = namespaced_capabilities if find_namespace(record) else ("*",)
    spec = record.spec
    mode = PolicyMode(spec.mode)
    if isinstance(spec, WasmPolicySpec):
        return PolicyEntry(
            module=complete_address(spec.module),
            settings=spec.settings,
            context_aware_resources=_list_readable(spec),
            timeout_eval_seconds=spec.timeout_eval_seconds,
            host_capabilities=capabilities,
            policy_mode=mode,
            allowed_to_mutate=spec.mutating,
            # What is empty is as good as none, as the controller hands it over.
            message=spec.message or None,
        )
    return GroupEntry(
        expression=spec.expression,
        message=spec.message,
        policies={
            name: MemberEntry(
                module=complete_address(member.module),
                settings=member.settings,
                context_aware_resources=_list_readable(member),
                timeout_eval_seconds=member.timeout_eval_seconds,
                host_capabilities=capabilities,
            )
            for name, member in spec.policies.items()
        },
        policy_mode=mode,
    )


def complete_address(module: str) -> str:
    """The address of a module with what is meant by none."""
    return module if "://" in module else f"registry://{module}"


def locate_modules(record: WasmRecord, folder: str) -> WasmRecord:
    """The policy with modules that are files resolved from the folder of its file."""
    spec = record.spec
    if isinstance(spec, WasmPolicySpec):
        found = replace(spec, module=_locate(spec.module, folder))
        return replace(record, spec=found)
    members = {
        name: replace(member, module=_locate(member.module, folder))
        for name, member in spec.policies.items()
    }
    return replace(record, spec=replace(spec, policies=members))


def locate_modules_of_document(document: JsonObject, folder: str) -> JsonObject:
    """The same for a document as it stands in a file; what makes no sense stays as it is."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    found = _locate_in(spec, folder)
    members = spec.get("policies")
    if isinstance(members, dict):
        found["policies"] = {
            name: _locate_in(member, folder) if isinstance(member, dict) else member
            for name, member in members.items()
        }
    return {**document, "spec": found}


def _locate_in(spec: JsonObject, folder: str) -> JsonObject:
    module = spec.get("module")
    return {**spec, "module": _locate(module, folder)} if isinstance(module, str) else dict(spec)


def _locate(module: str, folder: str) -> str:
    path = module.removeprefix(_FILE)
    return module if path == module else f"{_FILE}{posixpath.join(folder, path)}"


def _list_readable(spec: msgspec.Struct) -> tuple[ContextAwareResource, ...]:
    found: tuple[ContextAwareResource, ...] = getattr(spec, "context_aware_resources", ())
    return found
