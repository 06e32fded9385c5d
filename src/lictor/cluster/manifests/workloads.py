"""What runs, and how it is reached and protected: Deployments, Services, budgets, network rules."""

import msgspec

from lictor.cluster.manifests.installation import (
    CONTROLLERS,
    Installation,
    build_labels,
    build_object,
    match_labels,
)
from lictor.cluster.manifests.rights import choose_account, name_user
from lictor.lang.duration import NANOSECONDS, parse_duration
from lictor.raw import JsonObject

_HTTPS = 9443
_METRICS = 8000
# In one Pod with the webhook server, which has the usual port.
_SECOND_METRICS = 8001
_NOBODY = 65534
# Until every node has heard that a Pod is to get no more connections.
_SHUTDOWN_DELAY = "10s"
# To finish what is under way after that.
_FINISH_SECONDS = 50
# The webhook server has a process for each core that it may use: without a limit it would take
# every core of a large node, and the memory for as many processes.
_ADMISSION_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "192Mi"},
    "limits": {"cpu": "2", "memory": "512Mi"},
}
_CONTROLLER_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "96Mi"},
    "limits": {"memory": "256Mi"},
}
# Every use of an exception would be an event. Those of success come only where the settings ask.
_USUAL_FLAGS = {"omitEvents": "PolicySkipped"}


class ContainerOptions(msgspec.Struct, frozen=True):
    """One process tree: its command, and where it listens."""

    name: str
    command: tuple[str, ...]
    resources: JsonObject
    # Ports of the webhook server (none: 0) and of the metrics; health is served on the first.
    https: int = 0
    metrics: int = _METRICS
    flags: dict[str, str] = {}


class WorkloadOptions(msgspec.Struct, frozen=True):
    """One Deployment."""

    controller: str
    replicas: int
    containers: tuple[ContainerOptions, ...]

    @property
    def component(self) -> str:
        return f"{self.controller}-controller"


def build_workloads(installation: Installation) -> list[JsonObject]:
    """All that runs, in the order in which it should come."""
    workloads = list_workloads(installation)
    made = _build_services(installation)
    for workload in workloads:
        made.append(_build_network_policy(installation, workload))
        if workload.replicas > 1:
            made.append(_build_budget(installation, workload))
    return [*made, *(_build_deployment(installation, workload) for workload in workloads)]


def list_workloads(installation: Installation) -> list[WorkloadOptions]:
    """The Deployments: four, or one."""
    admission = ContainerOptions(
        "admission",
        ("serve",),
        _ADMISSION_RESOURCES,
        https=_HTTPS,
        flags={"shutdownDelay": _choose_delay(installation)},
    )
    if installation.all_in_one:
        others = ContainerOptions(
            "controllers",
            ("control", *CONTROLLERS[1:]),
            _CONTROLLER_RESOURCES,
            metrics=_SECOND_METRICS,
            flags={"metricsPort": str(_SECOND_METRICS)},
        )
        return [WorkloadOptions("admission", installation.replicas, (admission, others))]
    return [
        WorkloadOptions("admission", installation.replicas, (admission,)),
        *(
            WorkloadOptions(
                name,
                installation.controller_replicas,
                (ContainerOptions("controller", ("control", name), _CONTROLLER_RESOURCES),),
            )
            for name in CONTROLLERS[1:]
        ),
    ]


# --- Deployments


def _build_deployment(installation: Installation, workload: WorkloadOptions) -> JsonObject:
    component = workload.component
    template = {
        "metadata": {"labels": build_labels(installation, component)},
        "spec": _build_pod(installation, workload),
    }
    spec = {
        "replicas": workload.replicas,
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": match_labels(installation, component)},
        # New Pods first: a webhook that nobody answers refuses requests.
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "template": template,
    }
    name = installation.names.controller(workload.controller)
    return build_object(installation, "apps/v1/Deployment", name, component, spec=spec)


def _build_pod(installation: Installation, workload: WorkloadOptions) -> JsonObject:
    pod: JsonObject = {
        "serviceAccountName": choose_account(installation, workload.controller),
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": _count_grace_seconds(installation),
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            _build_spread(installation, workload, key)
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "containers": [_build_container(installation, part) for part in workload.containers],
        # In memory: a key that passes through a file never reaches a disk.
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
    if installation.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in installation.image_pull_secrets]
    return pod


def _choose_delay(installation: Installation) -> str:
    return installation.flags.get("shutdownDelay") or _SHUTDOWN_DELAY


def _count_grace_seconds(installation: Installation) -> int:
    """The webhook server goes on answering until nobody comes any more, and then finishes."""
    return parse_duration(_choose_delay(installation)) // NANOSECONDS + _FINISH_SECONDS


def _build_spread(installation: Installation, workload: WorkloadOptions, key: str) -> JsonObject:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": match_labels(installation, workload.component)},
    }


def _build_container(installation: Installation, container: ContainerOptions) -> JsonObject:
    ports = [{"name": _name_port(container), "containerPort": container.metrics}]
    if container.https:
        ports.insert(0, {"name": "https", "containerPort": container.https})
    return {
        "name": container.name,
        "image": installation.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["lictor"],
        "args": _build_arguments(installation, container),
        "env": [
            _build_variable("POD_NAME", "metadata.name"),
            _build_variable("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": [{**port, "protocol": "TCP"} for port in ports],
        **_build_probes(container),
        "resources": container.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def _name_port(container: ContainerOptions) -> str:
    """Ports of one Pod must have different names."""
    return "metrics" if container.metrics == _METRICS else "more-metrics"


def _build_arguments(installation: Installation, container: ContainerOptions) -> list[str]:
    names = installation.names
    flags: dict[str, str] = {
        **_USUAL_FLAGS,
        "backgroundServiceAccountName": name_user(installation, "background"),
        "reportsServiceAccountName": name_user(installation, "reports"),
        "cleanupServiceAccountName": name_user(installation, "cleanup"),
        "openreportsEnabled": "true" if installation.open_reports else "",
        **installation.flags,
        **container.flags,
    }
    return [
        *container.command,
        f"--namespace={names.namespace}",
        f"--prefix={names.prefix}",
        *(f"--{name}={value}" for name, value in sorted(flags.items()) if value),
    ]


def _build_variable(name: str, path: str) -> JsonObject:
    # The version as the API server would fill it in, so that nothing seems to differ from it.
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _build_probes(container: ContainerOptions) -> JsonObject:
    return {
        # Policies are compiled before the first answer, and there may be many of them.
        "startupProbe": _build_probe(container, "liveness", period=5, failures=36),
        "livenessProbe": _build_probe(container, "liveness", period=15, failures=4),
        "readinessProbe": _build_probe(container, "readiness", period=5, failures=3),
    }


def _build_probe(
    container: ContainerOptions, what: str, *, period: int, failures: int
) -> JsonObject:
    where: JsonObject = {"path": f"/health/{what}", "port": container.https or container.metrics}
    if container.https:
        where["scheme"] = "HTTPS"
    return {
        "httpGet": where,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


# --- around them


def _build_budget(installation: Installation, workload: WorkloadOptions) -> JsonObject:
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": match_labels(installation, workload.component)},
        # A Pod that is not ready protects nothing: it must not keep a node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    name = installation.names.controller(workload.controller)
    return build_object(
        installation, "policy/v1/PodDisruptionBudget", name, workload.component, spec=spec
    )


def _build_network_policy(installation: Installation, workload: WorkloadOptions) -> JsonObject:
    ports = [
        port
        for container in workload.containers
        for port in (container.https, container.metrics)
        if port
    ]
    spec = {
        "podSelector": {"matchLabels": match_labels(installation, workload.component)},
        "policyTypes": ["Ingress"],
        # From where API servers and Prometheus call is not known here.
        "ingress": [{"ports": [{"port": port, "protocol": "TCP"} for port in sorted(ports)]}],
    }
    name = installation.names.controller(workload.controller)
    return build_object(
        installation,
        "networking.k8s.io/v1/NetworkPolicy",
        name,
        workload.component,
        spec=spec,
    )


def _build_services(installation: Installation) -> list[JsonObject]:
    """The webhook server, which also answers about cleanup policies, and everyone's metrics."""
    names = installation.names
    admission = f"{names.service}-metrics"
    made = [
        _build_service(installation, names.service, "admission", (443, _HTTPS)),
        _build_service(installation, admission, "admission", (_METRICS, _METRICS)),
    ]
    if installation.all_in_one:
        others = f"{names.prefix}-controllers-metrics"
        return [
            *made,
            _build_service(installation, others, "admission", (_METRICS, _SECOND_METRICS)),
        ]
    for controller in CONTROLLERS[1:]:
        name = f"{names.controller(controller)}-metrics"
        made.append(_build_service(installation, name, controller, (_METRICS, _METRICS)))
    return made


def _build_service(
    installation: Installation, name: str, controller: str, ports: tuple[int, int]
) -> JsonObject:
    component = f"{controller}-controller"
    port, target = ports
    is_webhook = target == _HTTPS
    entry = {
        "name": "https" if is_webhook else "metrics",
        "port": port,
        "targetPort": target,
        "protocol": "TCP",
        "appProtocol": "https" if is_webhook else "http",
    }
    spec = {
        "type": "ClusterIP",
        "selector": match_labels(installation, component),
        "ports": [entry],
    }
    return build_object(installation, "v1/Service", name, component, spec=spec)
