"""Namespace, Node, ConfigMap, Secret, Lease and other small kinds."""

import base64

from lictor.addons.apiserver.field_errors import Say, forbidden, invalid, required, too_long
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import NONE, build_columns
from lictor.addons.apiserver.resources.registry import (
    WHOLE_METADATA,
    BuiltinResource,
    ObjectPart,
    SelectableField,
    select_by,
)
from lictor.addons.apiserver.resources.validation import (
    check_config_key,
    check_counts,
    check_label,
    check_same,
    check_segment,
    need,
    say_all,
    take_any_name,
)
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


def validate_runtime_class(runtime_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A RuntimeClass."""
    need(runtime_class, ("handler",), "", say)
    check_same(runtime_class, old, ("handler",), "", say)


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


def validate_config_map(config_map: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ConfigMap."""
    data, binary = read_object(config_map, "data"), read_object(config_map, "binaryData")
    for key in sorted(data):
        say_all((invalid(f"data[{key}]", key, why) for why in check_config_key(key)), say)
        if key in binary:
            say(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in sorted(binary):
        say_all((invalid(f"binaryData[{key}]", key, why) for why in check_config_key(key)), say)
    if sum(map(_weigh, (*data.values(), *binary.values()))) > _MAX_SIZE:
        say(too_long("", _MAX_SIZE))
    _check_frozen(config_map, old, ("data", "binaryData"), say)


def _weigh(value: Json) -> int:
    return len(value) if isinstance(value, str) else 0


def _check_frozen(
    document: JsonObject, old: JsonObject | None, fields: tuple[str, ...], say: Say
) -> None:
    if old is None or old.get("immutable") is not True:
        return
    if document.get("immutable") is not True:
        say(forbidden("immutable", _FROZEN))
    for field in fields:
        if read_object(document, field) != read_object(old, field):
            say(forbidden(field, _FROZEN))


def validate_secret(secret: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Secret."""
    data, kind = read_object(secret, "data"), read_text(secret, "type")
    check_same(secret, old, ("type",), "", say)
    for key in sorted(data):
        say_all((invalid(f"data[{key}]", key, why) for why in check_config_key(key)), say)
    if sum(map(_weigh, data.values())) > _MAX_SIZE * 4 // 3:
        say(too_long("data", _MAX_SIZE))
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            say(required(f"data[{key}]"))
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        say(required("data[username]"))
        say(required("data[password]"))
    annotations = read_object(read_object(secret, "metadata"), "annotations")
    if kind == _ACCOUNT_TOKEN and not annotations.get(_ACCOUNT_NAME):
        say(required(f"metadata.annotations[{_ACCOUNT_NAME}]"))
    _check_frozen(secret, old, ("data",), say)


def validate_lease(lease: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Lease."""
    del old
    spec = read_object(lease, "spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        say(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    check_counts(spec, ("leaseTransitions",), "spec", say)


_ROLE = "node-role.kubernetes.io/"


def _count_data(holder: JsonObject) -> list[Json]:
    """Of a ConfigMap or a Secret."""
    return [sum(len(read_object(holder, field)) for field in ("data", "binaryData"))]


def _list_account_cells(account: JsonObject) -> list[Json]:
    return [len(read_list(account, "secrets"))]


def _list_node_cells(node: JsonObject) -> list[Json]:
    spec, status = read_object(node, "spec"), read_object(node, "status")
    facts = read_object(status, "nodeInfo")
    words = [_tell_ready(status)]
    if spec.get("unschedulable") is True:
        words.append("SchedulingDisabled")
    labels = read_object(read_object(node, "metadata"), "labels")
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return [
        ",".join(words),
        ",".join(roles) or NONE,
        _find_address(status, "InternalIP"),
        _find_address(status, "ExternalIP"),
        read_text(facts, "osImage") or "<unknown>",
        read_text(facts, "kernelVersion") or "<unknown>",
        read_text(facts, "containerRuntimeVersion") or "<unknown>",
    ]


def _tell_ready(status: JsonObject) -> str:
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
    told = NONE
    if owner is not None:
        group = read_text(owner, "apiVersion").rpartition("/")[0]
        kind = read_text(owner, "kind").lower()
        told = f"{kind}.{group}/{read_text(owner, 'name')}" if group else f"{kind}/{owner['name']}"
    return [told, revision.get("revision") or 0]


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


ACCOUNT = build_columns("Name | Secrets | Age", _list_account_cells)
NODE = build_columns(
    "Name | Status | Roles | Age | Version=status.nodeInfo.kubeletVersion | Internal-IP! "
    "| External-IP! | OS-Image! | Kernel-Version! | Container-Runtime!",
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
        validate=validate_config_map,
        columns=build_columns("Name | Data | Age", _count_data),
    ),
    BuiltinResource(
        "",
        "Secret",
        set_defaults=_set_secret_defaults,
        validate=validate_secret,
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
        validate=validate_lease,
        columns=build_columns("Name | Holder=spec.holderIdentity | Age"),
        created_by_update=True,
        needs_version=True,
    ),
    BuiltinResource("apps", "ControllerRevision", columns=REVISION),
    BuiltinResource(
        "node.k8s.io",
        "RuntimeClass",
        validate=validate_runtime_class,
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
