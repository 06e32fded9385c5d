"""PersistentVolumes, claims, and the kinds of storage.k8s.io."""

from datetime import datetime

from lictor.addons.apiserver.field_errors import Say, forbidden, invalid, required, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import (
    UNSET,
    age_of,
    build_columns,
    build_timed_columns,
    join_words,
    name_of,
)
from lictor.addons.apiserver.resources.pod_defaults import set_source_defaults
from lictor.addons.apiserver.resources.registry import WHOLE_METADATA, BuiltinResource
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_named,
    check_same,
    check_subdomain,
    need,
)
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_DRIVER_DEFAULTS = {
    "attachRequired": True,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "podInfoOnMount": False,
    "requiresRepublish": False,
    "seLinuxMount": False,
    "storageCapacity": False,
}


def set_volume_defaults(volume: JsonObject) -> None:
    """A PersistentVolume."""
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    set_source_defaults(spec)
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def set_claim_defaults(claim: JsonObject) -> None:
    """A PersistentVolumeClaim."""
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def set_storage_class_defaults(storage_class: JsonObject) -> None:
    """A StorageClass."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def set_driver_defaults(driver: JsonObject) -> None:
    """A CSIDriver."""
    spec = driver.setdefault("spec", {})
    for key, value in _DRIVER_DEFAULTS.items():
        spec.setdefault(key, value)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])


_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_VOLUME_FIELDS = frozenset((
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
    "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName", "volumeMode",
))  # fmt: skip
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def validate_claim(claim: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PersistentVolumeClaim."""
    spec = read_object(claim, "spec")
    if not spec.get("accessModes"):
        say(required("spec.accessModes", "at least 1 access mode is required"))
    _check_modes(spec, say)
    amount = read_object(read_object(spec, "resources"), "requests").get("storage")
    if amount is None:
        say(required("spec.resources[storage]"))
    elif not _is_positive(str(amount)):
        say(invalid("spec.resources[storage]", str(amount), "must be greater than zero"))
    check_named(spec.get("storageClassName"), check_subdomain, "spec.storageClassName", say)
    check_choice(spec.get("volumeMode"), _VOLUME_MODES, "spec.volumeMode", say)
    before = read_object(old, "spec")
    if before.get("volumeName") and _fixed(spec) != _fixed(before):
        say(forbidden("spec", _CLAIM_FIXED))


def _fixed(spec: JsonObject) -> JsonObject:
    changeable = ("resources", "volumeAttributesClassName")
    return {key: value for key, value in spec.items() if key not in changeable}


def _check_modes(spec: JsonObject, say: Say) -> None:
    for mode in read_list(spec, "accessModes"):
        check_choice(mode, _MODES, "spec.accessModes", say)


def _is_positive(text: str) -> bool:
    try:
        return Quantity(0) < parse_quantity(text)
    except ValueError:
        return False


def validate_volume(volume: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PersistentVolume."""
    spec = read_object(volume, "spec")
    need(spec, ("accessModes", "capacity"), "spec", say)
    _check_modes(spec, say)
    capacity = spec.get("capacity")
    if set(capacity or ()) != {"storage"}:
        say(unsupported("spec.capacity", capacity, ("storage",)))
    policy = spec.get("persistentVolumeReclaimPolicy")
    policies = ("Delete", "Recycle", "Retain")
    check_choice(policy, policies, "spec.persistentVolumeReclaimPolicy", say)
    sources = [field for field in spec if field not in _VOLUME_FIELDS]
    if not sources:
        say(required("spec", "must specify a volume type"))
    if "hostPath" in sources:
        need(read_object(spec, "hostPath"), ("path",), "spec.hostPath", say)
    for extra in sources[1:]:
        say(forbidden(f"spec.{extra}", "may not specify more than 1 volume type"))
    before = read_object(old, "spec")
    if before and any(spec.get(field) != before.get(field) for field in sources):
        told = "spec.persistentvolumesource is immutable after creation"
        say(forbidden("spec.persistentvolumesource", told))


def validate_storage_class(storage_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A StorageClass."""
    need(storage_class, ("provisioner",), "", say)
    policy, mode = storage_class.get("reclaimPolicy"), storage_class.get("volumeBindingMode")
    check_choice(policy, ("Delete", "Retain"), "reclaimPolicy", say)
    modes = ("Immediate", "WaitForFirstConsumer")
    check_choice(mode, modes, "volumeBindingMode", say)
    for field in ("parameters", "provisioner", "reclaimPolicy"):
        if old is not None and storage_class.get(field) != old.get(field):
            say(forbidden(field, f"updates to {field} are forbidden."))
    check_same(storage_class, old, ("volumeBindingMode",), "", say)


def validate_driver(driver: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A CSIDriver."""
    del old
    policy = read_object(driver, "spec").get("fsGroupPolicy")
    check_choice(policy, ("File", "None", "ReadWriteOnceWithFSType"), "spec.fsGroupPolicy", say)


_MODE_ABBREVIATIONS = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def _tell_modes(modes: list[Json]) -> str:
    return join_words(short for mode, short in _MODE_ABBREVIATIONS.items() if mode in modes)


def _find_class(document: JsonObject) -> str:
    annotations = read_object(read_object(document, "metadata"), "annotations")
    spec = read_object(document, "spec")
    return read_text(annotations, _OLD_CLASS) or read_text(spec, "storageClassName")


def _tell_phase(document: JsonObject) -> str:
    if read_object(document, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return read_text(read_object(document, "status"), "phase")


def _list_claim_cells(claim: JsonObject) -> list[Json]:
    spec, status = read_object(claim, "spec"), read_object(claim, "status")
    volume = read_text(spec, "volumeName")
    return [
        _tell_phase(claim),
        volume,
        read_text(read_object(status, "capacity"), "storage") if volume else "",
        _tell_modes(read_list(status, "accessModes")) if volume else "",
        _find_class(claim),
        read_text(spec, "volumeAttributesClassName") or UNSET,
        read_text(spec, "volumeMode") or UNSET,
    ]


def _list_volume_cells(volume: JsonObject) -> list[Json]:
    spec = read_object(volume, "spec")
    claim = read_object(spec, "claimRef")
    owner = f"{read_text(claim, 'namespace')}/{read_text(claim, 'name')}" if claim else ""
    return [
        _tell_modes(read_list(spec, "accessModes")),
        _tell_phase(volume),
        owner,
        _find_class(volume),
        read_text(spec, "volumeAttributesClassName") or UNSET,
        read_text(spec, "volumeMode") or UNSET,
    ]


def _fill_class(storage_class: JsonObject, now: datetime) -> list[Json]:
    annotations = read_object(read_object(storage_class, "metadata"), "annotations")
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        name_of(storage_class) + (" (default)" if is_default else ""),
        read_text(storage_class, "provisioner"),
        read_text(storage_class, "reclaimPolicy"),
        read_text(storage_class, "volumeBindingMode"),
        storage_class.get("allowVolumeExpansion") is True,
        age_of(storage_class, now),
    ]


def _list_driver_cells(driver: JsonObject) -> list[Json]:
    spec = read_object(driver, "spec")
    requests = [read_text(each, "audience") for each in read_list(spec, "tokenRequests")]
    return [
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        join_words(requests) or UNSET,
        spec.get("requiresRepublish", False),
        join_words(read_list(spec, "volumeLifecycleModes")),
    ]


def _list_node_cells(node: JsonObject) -> list[Json]:
    return [len(read_list(read_object(node, "spec"), "drivers"))]


def _list_attachment_cells(attachment: JsonObject) -> list[Json]:
    return [read_object(attachment, "status").get("attached") is True]


CLAIM = build_columns(
    "Name | Status | Volume | Capacity | Access Modes | StorageClass | VolumeAttributesClass "
    "| Age | VolumeMode!",
    _list_claim_cells,
)
VOLUME = build_columns(
    "Name | Capacity=spec.capacity.storage | Access Modes "
    "| Reclaim Policy=spec.persistentVolumeReclaimPolicy | Status | Claim | StorageClass "
    "| VolumeAttributesClass | Reason=status.reason | Age | VolumeMode!",
    _list_volume_cells,
)
STORAGE_CLASS = build_timed_columns(
    "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age",
    _fill_class,
)
ATTRIBUTES_CLASS = build_columns("Name | DriverName=driverName | Age")
DRIVER = build_columns(
    "Name | AttachRequired:boolean | PodInfoOnMount:boolean | StorageCapacity:boolean "
    "| TokenRequests | RequiresRepublish:boolean | Modes | Age",
    _list_driver_cells,
)
CSI_NODE = build_columns("Name | Drivers:integer | Age", _list_node_cells)
ATTACHMENT = build_columns(
    "Name | Attacher=spec.attacher | PV=spec.source.persistentVolumeName | Node=spec.nodeName "
    "| Attached:boolean | Age",
    _list_attachment_cells,
)
_GROUP = "storage.k8s.io"
RESOURCES = (
    BuiltinResource(
        "",
        "PersistentVolume",
        set_defaults=set_volume_defaults,
        validate=validate_volume,
        columns=VOLUME,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        "",
        "PersistentVolumeClaim",
        set_defaults=set_claim_defaults,
        validate=validate_claim,
        columns=CLAIM,
        returned_when_deleted=True,
        empty_object={"spec": {"resources": {}}},
    ),
    BuiltinResource(
        _GROUP,
        "StorageClass",
        set_defaults=set_storage_class_defaults,
        validate=validate_storage_class,
        columns=STORAGE_CLASS,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        _GROUP,
        "CSIDriver",
        set_defaults=set_driver_defaults,
        validate=validate_driver,
        columns=DRIVER,
        needs_version=True,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        _GROUP, "CSINode", columns=CSI_NODE, needs_version=True, returned_when_deleted=True
    ),
    BuiltinResource(
        _GROUP,
        "VolumeAttachment",
        columns=ATTACHMENT,
        status_keeps=WHOLE_METADATA,
        needs_version=True,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        _GROUP, "VolumeAttributesClass", columns=ATTRIBUTES_CLASS, returned_when_deleted=True
    ),
    BuiltinResource(_GROUP, "CSIStorageCapacity", needs_version=True),
)
