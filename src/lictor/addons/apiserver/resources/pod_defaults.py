"""Defaults of Pods, pod templates and their volumes."""

from collections.abc import Iterator

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.core.lang.quantity import parse_quantity
from lictor.core.raw import Json, JsonObject

_MODE = 0o644
# Defaults of volume sources.
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


def _set_volume_source_defaults(volume: JsonObject) -> None:
    """A volume of a Pod; without a source it is an empty folder."""
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
        return
    set_source_defaults(volume)
    _set_items_defaults(read_object(volume, "downwardAPI"))
    for source in read_list(read_object(volume, "projected"), "sources"):
        _set_items_defaults(read_object(source, "downwardAPI"))
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
    template = read_object(read_object(volume, "ephemeral"), "volumeClaimTemplate")
    if template:
        template.setdefault("metadata", {})
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def set_source_defaults(volume: JsonObject) -> None:
    """Set the defaults of the source of a volume."""
    for name, defaults in _SOURCES.items():
        source = volume.get(name)
        if isinstance(source, dict):
            volume[name] = {**defaults, **source}


def _set_items_defaults(source: JsonObject) -> None:
    for item in read_list(source, "items"):
        reference = read_object(item, "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")


_RESOURCES = ("cpu", "memory")


def find_quality(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort."""
    containers = [*read_list(spec, "containers"), *read_list(spec, "initContainers")]
    requests = [_read_amounts(each, "requests") for each in containers]
    limits = [_read_amounts(each, "limits") for each in containers]
    if not any(requests) and not any(limits):
        return "BestEffort"
    pairs = zip(requests, limits, strict=True)
    # Missing requests equal the limits.
    if all(len(limit) == len(_RESOURCES) and {**limit, **asked} == limit for asked, limit in pairs):
        return "Guaranteed"
    return "Burstable"


def _read_amounts(container: JsonObject, field: str) -> dict[str, Json]:
    amounts = read_object(read_object(container, "resources"), field)
    read = {name: _read(amounts[name]) for name in _RESOURCES if name in amounts}
    return {name: amount for name, amount in read.items() if amount}


def _read(amount: Json) -> Json:
    """The number; nothing for zero and for what is no quantity."""
    try:
        return parse_quantity(str(amount)).value or None
    except ValueError:
        return None


_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def set_pod_defaults(pod: JsonObject) -> None:
    """A Pod: its spec, and what Kubernetes' own admission adds."""
    spec = pod.setdefault("spec", {})
    _set_pod_spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    grace = spec["terminationGracePeriodSeconds"]
    if isinstance(grace, int) and grace < 0:
        # Of Pods alone: templates keep a negative value.
        spec["terminationGracePeriodSeconds"] = 1
    for container in _list_containers(spec):
        _request_limits(container)
    _prioritize(spec)
    add_tolerations(spec)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", find_quality(spec))


def set_template_defaults(template: JsonObject) -> None:
    """The template of a workload."""
    template.setdefault("metadata", {})
    _set_pod_spec_defaults(template.setdefault("spec", {}))


def _set_pod_spec_defaults(spec: JsonObject) -> None:
    """What Pods and templates have in common."""
    for key, value in _SPEC_DEFAULTS.items():
        if not spec.get(key) and spec.get(key) != 0:
            spec[key] = value
    spec.setdefault("securityContext", {})
    # The older name is kept alongside.
    account = read_text(spec, "serviceAccountName") or read_text(spec, "serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in _list_containers(spec):
        _set_container_defaults(container, in_host_network=spec.get("hostNetwork") is True)
    for volume in read_list(spec, "volumes"):
        _set_volume_source_defaults(volume)


def _list_containers(spec: JsonObject) -> Iterator[JsonObject]:
    for field in _CONTAINER_LISTS:
        yield from read_list(spec, field)


def _set_container_defaults(container: JsonObject, *, in_host_network: bool) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _choose_pull_policy(read_text(container, "image"))
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in read_list(container, "ports"):
        port.setdefault("protocol", "TCP")
        if in_host_network and not port.get("hostPort") and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    for field in _PROBES:
        if (probe := container.get(field)) is not None:
            _set_probe_defaults(probe)
    for variable in read_list(container, "env"):
        reference = read_object(read_object(variable, "valueFrom"), "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for hook in read_object(container, "lifecycle").values():
        _set_request_defaults(hook)


def _choose_pull_policy(image: str) -> str:
    """Images that may change under the same name are always pulled."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or tag not in ("", "latest") else "Always"


def _set_probe_defaults(probe: JsonObject) -> None:
    for key, value in _PROBE_DEFAULTS.items():
        if not probe.get(key):
            probe[key] = value
    _set_request_defaults(probe)
    if (call := probe.get("grpc")) is not None:
        call.setdefault("service", "")


def _set_request_defaults(action: JsonObject) -> None:
    request = action.get("httpGet") if isinstance(action, dict) else None
    if request is not None:
        request.setdefault("path", "/")
        request.setdefault("scheme", "HTTP")


def _request_limits(container: JsonObject) -> None:
    """Missing requests are set to the limits."""
    resources = read_object(container, "resources")
    limits = read_object(resources, "limits")
    if limits:
        resources["requests"] = {**limits, **read_object(resources, "requests")}


def _prioritize(spec: JsonObject) -> None:
    name = read_text(spec, "priorityClassName")
    if not name or name in SYSTEM_PRIORITIES:
        spec.setdefault("priority", SYSTEM_PRIORITIES.get(name, 0))
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def add_tolerations(spec: JsonObject) -> None:
    """By default, Pods tolerate an unreachable node for five minutes."""
    tolerations = [*read_list(spec, "tolerations")]
    for key in _TOLERATED:
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    spec["tolerations"] = tolerations


def _tolerates(toleration: Json, key: str) -> bool:
    return (
        isinstance(toleration, dict)
        and toleration.get("key") in (None, "", key)
        and toleration.get("effect") in (None, "", "NoExecute")
    )
