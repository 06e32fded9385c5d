"""Validation of Pods, pod templates and their containers."""

import re

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_text
from lictor.addons.apiserver.name_rules import (
    check_label,
    check_port_name,
    check_qualified,
    check_subdomain,
)
from lictor.core.lang.quantity import Quantity, parse_quantity

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


def validate_container(container: CheckedField, volumes: set[str]) -> None:
    """Everything about one container; `volumes` are those that it may mount."""
    container.need("name")
    container.named("name", check_label)
    container.need("image")
    for port in container.items("ports"):
        _check_port(port)
    container.unique_names("ports")
    for variable in container.items("env"):
        _check_variable(variable)
    _check_mounts(container, volumes)
    _check_resources(container.at("resources"))
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(field), dict):
            _check_probe(container.at(field))
    lifecycle = container.at("lifecycle")
    for name, hook in lifecycle.value.items():
        if not any(handler in hook for handler in _HANDLERS):
            lifecycle.required(name, "must specify a handler type")
    container.choice("terminationMessagePolicy", _MESSAGE_POLICIES)
    container.choice("imagePullPolicy", _PULL_POLICIES)
    _check_user_ids(container.at("securityContext"))


def _check_user_ids(context: CheckedField) -> None:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if isinstance(value, int) and not 0 <= value <= _MAX_ID:
            context.invalid(field, f"must be between 0 and {_MAX_ID}, inclusive")


def _check_port(port: CheckedField) -> None:
    if not port.get("containerPort"):
        port.required("containerPort")
    port.port("containerPort", port.get("containerPort") or None)
    port.port("hostPort", port.get("hostPort") or None)
    port.choice("protocol", _PROTOCOLS)
    port.named("name", check_port_name)


def _check_variable(variable: CheckedField) -> None:
    name = variable.text("name")
    if not name:
        variable.required("name")
    elif not _ENVIRONMENT.fullmatch(name):
        why = (
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        )
        variable.invalid("name", why)
    if isinstance(variable.get("valueFrom"), dict):
        source = variable.at("valueFrom")
        if not source.value:
            source.invalid("", _SOURCES, "")
        if variable.get("value"):
            source.invalid("", "may not be specified when `value` is not empty", "")
        for field in ("configMapKeyRef", "secretKeyRef"):
            if isinstance(source.get(field), dict):
                source.at(field).need("key")


def _check_mounts(container: CheckedField, volumes: set[str]) -> None:
    seen: set[str] = set()
    for mount in container.items("volumeMounts"):
        if not mount.text("name"):
            mount.required("name")
        elif mount.text("name") not in volumes:
            mount.not_found("name")
        target = mount.text("mountPath")
        if not target:
            mount.required("mountPath")
        elif target in seen:
            mount.invalid("mountPath", "must be unique")
        seen.add(target)


def _check_resources(resources: CheckedField) -> None:
    limits = _check_amounts(resources.at("limits"))
    for name, amount in _check_amounts(resources.at("requests")).items():
        limit = limits.get(name)
        if limit is not None and limit < amount:
            why = f"must be less than or equal to {name} limit of {limit}"
            resources.invalid("requests", why, str(amount))


def _check_amounts(amounts: CheckedField) -> dict[str, Quantity]:
    read = {}
    for name, text in amounts.value.items():
        entry = amounts.entry(name)
        if name not in _STANDARD and "/" not in name and not name.startswith("hugepages-"):
            entry.invalid("", "must be a standard resource type or fully qualified", name)
            entry.invalid("", "must be a standard resource for containers", name)
        entry.named("", check_qualified, name)
        try:
            read[name] = parse_quantity(str(text))
        except ValueError:
            continue
        if read[name] < Quantity(0):
            entry.invalid("", "must be greater than or equal to 0", str(text))
    return read


def _check_probe(probe: CheckedField) -> None:
    if not any(name in probe.value for name in _HANDLERS):
        probe.required("", "must specify a handler type")
    if isinstance(probe.get("exec"), dict):
        probe.at("exec").need("command")
    for name in ("httpGet", "tcpSocket"):
        if isinstance(probe.get(name), dict):
            probe.at(name).port("port")
    probe.counts(*_PROBE_COUNTS)


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


def validate_template(template: CheckedField) -> None:
    """The template of a workload."""
    # Kubernetes leaves `metadata` out of the path.
    metadata = template.at("metadata").value
    CheckedField(metadata, template.path, template.add).labels("labels")
    validate_pod_spec(template.at("spec"))


def validate_pod_spec(spec: CheckedField) -> None:
    """What Pods and templates have in common."""
    volumes = _check_volumes(spec)
    _check_containers(spec, volumes)
    spec.choice("restartPolicy", _RESTART_POLICIES)
    spec.choice("dnsPolicy", _DNS_POLICIES)
    _check_scheduling(spec)
    _check_user_ids(spec.at("securityContext"))
    spec.named("serviceAccountName", check_subdomain)
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and deadline < 1:
        spec.invalid("activeDeadlineSeconds", "must be between 1 and 2147483647, inclusive")
    spec.named("hostname", check_label)
    spec.named("subdomain", check_label)
    for toleration in spec.items("tolerations"):
        _check_toleration(toleration)
    for alias in spec.items("hostAliases"):
        alias.address("ip")


def _check_volumes(spec: CheckedField) -> set[str]:
    for volume in spec.items("volumes"):
        volume.need("name")
        volume.named("name", check_label)
        sources = [field for field in volume.value if field != "name"]
        for extra in sources[1:]:
            volume.forbid(extra, "may not specify more than 1 volume type")
        for field in sources[:1]:
            if field in _SOURCE_FIELDS:
                volume.at(field).need(_SOURCE_FIELDS[field])
    spec.unique_names("volumes")
    return {read_text(volume, "name") for volume in spec.list("volumes")}


def _check_containers(spec: CheckedField, volumes: set[str]) -> None:
    if not spec.list("containers"):
        spec.required("containers")
    seen: set[str] = set()
    for container in list_containers(spec):
        validate_container(container, volumes)
        name = container.text("name")
        if name and name in seen:
            container.duplicate("name")
        seen.add(name)


def list_containers(spec: CheckedField) -> list[CheckedField]:
    """Containers and init containers."""
    return [*spec.items("containers"), *spec.items("initContainers")]


def _check_scheduling(spec: CheckedField) -> None:
    spec.labels("nodeSelector")
    for spread in spec.items("topologySpreadConstraints"):
        if (spread.get("maxSkew") or 0) < 1:
            spread.invalid("maxSkew", "must be greater than zero", spread.get("maxSkew") or 0)
        if not spread.get("topologyKey"):
            spread.required("topologyKey", "can not be empty")
        spread.choice("whenUnsatisfiable", _UNSATISFIABLE)


def _check_toleration(toleration: CheckedField) -> None:
    operator, effect = toleration.text("operator"), toleration.text("effect")
    if not toleration.get("key") and operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"'
        )
        toleration.invalid("operator", why, operator)
    if "tolerationSeconds" in toleration.value and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        toleration.invalid("effect", why, effect)
    if operator == "Exists" and toleration.get("value"):
        why = "value must be empty when `operator` is 'Exists'"
        toleration.invalid("operator", why, toleration.get("value"))
    elif operator not in ("", "Equal", "Exists"):
        toleration.unsupported("operator", ("Equal", "Exists"))
    toleration.choice("effect", _EFFECTS)
