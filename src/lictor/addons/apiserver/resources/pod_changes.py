"""What of a Pod may change: by an update, and through `resize` and `ephemeralcontainers`."""

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectPart
from lictor.addons.apiserver.resources.pod_defaults import find_quality
from lictor.addons.apiserver.resources.pod_validation import list_containers
from lictor.addons.apiserver.resources.registry import find_checks
from lictor.core.raw import Json, JsonObject

_LISTS = ("containers", "initContainers")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
# Compared separately.
_CHANGEABLE = frozenset(("activeDeadlineSeconds", "tolerations", "schedulingGates", *_LISTS))
_CHANGEABLE_IF_GATED = ("nodeSelector", "affinity")
_GRACE = "terminationGracePeriodSeconds"
# What a container that is added to a running Pod cannot have.
_NOT_FOR_DEBUGGING = (
    "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources",
    "resizePolicy",
)  # fmt: skip
_MIRROR = "kubernetes.io/config.mirror"
_RESIZED = ("cpu", "memory")


def validate_pod(pod: CheckedField) -> None:
    """A Pod that is created or updated."""
    spec = pod.at("spec")
    # Most updates change the status only.
    if spec.value == (spec.old or {}):
        return
    find_checks("pod_spec")(spec)
    for container in list_containers(spec):
        image = container.text("image")
        if image.strip() != image:
            container.invalid("image", "must not have leading or trailing whitespace")
    if spec.old is not None:
        _check_update(pod, spec, spec.old)
    elif spec.get("ephemeralContainers"):
        spec.forbid("ephemeralContainers", "cannot be set on create")


def _check_update(pod: CheckedField, spec: CheckedField, old: JsonObject) -> None:
    for field in _LISTS:
        if len(spec.list(field)) != len(read_list(old, field)):
            spec.forbid(field, "pod updates may not add or remove containers")
            return
    new, deadline = spec.value, old.get("activeDeadlineSeconds")
    if deadline is not None and new.get("activeDeadlineSeconds") is None:
        why = "must not update from a positive integer to nil value"
        spec.invalid("activeDeadlineSeconds", why)
    elif deadline is not None and new["activeDeadlineSeconds"] > deadline:
        spec.invalid("activeDeadlineSeconds", "must be less than or equal to previous value")
    if not _list_tolerations(old) <= _list_tolerations(new):
        why = "existing toleration can not be modified except its tolerationSeconds"
        spec.forbid("tolerations", why)
    gates = {read_text(each, "name") for each in read_list(old, "schedulingGates")}
    for gate in spec.items("schedulingGates"):
        if (name := gate.text("name")) not in gates:
            gate.forbid("name", f"only deletion is allowed, but found new scheduling gate '{name}'")
    changeable = {*_CHANGEABLE, *(_CHANGEABLE_IF_GATED if gates else ())}
    if (old.get(_GRACE) or 0) < 0 and new.get(_GRACE) == 1:
        changeable.add(_GRACE)
    is_changed = any(new.get(each) != old.get(each) for each in {*new, *old} - changeable)
    loses = read_object(old, "nodeSelector").items() - read_object(new, "nodeSelector").items()
    if is_changed or loses or _changes_containers(new, old):
        pod.forbid("spec", _FIXED)


def _list_tolerations(spec: JsonObject) -> set[frozenset[tuple[str, Json]]]:
    """All without their seconds, which may change."""
    return {
        frozenset((key, value) for key, value in each.items() if key != "tolerationSeconds")
        for each in read_list(spec, "tolerations")
    }


def _changes_containers(new: JsonObject, old: JsonObject) -> bool:
    """Does anything of a container change but its image?"""
    return any(
        {**one, "image": None} != {**other, "image": None}
        for field in _LISTS
        for one, other in zip(read_list(new, field), read_list(old, field), strict=True)
    )


# --- subresources: what is taken of the Pod that was sent, and what is checked


def _carry_debug_containers(old: JsonObject, sent: JsonObject) -> JsonObject:
    return _replace_lists(old, sent, ("ephemeralContainers",))


def _check_debug_containers(pod: CheckedField) -> None:
    """Ephemeral containers can be added, but not changed or removed."""
    if _is_mirror(pod.old):
        pod.forbid("", "static pods do not support ephemeral containers")
    spec = pod.at("spec")
    taken = {each.text("name") for each in list_containers(spec)}
    validate = find_checks("container")
    found: dict[str, JsonObject] = {}
    for container in spec.items("ephemeralContainers"):
        name = container.text("name")
        validate(container)
        if name in taken or name in found:
            container.duplicate("name", name)
        found[name] = container.value
        for field in _NOT_FOR_DEBUGGING:
            if container.get(field):
                container.forbid(field, "cannot be set for an Ephemeral Container")
        target = container.text("targetContainerName")
        if target and target not in taken:
            container.not_found("targetContainerName")
    for each in read_list(spec.old, "ephemeralContainers"):
        name = read_text(each, "name")
        if found.get(name) != each:
            what = "changed" if name in found else "removed"
            why = f'existing ephemeral containers "{name}" may not be {what}\n'
            spec.forbid("ephemeralContainers", why)


def _carry_resize(old: JsonObject, sent: JsonObject) -> JsonObject:
    """The Pod with the resources of the one that was sent; new containers are refused later."""
    before, wanted = read_object(old, "spec"), read_object(sent, "spec")
    pairs = {field: (read_list(before, field), read_list(wanted, field)) for field in _LISTS}
    if not all(_list_names(left) == _list_names(right) for left, right in pairs.values()):
        return _replace_lists(old, sent, _LISTS)
    resized = {
        field: [_resize(*pair) for pair in zip(left, right, strict=True)]
        for field, (left, right) in pairs.items()
        if left
    }
    return {**old, "spec": {**before, **resized}}


def _list_names(containers: list[Json]) -> list[str]:
    return [read_text(each, "name") for each in containers]


def _resize(container: JsonObject, sent: JsonObject) -> JsonObject:
    taken: JsonObject = {
        field: sent[field] for field in ("resources", "resizePolicy") if field in sent
    }
    kept = {key: value for key, value in container.items() if key != "resizePolicy"}
    return {**kept, "resources": {}, **taken}


def _replace_lists(old: JsonObject, sent: JsonObject, fields: tuple[str, ...]) -> JsonObject:
    wanted = read_object(sent, "spec")
    kept = {key: value for key, value in read_object(old, "spec").items() if key not in fields}
    return {**old, "spec": {**kept, **{key: wanted[key] for key in fields if key in wanted}}}


def _check_resize(pod: CheckedField) -> None:
    """A resize changes amounts of CPU and memory, and nothing else."""
    spec, before = pod.at("spec"), read_object(pod.old, "spec")
    if any(read_object(before, "resources").get(field) for field in ("requests", "limits")):
        return pod.forbid("", "pods with pod-level resources cannot be resized")
    if _is_mirror(pod.old):
        return pod.forbid("", "static pods cannot be resized")
    if read_text(read_object(before, "os"), "name") == "windows":
        return pod.forbid("", "windows pods cannot be resized")
    find_checks("pod_spec")(spec)
    quality = read_text(read_object(pod.old, "status"), "qosClass") or find_quality(before)
    if quality != find_quality(spec.value):
        why = "Pod QOS Class may not change as a result of resizing"
        pod.invalid("spec", why, quality)
    for field in _LISTS:
        _check_resized(pod, field, read_list(before, field))
    return None


def _check_resized(pod: CheckedField, field: str, old: list[Json]) -> None:
    containers = pod.at("spec").items(field)
    if len(containers) != len(old):
        pod.at("spec").forbid(field, f"{field} may not be added or removed on resize")
        return
    for container, before in zip(containers, old, strict=True):
        if container.get("name") != before.get("name"):
            container.forbid("name", f"{field} may not be renamed or reordered on resize")
        elif field == "initContainers" and before.get("restartPolicy") != "Always":
            if container.value != before:
                pod.forbid("spec", "resources for non-sidecar init containers are immutable")
        else:
            _check_amounts(pod, container, before)


def _check_amounts(pod: CheckedField, container: CheckedField, old: JsonObject) -> None:
    resources, before = container.at("resources"), read_object(old, "resources")
    undone: JsonObject = {}
    for field in ("requests", "limits"):
        amounts, earlier = resources.at(field).value, read_object(before, field)
        if not earlier.keys() <= amounts.keys():
            resources.forbid(field, f"resource {field} cannot be removed")
        if earlier:
            others = {key: value for key, value in amounts.items() if key not in _RESIZED}
            undone[field] = {**others, **{key: earlier[key] for key in _RESIZED if key in earlier}}
    if {**container.value, "resources": undone} != old:
        pod.forbid("spec", "only cpu and memory resources are mutable")


def _is_mirror(pod: JsonObject | None) -> bool:
    return _MIRROR in read_object(read_object(pod, "metadata"), "annotations")


PARTS = {
    "ephemeralcontainers": ObjectPart(_carry_debug_containers, _check_debug_containers),
    "resize": ObjectPart(_carry_resize, _check_resize),
}
