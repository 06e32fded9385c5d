"""Validation of Pods, pod templates and their containers."""

import re
from collections.abc import Iterator

from lictor.addons.apiserver.field_errors import (
    Cause,
    Say,
    forbidden,
    invalid,
    required,
    show,
    unsupported,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.validation import (
    check_address,
    check_choice,
    check_counts,
    check_label,
    check_labels,
    check_named,
    check_port,
    check_qualified,
    check_subdomain,
    check_unique,
    need,
    say_all,
)
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBE_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage", "storage"))
_ENVIRONMENT = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_MAX_ID = 2**31 - 1
_SOURCES = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
)


def validate_container(container: JsonObject, volumes: set[str], path: str, say: Say) -> None:
    """Everything about one container; `volumes` are those that it may mount."""
    need(container, ("name",), path, say)
    check_named(container.get("name"), check_label, f"{path}.name", say)
    need(container, ("image",), path, say)
    _check_ports(read_list(container, "ports"), f"{path}.ports", say)
    for index, variable in enumerate(read_list(container, "env")):
        _check_variable(variable, f"{path}.env[{index}]", say)
    _check_mounts(read_list(container, "volumeMounts"), volumes, f"{path}.volumeMounts", say)
    _check_resources(read_object(container, "resources"), f"{path}.resources", say)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(field), dict):
            _check_probe(probe, f"{path}.{field}", say)
    for name, hook in read_object(container, "lifecycle").items():
        if not any(handler in hook for handler in _HANDLERS):
            say(required(f"{path}.lifecycle.{name}", "must specify a handler type"))
    choice = container.get("terminationMessagePolicy")
    check_choice(choice, _MESSAGE_POLICIES, f"{path}.terminationMessagePolicy", say)
    check_choice(container.get("imagePullPolicy"), _PULL_POLICIES, f"{path}.imagePullPolicy", say)
    check_user_ids(read_object(container, "securityContext"), f"{path}.securityContext", say)


def check_user_ids(context: JsonObject, path: str, say: Say) -> None:
    """Users and groups of processes."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if isinstance(value, int) and not 0 <= value <= _MAX_ID:
            told = f"must be between 0 and {_MAX_ID}, inclusive"
            say(invalid(f"{path}.{field}", value, told))


def _check_ports(ports: list[Json], path: str, say: Say) -> None:
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        if not port.get("containerPort"):
            say(required(f"{place}.containerPort"))
        check_port(port.get("containerPort") or None, f"{place}.containerPort", say)
        check_port(port.get("hostPort") or None, f"{place}.hostPort", say)
        check_choice(port.get("protocol"), _PROTOCOLS, f"{place}.protocol", say)
        check_port_name(port.get("name"), f"{place}.name", say)
    check_unique((read_text(each, "name") for each in ports), path, "name", say)


def check_port_name(name: Json, path: str, say: Say) -> None:
    """The name of a port; nothing said is fine."""
    if not isinstance(name, str) or not name:
        return
    if len(name) > 15:
        say(invalid(path, name, "must be no more than 15 characters"))
    if not re.fullmatch(r"[-a-z0-9]+", name):
        told = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        say(invalid(path, name, told))
    if not re.search(r"[a-z]", name):
        say(invalid(path, name, "must contain at least one letter (a-z)"))
    if "--" in name:
        say(invalid(path, name, "must not contain consecutive hyphens"))
    if name.startswith("-") or name.endswith("-"):
        say(invalid(path, name, "must not begin or end with a hyphen"))


def _check_variable(variable: JsonObject, path: str, say: Say) -> None:
    name = read_text(variable, "name")
    if not name:
        say(required(f"{path}.name"))
    elif not _ENVIRONMENT.fullmatch(name):
        told = (
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        )
        say(invalid(f"{path}.name", name, told))
    source = variable.get("valueFrom")
    if isinstance(source, dict):
        place = f"{path}.valueFrom"
        if not source:
            say(invalid(place, "", _SOURCES))
        if variable.get("value"):
            say(invalid(place, "", "may not be specified when `value` is not empty"))
        for field in ("configMapKeyRef", "secretKeyRef"):
            if isinstance(reference := source.get(field), dict):
                need(reference, ("key",), f"{place}.{field}", say)


def _check_mounts(mounts: list[Json], volumes: set[str], path: str, say: Say) -> None:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{path}[{index}]"
        name, target = read_text(mount, "name"), read_text(mount, "mountPath")
        if not name:
            say(required(f"{place}.name"))
        elif name not in volumes:
            say(Cause("FieldValueNotFound", f"Not found: {show(name)}", f"{place}.name"))
        if not target:
            say(required(f"{place}.mountPath"))
        elif target in seen:
            say(invalid(f"{place}.mountPath", target, "must be unique"))
        seen.add(target)


def _check_resources(resources: JsonObject, path: str, say: Say) -> None:
    limits = _check_amounts(read_object(resources, "limits"), f"{path}.limits", say)
    requests = _check_amounts(read_object(resources, "requests"), f"{path}.requests", say)
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is not None and limit < amount:
            told = f"must be less than or equal to {name} limit of {limit}"
            say(invalid(f"{path}.requests", str(amount), told))


def _check_amounts(amounts: JsonObject, path: str, say: Say) -> dict[str, Quantity]:
    read = {}
    for name, text in amounts.items():
        place = f"{path}[{name}]"
        if name not in _STANDARD and "/" not in name and not name.startswith("hugepages-"):
            say(invalid(place, name, "must be a standard resource type or fully qualified"))
            say(invalid(place, name, "must be a standard resource for containers"))
        check_named(name, check_qualified, place, say)
        try:
            read[name] = parse_quantity(str(text))
        except ValueError:
            continue
        if read[name] < Quantity(0):
            say(invalid(place, str(text), "must be greater than or equal to 0"))
    return read


def _check_probe(probe: JsonObject, path: str, say: Say) -> None:
    handlers = [name for name in _HANDLERS if name in probe]
    if not handlers:
        say(required(path, "must specify a handler type"))
    if isinstance(action := probe.get("exec"), dict):
        need(action, ("command",), f"{path}.exec", say)
    for name in ("httpGet", "tcpSocket"):
        if isinstance(action := probe.get(name), dict):
            check_port(action.get("port"), f"{path}.{name}.port", say)
    check_counts(probe, _PROBE_COUNTS, path, say)


_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_SOURCE_FIELDS = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
}


def validate_template(template: JsonObject, path: str, say: Say) -> None:
    """The template of a workload."""
    labels = read_object(read_object(template, "metadata"), "labels")
    say_all(check_labels(labels, f"{path}.labels"), say)
    validate_pod_spec(read_object(template, "spec"), f"{path}.spec", say)


def validate_pod_spec(spec: JsonObject, path: str, say: Say) -> None:
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
    for place, container in list_containers(spec, path):
        validate_container(container, volumes, place, say)
        name = read_text(container, "name")
        if name and name in seen:
            told = f"Duplicate value: {show(name)}"
            say(Cause("FieldValueDuplicate", told, f"{place}.name"))
        seen.add(name)


def list_containers(spec: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    """Containers and init containers, and where they are."""
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
