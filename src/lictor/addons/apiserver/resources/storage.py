"""PersistentVolumes and claims, and rows of StorageClasses."""

from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.table_columns import age_of, join_words, name_of
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_FIELDS = frozenset((
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
    "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName", "volumeMode",
))  # fmt: skip
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def check_claim(spec: CheckedField) -> None:
    """Access modes and size of a claim."""
    _check_modes(spec)
    amount = read_object(read_object(spec.value, "resources"), "requests").get("storage")
    if amount is None:
        spec.required("resources[storage]")
    elif not _is_positive(str(amount)):
        spec.invalid("resources[storage]", "must be greater than zero", str(amount))


def check_kept_claim(claim: CheckedField) -> None:
    """A bound claim can hardly be changed."""
    spec = claim.at("spec")
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


def validate_volume(volume: CheckedField) -> None:
    """Access modes, capacity and source of a volume."""
    spec = volume.at("spec")
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


def list_claim_cells(claim: JsonObject) -> list[Json]:
    """Status, capacity, access modes and class; those of the volume only if there is one."""
    status = read_object(claim, "status") if read_object(claim, "spec").get("volumeName") else {}
    return [
        _format_phase(claim),
        read_text(read_object(status, "capacity"), "storage"),
        _format_modes(read_list(status, "accessModes")),
        _find_class(claim),
    ]


def list_volume_cells(volume: JsonObject) -> list[Json]:
    """Access modes, status and class."""
    modes = read_list(read_object(volume, "spec"), "accessModes")
    return [_format_modes(modes), _format_phase(volume), _find_class(volume)]


def fill_class(storage_class: JsonObject, now: datetime) -> list[Json]:
    """A row of a StorageClass."""
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
