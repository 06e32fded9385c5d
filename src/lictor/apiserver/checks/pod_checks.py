"""What is wrong with a Pod, or with the template of one?"""

from collections.abc import Iterator

from lictor.apiserver.checks.check_basics import (
    Say,
    check_address,
    check_choice,
    check_named,
    check_unique,
    need,
    say_all,
)
from lictor.apiserver.checks.container_checks import check_container, check_user_ids
from lictor.apiserver.checks.name_rules import check_label, check_subdomain
from lictor.apiserver.checks.object_checks import check_labels
from lictor.apiserver.field_errors import Cause, forbidden, invalid, required, show, unsupported
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import Json, JsonObject

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
# What may change in the life of a Pod through its main door; resize and the like have their own.
_CHANGEABLE = frozenset((
    "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds",
    "ephemeralContainers", "containers", "initContainers", "nodeName", "schedulingGates",
    "nodeSelector", "affinity", "priority", "preemptionPolicy",
))  # fmt: skip
_SOURCE_FIELDS = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
}


def check_pod(pod: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Pod; one that is there already hardly changes."""
    spec = read_object(pod, "spec")
    if old is None:
        check_pod_spec(spec, "spec", say)
        for place, container in _list_containers(spec, "spec"):
            image = read_text(container, "image")
            if image.strip() != image:
                told = "must not have leading or trailing whitespace"
                say(invalid(f"{place}.image", image, told))
        if spec.get("ephemeralContainers"):
            say(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    else:
        _check_change(spec, read_object(old, "spec"), say)


def check_template(template: JsonObject, path: str, say: Say) -> None:
    """The template of a workload."""
    labels = read_object(read_object(template, "metadata"), "labels")
    say_all(check_labels(labels, f"{path}.labels"), say)
    check_pod_spec(read_object(template, "spec"), f"{path}.spec", say)


def check_pod_spec(spec: JsonObject, path: str, say: Say) -> None:
    """What Pods and templates have in common."""
    volumes = _check_volumes(read_list(spec, "volumes"), f"{path}.volumes", say)
    _check_containers(spec, volumes, path, say)
    check_choice(spec.get("restartPolicy"), _RESTART_POLICIES, f"{path}.restartPolicy", say)
    check_choice(spec.get("dnsPolicy"), _DNS_POLICIES, f"{path}.dnsPolicy", say)
    _check_scheduling(spec, path, say)
    check_user_ids(read_object(spec, "securityContext"), f"{path}.securityContext", say)
    check_named(spec.get("serviceAccountName"), check_subdomain, f"{path}.serviceAccountName", say)
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and deadline < 1:
        told = "must be between 1 and 2147483647, inclusive"
        say(invalid(f"{path}.activeDeadlineSeconds", deadline, told))
    check_named(spec.get("hostname"), check_label, f"{path}.hostname", say)
    check_named(spec.get("subdomain"), check_label, f"{path}.subdomain", say)
    for index, toleration in enumerate(read_list(spec, "tolerations")):
        _check_toleration(toleration, f"{path}.tolerations[{index}]", say)
    for index, alias in enumerate(read_list(spec, "hostAliases")):
        check_address(alias.get("ip"), f"{path}.hostAliases[{index}].ip", say)


def _check_volumes(volumes: list[Json], path: str, say: Say) -> set[str]:
    names = [read_text(volume, "name") for volume in volumes]
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        need(volume, ("name",), place, say)
        check_named(volume.get("name"), check_label, f"{place}.name", say)
        sources = [field for field in volume if field != "name"]
        for extra in sources[1:]:
            say(forbidden(f"{place}.{extra}", "may not specify more than 1 volume type"))
        for field in sources[:1]:
            if field in _SOURCE_FIELDS:
                need(read_object(volume, field), (_SOURCE_FIELDS[field],), f"{place}.{field}", say)
    check_unique(names, path, "name", say)
    return set(names)


def _check_containers(spec: JsonObject, volumes: set[str], path: str, say: Say) -> None:
    if not read_list(spec, "containers"):
        say(required(f"{path}.containers"))
    seen: set[str] = set()
    for place, container in _list_containers(spec, path):
        check_container(container, volumes, place, say)
        name = read_text(container, "name")
        if name and name in seen:
            told = f"Duplicate value: {show(name)}"
            say(Cause("FieldValueDuplicate", told, f"{place}.name"))
        seen.add(name)


def _list_containers(spec: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(read_list(spec, field)):
            yield f"{path}.{field}[{index}]", container


def _check_scheduling(spec: JsonObject, path: str, say: Say) -> None:
    say_all(check_labels(read_object(spec, "nodeSelector"), f"{path}.nodeSelector"), say)
    for index, spread in enumerate(read_list(spec, "topologySpreadConstraints")):
        place = f"{path}.topologySpreadConstraints[{index}]"
        if (spread.get("maxSkew") or 0) < 1:
            say(
                invalid(f"{place}.maxSkew", spread.get("maxSkew") or 0, "must be greater than zero")
            )
        if not spread.get("topologyKey"):
            say(required(f"{place}.topologyKey", "can not be empty"))
        wanted = spread.get("whenUnsatisfiable")
        check_choice(wanted, _UNSATISFIABLE, f"{place}.whenUnsatisfiable", say)


def _check_toleration(toleration: JsonObject, path: str, say: Say) -> None:
    operator, effect = read_text(toleration, "operator"), read_text(toleration, "effect")
    if not toleration.get("key") and operator != "Exists":
        told = (
            "operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"'
        )
        say(invalid(f"{path}.operator", operator, told))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        told = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        say(invalid(f"{path}.effect", effect, told))
    if operator == "Exists" and toleration.get("value"):
        told = "value must be empty when `operator` is 'Exists'"
        say(invalid(f"{path}.operator", toleration["value"], told))
    elif operator not in ("", "Equal", "Exists"):
        say(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    check_choice(effect, _EFFECTS, f"{path}.effect", say)


# --- Pods that are there already


def _check_change(new: JsonObject, old: JsonObject, say: Say) -> None:
    for field in ("containers", "initContainers"):
        mine, before = read_list(new, field), read_list(old, field)
        if len(mine) != len(before):
            say(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return
        if any(_freeze(one) != _freeze(other) for one, other in zip(mine, before, strict=True)):
            say(forbidden("spec", _FIXED))
            return
    node = old.get("nodeName")
    is_moved = node and new.get("nodeName") != node
    fixed = {*new, *old} - _CHANGEABLE
    if is_moved or any(new.get(field) != old.get(field) for field in fixed):
        say(forbidden("spec", _FIXED))


def _freeze(container: JsonObject) -> JsonObject:
    """What of a container may not change."""
    return {key: value for key, value in container.items() if key not in ("image", "resources")}
