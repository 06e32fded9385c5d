"""Defaults of the volumes of Pods, and of PersistentVolumes."""

from lictor.apiserver.object_reader import read_list, read_object
from lictor.raw import JsonObject

_MODE = 0o644
# Fields that a source of a volume has where nothing is said.
_SOURCES: dict[str, JsonObject] = {
    "secret": {"defaultMode": _MODE},
    "configMap": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False,
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}  # fmt: skip


def complete_volume_source(volume: JsonObject) -> None:
    """A volume of a Pod; without a source it is an empty folder."""
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
        return
    complete_source(volume)
    _complete_items(read_object(volume, "downwardAPI"))
    for source in read_list(read_object(volume, "projected"), "sources"):
        _complete_items(read_object(source, "downwardAPI"))
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
    template = read_object(read_object(volume, "ephemeral"), "volumeClaimTemplate")
    if template:
        template.setdefault("metadata", {})
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def complete_source(volume: JsonObject) -> None:
    """The source, whichever it is."""
    for name, defaults in _SOURCES.items():
        source = volume.get(name)
        if isinstance(source, dict):
            volume[name] = {**defaults, **source}


def _complete_items(source: JsonObject) -> None:
    for item in read_list(source, "items"):
        reference = read_object(item, "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
