"""PersistentVolumes, claims, and the kinds of storage.k8s.io."""

from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField, check_subdomain
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import WHOLE_METADATA, BuiltinResource
from lictor.addons.apiserver.resources.pod_defaults import set_source_defaults
from lictor.addons.apiserver.table_columns import (
    UNSET,
    age_of,
    build_columns,
    build_timed_columns,
    join_words,
    name_of,
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


def _set_volume_defaults(volume: JsonObject) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    set_source_defaults(spec)
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def set_claim_defaults(claim: JsonObject) -> None:
    """A PersistentVolumeClaim."""
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def _set_storage_class_defaults(storage_class: JsonObject) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _set_driver_defaults(driver: JsonObject) -> None:
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


def _validate_claim(claim: CheckedField) -> None:
    spec = claim.at("spec")
    if not spec.get("accessModes"):
        spec.required("accessModes", "at least 1 access mode is required")
    _check_modes(spec)
    amount = read_object(read_object(spec.value, "resources"), "requests").get("storage")
    if amount is None:
        spec.required("resources[storage]")
    elif not _is_positive(str(amount)):
        spec.invalid("resources[storage]", "must be greater than zero", str(amount))
    spec.named("storageClassName", check_subdomain)
    spec.choice("volumeMode", _VOLUME_MODES)
    before = spec.old or {}
    if before.get("volumeName") and _fixed(spec.value) != _fixed(before):
        claim.forbid("spec", _CLAIM_FIXED)


def _fixed(spec: JsonObject) -> JsonObject:
    changeable = ("resources", "volumeAttributesClassName")
    return {key: value for key, value in spec.items() if key not in changeable}


def _check_modes(spec: CheckedField) -> None:
    for mode in spec.list("accessModes"):
        if mode and mode not in _MODES:
            spec.unsupported("accessModes", _MODES, mode)


def _is_positive(text: str) -> bool:
    try:
        return Quantity(0) < parse_quantity(text)
    except ValueError:
        return False


def _validate_volume(volume: CheckedField) -> None:
    spec = volume.at("spec")
    spec.need("accessModes", "capacity")
    _check_modes(spec)
    if set(spec.get("capacity") or ()) != {"storage"}:
        spec.unsupported("capacity", ("storage",))
    spec.choice("persistentVolumeReclaimPolicy", ("Delete", "Recycle", "Retain"))
    sources = [field for field in spec.value if field not in _VOLUME_FIELDS]
    if not sources:
        volume.required("spec", "must specify a volume type")
    if "hostPath" in sources:
        spec.at("hostPath").need("path")
    for extra in sources[1:]:
        spec.forbid(extra, "may not specify more than 1 volume type")
    before = spec.old
    if before and any(spec.get(field) != before.get(field) for field in sources):
        why = "spec.persistentvolumesource is immutable after creation"
        spec.forbid("persistentvolumesource", why)


def _validate_storage_class(storage_class: CheckedField) -> None:
    storage_class.need("provisioner")
    storage_class.choice("reclaimPolicy", ("Delete", "Retain"))
    storage_class.choice("volumeBindingMode", ("Immediate", "WaitForFirstConsumer"))
    for field in ("parameters", "provisioner", "reclaimPolicy"):
        old = storage_class.old
        if old is not None and storage_class.get(field) != old.get(field):
            storage_class.forbid(field, f"updates to {field} are forbidden.")
    storage_class.same("volumeBindingMode")


def _validate_driver(driver: CheckedField) -> None:
    driver.at("spec").choice("fsGroupPolicy", ("File", "None", "ReadWriteOnceWithFSType"))


_MODE_ABBREVIATIONS = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def _format_modes(modes: list[Json]) -> str:
    return join_words(short for mode, short in _MODE_ABBREVIATIONS.items() if mode in modes)


def _find_class(document: JsonObject) -> str:
    annotations = read_object(read_object(document, "metadata"), "annotations")
    spec = read_object(document, "spec")
    return read_text(annotations, _OLD_CLASS) or read_text(spec, "storageClassName")


def _format_phase(document: JsonObject) -> str:
    if read_object(document, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return read_text(read_object(document, "status"), "phase")


def _list_claim_cells(claim: JsonObject) -> list[Json]:
    spec, status = read_object(claim, "spec"), read_object(claim, "status")
    volume = read_text(spec, "volumeName")
    return [
        _format_phase(claim),
        volume,
        read_text(read_object(status, "capacity"), "storage") if volume else "",
        _format_modes(read_list(status, "accessModes")) if volume else "",
        _find_class(claim),
    ]


def _list_volume_cells(volume: JsonObject) -> list[Json]:
    spec = read_object(volume, "spec")
    claim = read_object(spec, "claimRef")
    owner = f"{read_text(claim, 'namespace')}/{read_text(claim, 'name')}" if claim else ""
    return [
        _format_modes(read_list(spec, "accessModes")),
        _format_phase(volume),
        owner,
        _find_class(volume),
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


def _list_attachment_cells(attachment: JsonObject) -> list[Json]:
    return [read_object(attachment, "status").get("attached") is True]


CLAIM = build_columns(
    "Name | Status | Volume | Capacity | Access Modes | StorageClass "
    "| VolumeAttributesClass=spec.volumeAttributesClassName?<unset> | Age "
    "| VolumeMode!=spec.volumeMode?<unset>",
    _list_claim_cells,
)
VOLUME = build_columns(
    "Name | Capacity=spec.capacity.storage | Access Modes "
    "| Reclaim Policy=spec.persistentVolumeReclaimPolicy | Status | Claim | StorageClass "
    "| VolumeAttributesClass=spec.volumeAttributesClassName?<unset> | Reason=status.reason | Age "
    "| VolumeMode!=spec.volumeMode?<unset>",
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
CSI_NODE = build_columns("Name | Drivers:integer=#spec.drivers | Age")
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
        set_defaults=_set_volume_defaults,
        validate=_validate_volume,
        columns=VOLUME,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        "",
        "PersistentVolumeClaim",
        set_defaults=set_claim_defaults,
        validate=_validate_claim,
        columns=CLAIM,
        returned_when_deleted=True,
        empty_object={"spec": {"resources": {}}},
    ),
    BuiltinResource(
        _GROUP,
        "StorageClass",
        set_defaults=_set_storage_class_defaults,
        validate=_validate_storage_class,
        columns=STORAGE_CLASS,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        _GROUP,
        "CSIDriver",
        set_defaults=_set_driver_defaults,
        validate=_validate_driver,
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
