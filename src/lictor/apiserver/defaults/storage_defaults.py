"""Defaults of volumes, claims and classes of storage."""

from lictor.apiserver.defaults.volume_defaults import complete_source
from lictor.raw import JsonObject

_DRIVER_DEFAULTS = {
    "attachRequired": True,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "podInfoOnMount": False,
    "requiresRepublish": False,
    "seLinuxMount": False,
    "storageCapacity": False,
}


def complete_volume(volume: JsonObject) -> None:
    """A PersistentVolume."""
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    complete_source(spec)
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def complete_claim(claim: JsonObject) -> None:
    """A PersistentVolumeClaim."""
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def complete_storage_class(storage_class: JsonObject) -> None:
    """A StorageClass."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def complete_driver(driver: JsonObject) -> None:
    """A CSIDriver."""
    spec = driver.setdefault("spec", {})
    for key, value in _DRIVER_DEFAULTS.items():
        spec.setdefault(key, value)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
