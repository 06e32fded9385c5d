"""Namespace, Node, ConfigMap, Secret and other small kinds."""

import base64

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.field_errors import too_long
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectPart
from lictor.addons.apiserver.name_rules import check_config_key
from lictor.addons.apiserver.table_columns import NONE, UNSET
from lictor.core.raw import Json, JsonObject


def set_secret_defaults(secret: JsonObject) -> None:
    """Encode `stringData`."""
    written = secret.pop("stringData", None)
    if written:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in written.items()}
        secret["data"] = {**read_object(secret, "data"), **encoded}


def set_namespace_defaults(namespace: JsonObject) -> None:
    """The label with the name, and the finalizer of the content."""
    metadata = namespace.setdefault("metadata", {})
    if name := read_text(metadata, "name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    spec = namespace.setdefault("spec", {})
    # Only `finalize` removes finalizers: those that are gone must not come back.
    if "deletionTimestamp" not in metadata:
        spec.setdefault("finalizers", ["kubernetes"])


def _carry_namespace(old: JsonObject, sent: JsonObject) -> JsonObject:
    return {**sent, "spec": read_object(old, "spec")}


def _carry_finalizers(old: JsonObject, sent: JsonObject) -> JsonObject:
    finalizers = read_list(read_object(sent, "spec"), "finalizers")
    return {**old, "spec": {**read_object(old, "spec"), "finalizers": finalizers}}


NAMESPACE_PARTS = {
    "": ObjectPart(_carry_namespace, changes_metadata=True),
    "finalize": ObjectPart(_carry_finalizers, changes_metadata=True),
}
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


def validate_config_map(config_map: CheckedField) -> None:
    """Keys and size of the content."""
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


def validate_secret(secret: CheckedField) -> None:
    """Keys and size of the content, and keys that a type requires."""
    data, kind = secret.at("data"), secret.text("type")
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


_ROLE = "node-role.kubernetes.io/"


def count_data(holder: JsonObject) -> list[Json]:
    """Of a ConfigMap or a Secret."""
    return [sum(len(read_object(holder, field)) for field in ("data", "binaryData"))]


def list_node_cells(node: JsonObject) -> list[Json]:
    """Status, roles and addresses."""
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


def list_revision_cells(revision: JsonObject) -> list[Json]:
    """The controller."""
    owners = read_list(read_object(revision, "metadata"), "ownerReferences")
    for owner in owners:
        if owner.get("controller"):
            group = read_text(owner, "apiVersion").rpartition("/")[0]
            kind = read_text(owner, "kind").lower()
            return [f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"]
    return [NONE]


def list_api_service_cells(_: JsonObject) -> list[Json]:
    """All of them are available."""
    return ["True"]


def list_resource_claim_cells(claim: JsonObject) -> list[Json]:
    """The state."""
    status = read_object(claim, "status")
    words = ["allocated"] if "allocation" in status else []
    words += ["reserved"] if read_list(status, "reservedFor") else []
    if read_object(claim, "metadata").get("deletionTimestamp"):
        words.insert(0, "deleted")
    return [",".join(words) or "pending"]


def list_resource_slice_cells(resource_slice: JsonObject) -> list[Json]:
    """The node."""
    spec = read_object(resource_slice, "spec")
    return [read_text(spec, "nodeName") or ("<all>" if spec.get("allNodes") else UNSET)]
