"""What is wrong with volumes, claims and classes of storage?"""

from lictor.apiserver.checks.check_basics import Say, check_choice, check_named, check_same, need
from lictor.apiserver.checks.name_rules import check_subdomain
from lictor.apiserver.field_errors import forbidden, invalid, required, unsupported
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.lang.quantity import Quantity, parse_quantity
from lictor.raw import JsonObject

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


def check_claim(claim: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_volume(volume: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_storage_class(storage_class: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_driver(driver: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A CSIDriver."""
    del old
    policy = read_object(driver, "spec").get("fsGroupPolicy")
    check_choice(policy, ("File", "None", "ReadWriteOnceWithFSType"), "spec.fsGroupPolicy", say)


def check_priority_class(priority_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PriorityClass."""
    name = read_text(read_object(priority_class, "metadata"), "name")
    known = ("system-node-critical", "system-cluster-critical")
    if name.startswith("system-") and name not in known:
        told = (
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class"
        )
        say(forbidden("metadata.name", told))
    policies = ("PreemptLowerPriority", "Never")
    check_choice(priority_class.get("preemptionPolicy"), policies, "preemptionPolicy", say)
    if old is not None and priority_class.get("value") != old.get("value"):
        say(forbidden("value", "may not be changed in an update."))


def check_runtime_class(runtime_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A RuntimeClass."""
    need(runtime_class, ("handler",), "", say)
    check_same(runtime_class, old, ("handler",), "", say)
