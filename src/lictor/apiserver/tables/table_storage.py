"""Rows of volumes, claims and classes of storage."""

from datetime import datetime

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.apiserver.tables.table_columns import UNSET, age_of, build_layout, join_words, name_of
from lictor.raw import Json, JsonObject

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def _tell_modes(modes: list[Json]) -> str:
    return join_words(short for mode, short in _MODES.items() if mode in modes)


def _find_class(document: JsonObject) -> str:
    annotations = read_object(read_object(document, "metadata"), "annotations")
    spec = read_object(document, "spec")
    return read_text(annotations, _OLD_CLASS) or read_text(spec, "storageClassName")


def _tell_phase(document: JsonObject) -> str:
    if read_object(document, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return read_text(read_object(document, "status"), "phase")


def _fill_claim(claim: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(claim, "spec"), read_object(claim, "status")
    volume = read_text(spec, "volumeName")
    return [
        name_of(claim),
        _tell_phase(claim),
        volume,
        read_text(read_object(status, "capacity"), "storage") if volume else "",
        _tell_modes(read_list(status, "accessModes")) if volume else "",
        _find_class(claim),
        read_text(spec, "volumeAttributesClassName") or UNSET,
        age_of(claim, now),
        read_text(spec, "volumeMode") or UNSET,
    ]


def _fill_volume(volume: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(volume, "spec")
    claim = read_object(spec, "claimRef")
    owner = f"{read_text(claim, 'namespace')}/{read_text(claim, 'name')}" if claim else ""
    return [
        name_of(volume),
        read_text(read_object(spec, "capacity"), "storage"),
        _tell_modes(read_list(spec, "accessModes")),
        read_text(spec, "persistentVolumeReclaimPolicy"),
        _tell_phase(volume),
        owner,
        _find_class(volume),
        read_text(spec, "volumeAttributesClassName") or UNSET,
        read_text(read_object(volume, "status"), "reason"),
        age_of(volume, now),
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


def _fill_attributes_class(attributes_class: JsonObject, now: datetime) -> list[Json]:
    driver = read_text(attributes_class, "driverName")
    return [name_of(attributes_class), driver, age_of(attributes_class, now)]


def _fill_driver(driver: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(driver, "spec")
    requests = [read_text(each, "audience") for each in read_list(spec, "tokenRequests")]
    return [
        name_of(driver),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        join_words(requests) or UNSET,
        spec.get("requiresRepublish", False),
        join_words(read_list(spec, "volumeLifecycleModes")),
        age_of(driver, now),
    ]


def _fill_node(node: JsonObject, now: datetime) -> list[Json]:
    drivers = read_list(read_object(node, "spec"), "drivers")
    return [name_of(node), len(drivers), age_of(node, now)]


def _fill_attachment(attachment: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(attachment, "spec"), read_object(attachment, "status")
    volume = read_text(read_object(spec, "source"), "persistentVolumeName")
    return [
        name_of(attachment),
        read_text(spec, "attacher"),
        volume,
        read_text(spec, "nodeName"),
        status.get("attached") is True,
        age_of(attachment, now),
    ]


CLAIM = build_layout(
    "Name | Status | Volume | Capacity | Access Modes | StorageClass | VolumeAttributesClass "
    "| Age | VolumeMode!",
    _fill_claim,
)
VOLUME = build_layout(
    "Name | Capacity | Access Modes | Reclaim Policy | Status | Claim | StorageClass "
    "| VolumeAttributesClass | Reason | Age | VolumeMode!",
    _fill_volume,
)
STORAGE_CLASS = build_layout(
    "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age",
    _fill_class,
)
ATTRIBUTES_CLASS = build_layout("Name | DriverName | Age", _fill_attributes_class)
DRIVER = build_layout(
    "Name | AttachRequired:boolean | PodInfoOnMount:boolean | StorageCapacity:boolean "
    "| TokenRequests | RequiresRepublish:boolean | Modes | Age",
    _fill_driver,
)
CSI_NODE = build_layout("Name | Drivers:integer | Age", _fill_node)
ATTACHMENT = build_layout("Name | Attacher | PV | Node | Attached:boolean | Age", _fill_attachment)
