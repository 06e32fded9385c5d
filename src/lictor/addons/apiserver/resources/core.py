"""Namespace, Node, ConfigMap, Secret, Lease and other small kinds."""

import base64

from lictor.addons.apiserver.field_checks import (
    CheckedField,
    check_config_key,
    check_label,
    check_segment,
    take_any_name,
)
from lictor.addons.apiserver.field_errors import too_long
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import (
    WHOLE_METADATA,
    BuiltinResource,
    ObjectPart,
    SelectableField,
    select_by,
)
from lictor.addons.apiserver.table_columns import NONE, build_columns
from lictor.core.raw import Json, JsonObject


def _set_secret_defaults(secret: JsonObject) -> None:
    written = secret.pop("stringData", None)
    if written:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in written.items()}
        secret["data"] = {**read_object(secret, "data"), **encoded}
    if not secret.get("type"):
        secret["type"] = "Opaque"


def _set_namespace_defaults(namespace: JsonObject) -> None:
    metadata = namespace.setdefault("metadata", {})
    if name := read_text(metadata, "name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    spec = namespace.setdefault("spec", {})
    # Finalizers go by way of `finalize` only: those that are gone must not come back.
    if "deletionTimestamp" not in metadata:
        spec.setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _carry_namespace(old: JsonObject, sent: JsonObject) -> JsonObject:
    return {**sent, "spec": read_object(old, "spec")}


def _carry_finalizers(old: JsonObject, sent: JsonObject) -> JsonObject:
    finalizers = read_list(read_object(sent, "spec"), "finalizers")
    return {**old, "spec": {**read_object(old, "spec"), "finalizers": finalizers}}


def _set_api_service_defaults(service: JsonObject) -> None:
    reference = read_object(read_object(service, "spec"), "service")
    if reference:
        reference.setdefault("port", 443)


def _set_resource_claim_defaults(claim: JsonObject) -> None:
    devices = read_object(read_object(claim, "spec"), "devices")
    for request in read_list(devices, "requests"):
        exactly = read_object(request, "exactly")
        if exactly and exactly.setdefault("allocationMode", "ExactCount") == "ExactCount":
            exactly.setdefault("count", 1)


def _validate_runtime_class(runtime_class: CheckedField) -> None:
    runtime_class.need("handler")
    runtime_class.same("handler")


_MAX_SIZE = 1024 * 1024
_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105  (a type of Secrets)
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_FROZEN = "field is immutable when `immutable` is set"


def _validate_config_map(config_map: CheckedField) -> None:
    data, binary = config_map.at("data"), config_map.at("binaryData")
    for key in sorted(data.value):
        data.entry(key).named("", check_config_key, key)
        if key in binary.value:
            data.entry(key).invalid("", "duplicate of key present in binaryData", key)
    for key in sorted(binary.value):
        binary.entry(key).named("", check_config_key, key)
    if sum(map(_measure, (*data.value.values(), *binary.value.values()))) > _MAX_SIZE:
        config_map.add(too_long("", _MAX_SIZE))
    _check_frozen(config_map, ("data", "binaryData"))


def _measure(value: Json) -> int:
    return len(value) if isinstance(value, str) else 0


def _check_frozen(holder: CheckedField, fields: tuple[str, ...]) -> None:
    if holder.old is None or holder.old.get("immutable") is not True:
        return
    if holder.get("immutable") is not True:
        holder.forbid("immutable", _FROZEN)
    for field in fields:
        if read_object(holder.value, field) != read_object(holder.old, field):
            holder.forbid(field, _FROZEN)


def _validate_secret(secret: CheckedField) -> None:
    data, kind = secret.at("data"), secret.text("type")
    secret.same("type")
    for key in sorted(data.value):
        data.entry(key).named("", check_config_key, key)
    if sum(map(_measure, data.value.values())) > _MAX_SIZE * 4 // 3:
        secret.add(too_long("data", _MAX_SIZE))
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data.value:
            data.entry(key).required("")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data.value):
        data.entry("username").required("")
        data.entry("password").required("")
    annotations = secret.at("metadata").at("annotations")
    if kind == _ACCOUNT_TOKEN and not annotations.get(_ACCOUNT_NAME):
        annotations.entry(_ACCOUNT_NAME).required("")
    _check_frozen(secret, ("data",))


def _validate_lease(lease: CheckedField) -> None:
    spec = lease.at("spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        spec.invalid("leaseDurationSeconds", "must be greater than 0")
    spec.counts("leaseTransitions")


_ROLE = "node-role.kubernetes.io/"


def _count_data(holder: JsonObject) -> list[Json]:
    """Of a ConfigMap or a Secret."""
    return [sum(len(read_object(holder, field)) for field in ("data", "binaryData"))]


def _list_node_cells(node: JsonObject) -> list[Json]:
    spec, status = read_object(node, "spec"), read_object(node, "status")
    words = [_format_ready(status)]
    if spec.get("unschedulable") is True:
        words.append("SchedulingDisabled")
    labels = read_object(read_object(node, "metadata"), "labels")
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return [
        ",".join(words),
        ",".join(roles) or NONE,
        _find_address(status, "InternalIP"),
        _find_address(status, "ExternalIP"),
    ]


def _format_ready(status: JsonObject) -> str:
    for condition in read_list(status, "conditions"):
        if condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def _find_address(status: JsonObject, kind: str) -> str:
    found = [each for each in read_list(status, "addresses") if each.get("type") == kind]
    return read_text(found[0], "address") if found else NONE


def _list_revision_cells(revision: JsonObject) -> list[Json]:
    metadata = read_object(revision, "metadata")
    owner = next((o for o in read_list(metadata, "ownerReferences") if o.get("controller")), None)
    detail = NONE
    if owner is not None:
        group = read_text(owner, "apiVersion").rpartition("/")[0]
        kind = read_text(owner, "kind").lower()
        detail = (
            f"{kind}.{group}/{read_text(owner, 'name')}" if group else f"{kind}/{owner['name']}"
        )
    return [detail, revision.get("revision") or 0]


def _list_api_service_cells(service: JsonObject) -> list[Json]:
    reference = read_object(read_object(service, "spec"), "service")
    name = f"{read_text(reference, 'namespace')}/{read_text(reference, 'name')}"
    return [name if reference else "Local", "True"]


def _list_resource_claim_cells(claim: JsonObject) -> list[Json]:
    status = read_object(claim, "status")
    words = ["allocated"] if "allocation" in status else []
    words += ["reserved"] if read_list(status, "reservedFor") else []
    if read_object(claim, "metadata").get("deletionTimestamp"):
        words.insert(0, "deleted")
    return [",".join(words) or "pending"]


def _list_resource_slice_cells(resource_slice: JsonObject) -> list[Json]:
    spec = read_object(resource_slice, "spec")
    return [read_text(spec, "nodeName") or ("<all>" if spec.get("allNodes") else "<unset>")]


ACCOUNT = build_columns("Name | Secrets=#secrets | Age")
NODE = build_columns(
    "Name | Status | Roles | Age | Version=status.nodeInfo.kubeletVersion | Internal-IP! "
    "| External-IP! | OS-Image!=status.nodeInfo.osImage?<unknown> "
    "| Kernel-Version!=status.nodeInfo.kernelVersion?<unknown> "
    "| Container-Runtime!=status.nodeInfo.containerRuntimeVersion?<unknown>",
    _list_node_cells,
)
REVISION = build_columns("Name | Controller | Revision | Age", _list_revision_cells)
API_SERVICE = build_columns("Name | Service | Available | Age", _list_api_service_cells)
RESOURCE_CLAIM = build_columns("Name | State | Age", _list_resource_claim_cells)
RESOURCE_SLICE = build_columns(
    "Name | Node | Driver=spec.driver | Pool=spec.pool.name | Age", _list_resource_slice_cells
)
AGED = build_columns("Name | Age")
_RESOURCE = "resource.k8s.io"
RESOURCES = (
    BuiltinResource(
        "",
        "Namespace",
        set_defaults=_set_namespace_defaults,
        validate_name=check_label,
        columns=build_columns("Name | Status=status.phase | Age"),
        selectable_fields={
            **select_by("status.phase"), "name": SelectableField(("metadata", "name"))
        },
        returned_when_deleted=True,
        parts={
            "": ObjectPart(_carry_namespace, changes_metadata=True),
            "finalize": ObjectPart(_carry_finalizers, changes_metadata=True),
        },
    ),
    BuiltinResource(
        "",
        "Node",
        columns=NODE,
        selectable_fields=select_by("spec.unschedulable", missing="false"),
        created_with_status=True,
    ),
    BuiltinResource(
        "",
        "ConfigMap",
        validate=_validate_config_map,
        columns=build_columns("Name | Data | Age", _count_data),
    ),
    BuiltinResource(
        "",
        "Secret",
        set_defaults=_set_secret_defaults,
        validate=_validate_secret,
        columns=build_columns("Name | Type=type | Data | Age", _count_data),
        selectable_fields=select_by("type"),
    ),
    BuiltinResource("", "ServiceAccount", columns=ACCOUNT, returned_when_deleted=True),
    # Requests of these kinds are answered, never kept.
    BuiltinResource("", "Binding", validate_name=take_any_name),
    *(
        BuiltinResource("authorization.k8s.io", kind, validate_name=take_any_name)
        for kind in (
            "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
            "SubjectAccessReview",
        )
    ),
    BuiltinResource("authentication.k8s.io", "SelfSubjectReview", validate_name=take_any_name),
    BuiltinResource("authentication.k8s.io", "TokenReview", validate_name=take_any_name),
    BuiltinResource(
        "coordination.k8s.io",
        "Lease",
        validate=_validate_lease,
        columns=build_columns("Name | Holder=spec.holderIdentity | Age"),
        created_by_update=True,
        needs_version=True,
    ),
    BuiltinResource("apps", "ControllerRevision", columns=REVISION),
    BuiltinResource(
        "node.k8s.io",
        "RuntimeClass",
        validate=_validate_runtime_class,
        columns=build_columns("Name | Handler=handler | Age"),
        created_by_update=True,
        needs_version=True,
    ),
    BuiltinResource(
        "apiregistration.k8s.io",
        "APIService",
        set_defaults=_set_api_service_defaults,
        validate_name=check_segment,
        takes_any_finalizer=True,
        columns=API_SERVICE,
        status_keeps=WHOLE_METADATA,
    ),
    BuiltinResource(_RESOURCE, "DeviceClass", columns=AGED, counts_generations=True),
    BuiltinResource(_RESOURCE, "DeviceTaintRule", counts_generations=True),
    BuiltinResource(
        _RESOURCE,
        "ResourceClaim",
        set_defaults=_set_resource_claim_defaults,
        columns=RESOURCE_CLAIM,
        status_keeps=WHOLE_METADATA,
    ),
    BuiltinResource(_RESOURCE, "ResourceClaimTemplate", columns=AGED),
    BuiltinResource(_RESOURCE, "ResourceSlice", columns=RESOURCE_SLICE, counts_generations=True),
)  # fmt: skip
