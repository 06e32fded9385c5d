"""Validation of Pods, templates and containers, as far as kinds.yaml cannot express it."""

import re

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.name_rules import check_qualified
from lictor.addons.apiserver.resources.registry import find_checks
from lictor.core.lang.quantity import Quantity, parse_quantity

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage", "storage"))
_ENVIRONMENT = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_SOURCES = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
)
_SOURCE_FIELDS = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
}


def check_port_numbers(port: CheckedField) -> None:
    """The numbers of a port; 0 counts as none."""
    for field in ("containerPort", "hostPort"):
        port.port(field, port.get(field) or None)


def check_variable(variable: CheckedField) -> None:
    """The name of an environment variable, and where its value comes from."""
    name = variable.text("name")
    if name and not _ENVIRONMENT.fullmatch(name):
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


def check_mounts(container: CheckedField) -> None:
    """A mount has a volume of its Pod and a path of its own."""
    volumes = container.parent.names("volumes") if container.parent is not None else set()
    seen: set[str] = set()
    for mount in container.items("volumeMounts"):
        mount.need("name")
        if mount.text("name") and mount.text("name") not in volumes:
            mount.not_found("name")
        target = mount.text("mountPath")
        if not target:
            mount.required("mountPath")
        elif target in seen:
            mount.invalid("mountPath", "must be unique")
        seen.add(target)


def check_containers(spec: CheckedField) -> None:
    """Each container, and that no two have the same name."""
    validate, seen = find_checks("container"), set[str]()
    for container in list_containers(spec):
        validate(container)
        name = container.text("name")
        if name and name in seen:
            container.duplicate("name")
        seen.add(name)


def check_resources(resources: CheckedField) -> None:
    """Amounts of requests and limits."""
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


def check_handler(probe: CheckedField) -> None:
    """A probe does something."""
    if not any(name in probe.value for name in _HANDLERS):
        probe.required("", "must specify a handler type")


def check_hooks(lifecycle: CheckedField) -> None:
    """Hooks do something."""
    for name, hook in lifecycle.value.items():
        if not any(handler in hook for handler in _HANDLERS):
            lifecycle.required(name, "must specify a handler type")


def check_sources(volume: CheckedField) -> None:
    """The source of a volume."""
    sources = [field for field in volume.value if field != "name"]
    for extra in sources[1:]:
        volume.forbid(extra, "may not specify more than 1 volume type")
    for field in sources[:1]:
        if field in _SOURCE_FIELDS:
            volume.at(field).need(_SOURCE_FIELDS[field])


def check_template_labels(template: CheckedField) -> None:
    """The labels of a template; Kubernetes leaves `metadata` out of the path."""
    metadata = template.at("metadata").value
    CheckedField(metadata, template.path, template.add).labels("labels")


def list_containers(spec: CheckedField) -> list[CheckedField]:
    """Containers and init containers."""
    return [*spec.items("containers"), *spec.items("initContainers")]


def check_skew(spread: CheckedField) -> None:
    """A spread allows some difference."""
    if (spread.get("maxSkew") or 0) < 1:
        spread.invalid("maxSkew", "must be greater than zero", spread.get("maxSkew") or 0)


def check_toleration(toleration: CheckedField) -> None:
    """Operator, value and effect of a toleration."""
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
