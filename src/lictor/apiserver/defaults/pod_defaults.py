"""Defaults of Pods and of pod templates."""

from collections.abc import Iterator

from lictor.apiserver.defaults.pod_quality import find_quality
from lictor.apiserver.defaults.volume_defaults import complete_volume_source
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import JsonObject

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
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def complete_pod(pod: JsonObject) -> None:
    """A Pod: its spec, and what Kubernetes' own admission adds."""
    spec = pod.setdefault("spec", {})
    complete_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in _list_containers(spec):
        _request_limits(container)
    _prioritize(spec)
    _tolerate(spec)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", find_quality(spec))


def complete_template(template: JsonObject) -> None:
    """The template of a workload."""
    template.setdefault("metadata", {})
    complete_pod_spec(template.setdefault("spec", {}))


def complete_pod_spec(spec: JsonObject) -> None:
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
        _complete_container(container, in_host_network=spec.get("hostNetwork") is True)
    for volume in read_list(spec, "volumes"):
        complete_volume_source(volume)


def _list_containers(spec: JsonObject) -> Iterator[JsonObject]:
    for field in _CONTAINER_LISTS:
        yield from read_list(spec, field)


def _complete_container(container: JsonObject, *, in_host_network: bool) -> None:
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
            _complete_probe(probe)
    for variable in read_list(container, "env"):
        reference = read_object(read_object(variable, "valueFrom"), "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for hook in read_object(container, "lifecycle").values():
        _complete_request(hook)


def _choose_pull_policy(image: str) -> str:
    """Images that may change under the same name are always pulled."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or tag not in ("", "latest") else "Always"


def _complete_probe(probe: JsonObject) -> None:
    for key, value in _PROBE_DEFAULTS.items():
        if not probe.get(key):
            probe[key] = value
    _complete_request(probe)
    if (call := probe.get("grpc")) is not None:
        call.setdefault("service", "")


def _complete_request(action: JsonObject) -> None:
    request = action.get("httpGet") if isinstance(action, dict) else None
    if request is not None:
        request.setdefault("path", "/")
        request.setdefault("scheme", "HTTP")


def _request_limits(container: JsonObject) -> None:
    """Who limits a resource without asking for it asks for the limit."""
    resources = read_object(container, "resources")
    limits = read_object(resources, "limits")
    if limits:
        resources["requests"] = {**limits, **read_object(resources, "requests")}


def _prioritize(spec: JsonObject) -> None:
    name = read_text(spec, "priorityClassName")
    if not name or name in _PRIORITIES:
        spec.setdefault("priority", _PRIORITIES.get(name, 0))
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _tolerate(spec: JsonObject) -> None:
    """Pods outlive the trouble of their node for five minutes, unless they say otherwise."""
    tolerations = [*read_list(spec, "tolerations")]
    for key in _TOLERATED:
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    spec["tolerations"] = tolerations


def _tolerates(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (
        None,
        "",
        "NoExecute",
    )
