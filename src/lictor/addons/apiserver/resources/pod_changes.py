"""What of a Pod may change: by an update, and through `resize` and `ephemeralcontainers`."""

from lictor.addons.apiserver.field_errors import Cause, Say, duplicate, forbidden, invalid
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.pod_defaults import find_quality
from lictor.addons.apiserver.resources.pod_validation import (
    list_containers,
    validate_container,
    validate_pod_spec,
)
from lictor.core.raw import Json, JsonObject

_LISTS = ("containers", "initContainers")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
# Compared by rules of their own.
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


def validate_pod(pod: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Pod that is created or updated."""
    spec, before = read_object(pod, "spec"), read_object(old, "spec")
    # Most updates are of the status.
    if spec == before:
        return
    validate_pod_spec(spec, "spec", say)
    for place, container in list_containers(spec, "spec"):
        image = read_text(container, "image")
        if image.strip() != image:
            say(invalid(f"{place}.image", image, "must not have leading or trailing whitespace"))
    if old is not None:
        _check_update(spec, before, say)
    elif spec.get("ephemeralContainers"):
        say(forbidden("spec.ephemeralContainers", "cannot be set on create"))


def _check_update(new: JsonObject, old: JsonObject, say: Say) -> None:
    for field in _LISTS:
        if len(read_list(new, field)) != len(read_list(old, field)):
            say(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return
    _check_deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"), say)
    if not _list_tolerations(old) <= _list_tolerations(new):
        told = "existing toleration can not be modified except its tolerationSeconds"
        say(forbidden("spec.tolerations", told))
    gates = {read_text(each, "name") for each in read_list(old, "schedulingGates")}
    for index, gate in enumerate(read_list(new, "schedulingGates")):
        if (name := read_text(gate, "name")) not in gates:
            told = f"only deletion is allowed, but found new scheduling gate '{name}'"
            say(forbidden(f"spec.schedulingGates[{index}].name", told))
    changeable = {*_CHANGEABLE, *(_CHANGEABLE_IF_GATED if gates else ())}
    if (old.get(_GRACE) or 0) < 0 and new.get(_GRACE) == 1:
        changeable.add(_GRACE)
    is_changed = any(new.get(each) != old.get(each) for each in {*new, *old} - changeable)
    loses = read_object(old, "nodeSelector").items() - read_object(new, "nodeSelector").items()
    if is_changed or loses or _changes_containers(new, old):
        say(forbidden("spec", _FIXED))


def _check_deadline(new: Json, old: Json, say: Say) -> None:
    field = "spec.activeDeadlineSeconds"
    if old is not None and new is None:
        say(invalid(field, None, "must not update from a positive integer to nil value"))
    elif old is not None and new > old:
        say(invalid(field, new, "must be less than or equal to previous value"))


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


def carry_debug_containers(old: JsonObject, sent: JsonObject) -> JsonObject:
    """The Pod with the ephemeral containers of the one that was sent."""
    return _replace_lists(old, sent, ("ephemeralContainers",))


def check_debug_containers(pod: JsonObject, old: JsonObject | None, say: Say) -> None:
    """Ephemeral containers come, and never change nor go."""
    path = "spec.ephemeralContainers"
    if _is_mirror(old):
        say(forbidden("", "static pods do not support ephemeral containers"))
    spec = read_object(pod, "spec")
    taken = {read_text(each, "name") for _, each in list_containers(spec, "spec")}
    volumes = {read_text(each, "name") for each in read_list(spec, "volumes")}
    found: dict[str, JsonObject] = {}
    for index, each in enumerate(read_list(spec, "ephemeralContainers")):
        place, name = f"{path}[{index}]", read_text(each, "name")
        validate_container(each, volumes, place, say)
        if name in taken or name in found:
            say(duplicate(f"{place}.name", name))
        found[name] = each
        for field in _NOT_FOR_DEBUGGING:
            if each.get(field):
                say(forbidden(f"{place}.{field}", "cannot be set for an Ephemeral Container"))
        target = read_text(each, "targetContainerName")
        if target and target not in taken:
            say(
                Cause(
                    "FieldValueNotFound", f'Not found: "{target}"', f"{place}.targetContainerName"
                )
            )
    for each in read_list(read_object(old, "spec"), "ephemeralContainers"):
        name = read_text(each, "name")
        if found.get(name) != each:
            what = "changed" if name in found else "removed"
            say(forbidden(path, f'existing ephemeral containers "{name}" may not be {what}\n'))


def carry_resize(old: JsonObject, sent: JsonObject) -> JsonObject:
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


def check_resize(pod: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A resize changes amounts of CPU and memory, and nothing else."""
    spec, before = read_object(pod, "spec"), read_object(old, "spec")
    if any(read_object(before, "resources").get(field) for field in ("requests", "limits")):
        return say(forbidden("", "pods with pod-level resources cannot be resized"))
    if _is_mirror(old):
        return say(forbidden("", "static pods cannot be resized"))
    if read_text(read_object(before, "os"), "name") == "windows":
        return say(forbidden("", "windows pods cannot be resized"))
    validate_pod_spec(spec, "spec", say)
    quality = read_text(read_object(old, "status"), "qosClass") or find_quality(before)
    if quality != find_quality(spec):
        told = "Pod QOS Class may not change as a result of resizing"
        say(invalid("spec", quality, told))
    for field in _LISTS:
        _check_resized(read_list(spec, field), read_list(before, field), f"spec.{field}", say)
    return None


def _check_resized(new: list[Json], old: list[Json], path: str, say: Say) -> None:
    field = path.removeprefix("spec.")
    if len(new) != len(old):
        say(forbidden(path, f"{field} may not be added or removed on resize"))
        return
    for index, (mine, before) in enumerate(zip(new, old, strict=True)):
        place = f"{path}[{index}]"
        if mine.get("name") != before.get("name"):
            say(forbidden(f"{place}.name", f"{field} may not be renamed or reordered on resize"))
        elif field == "initContainers" and before.get("restartPolicy") != "Always":
            if mine != before:
                say(forbidden("spec", "resources for non-sidecar init containers are immutable"))
        else:
            _check_amounts(mine, before, f"{place}.resources", say)


def _check_amounts(new: JsonObject, old: JsonObject, path: str, say: Say) -> None:
    mine, before = read_object(new, "resources"), read_object(old, "resources")
    undone: JsonObject = {}
    for field in ("requests", "limits"):
        amounts, earlier = read_object(mine, field), read_object(before, field)
        if not earlier.keys() <= amounts.keys():
            say(forbidden(f"{path}.{field}", f"resource {field} cannot be removed"))
        if earlier:
            others = {key: value for key, value in amounts.items() if key not in _RESIZED}
            undone[field] = {**others, **{key: earlier[key] for key in _RESIZED if key in earlier}}
    if {**new, "resources": undone} != old:
        say(forbidden("spec", "only cpu and memory resources are mutable"))


def _is_mirror(pod: JsonObject | None) -> bool:
    return _MIRROR in read_object(read_object(pod, "metadata"), "annotations")
