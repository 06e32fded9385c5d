"""What runs, and how it is reached and protected: Deployments, Services, budgets, network rules."""

import msgspec

from lictor.core.raw import Json, JsonObject
from lictor.install.installation import Installation, build_object, match_labels
from lictor.install.placeholders import (
    ArgumentList,
    ConditionalPart,
    ExtendedList,
    ExtendedMap,
    LabelSet,
    OptionalValueAt,
    ReplaceableList,
    ValueAt,
)
from lictor.install.values import CONTROLLERS, name_container, name_controller

_ALL_IN_ONE = "allInOne.enabled"
_HTTPS = ValueAt("admissionController.webhookServer.port")
# In one Pod with the webhook server, which has the usual port.
_SECOND_METRICS = 8001
# Who may read metrics.
METRICS_FROM = "global.metricsFrom"
_CACHE = "/var/cache"


class WorkloadTemplate(msgspec.Struct, frozen=True):
    """One Deployment, and when it is there."""

    controller: str
    conditions: tuple[str, ...]

    @property
    def component(self) -> str:
        return f"{self.controller}-controller"

    @property
    def values(self) -> str:
        """Where its values stand."""
        return name_controller(self.controller)

    def when(self, part: Json, *conditions: str) -> ConditionalPart | Json:
        """A part that is there with the Deployment, and under further conditions."""
        needed = (*self.conditions, *conditions)
        return ConditionalPart(needed, part) if needed else part


class ContainerTemplate(msgspec.Struct, frozen=True):
    """One process tree: its command, and where it listens."""

    name: str
    command: tuple[str, ...]
    controller: str
    metrics: Json
    # Port of the webhook server, where it is one; health is served there.
    https: Json = None
    flags: dict[str, str] = {}

    @property
    def values(self) -> str:
        """Where its values stand."""
        return name_container(self.controller)


def list_workloads() -> list[WorkloadTemplate]:
    """The Deployments: four, or one."""
    others = [
        WorkloadTemplate(name, (f"{name_controller(name)}.enabled", f"!{_ALL_IN_ONE}"))
        for name in CONTROLLERS[1:]
    ]
    return [WorkloadTemplate("admission", ()), *others]


def build_workloads(installation: Installation) -> list[Json]:
    """All that runs, in the order in which it should come; with placeholders."""
    workloads = list_workloads()
    made = _build_services(installation)
    for workload in workloads:
        made.append(_build_network_policy(installation, workload))
        made.append(_build_budget(installation, workload))
    made.append(_build_autoscaler(installation, workloads[0]))
    return [*made, *(_build_deployment(installation, workload) for workload in workloads)]


def _list_containers(workload: WorkloadTemplate) -> list[ContainerTemplate]:
    if workload.controller != "admission":
        command = ("control", workload.controller)
        port = ValueAt(f"{workload.values}.metering.port")
        return [ContainerTemplate("controller", command, workload.controller, port)]
    return [
        ContainerTemplate(
            "admission",
            ("serve",),
            "admission",
            ValueAt("admissionController.metering.port"),
            https=_HTTPS,
            flags={"shutdownDelay": "<<value admissionController.shutdownDelay>>"},
        ),
        ContainerTemplate(
            "controllers",
            ("control", *CONTROLLERS[1:]),
            "background",
            _SECOND_METRICS,
            flags={"metricsPort": str(_SECOND_METRICS)},
        ),
    ]


# --- Deployments


def _build_deployment(installation: Installation, workload: WorkloadTemplate) -> Json:
    component, values = workload.component, workload.values
    template = {
        "metadata": {
            "labels": LabelSet(component, paths=(f"{values}.podLabels",)),
            "annotations": OptionalValueAt((f"{values}.podAnnotations",)),
        },
        "spec": _build_pod(installation, workload),
    }
    replicas = ValueAt(f"{values}.replicas")
    scaled = f"!{values}.autoscaling.enabled"
    spec = {
        "replicas": replicas if workload.conditions else ConditionalPart((scaled,), replicas),
        "revisionHistoryLimit": ValueAt(f"{values}.revisionHistoryLimit"),
        "selector": {"matchLabels": match_labels(installation, component)},
        "strategy": ValueAt(f"{values}.updateStrategy"),
        "template": template,
    }
    name = installation.names.controller(workload.controller)
    made = build_object(installation, "apps/v1/Deployment", name, component, spec=spec)
    made["metadata"]["labels"] = LabelSet(component, paths=(f"{values}.labels",))
    made["metadata"]["annotations"] = OptionalValueAt((f"{values}.annotations",))
    return workload.when(made)


def _build_pod(installation: Installation, workload: WorkloadTemplate) -> JsonObject:
    values = workload.values
    return {
        "serviceAccountName": f"<<account {workload.controller}>>",
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": ValueAt(f"{values}.terminationGracePeriodSeconds"),
        "imagePullSecrets": _choose(values, "imagePullSecrets"),
        "priorityClassName": _choose(values, "priorityClassName"),
        "hostNetwork": OptionalValueAt((f"{values}.hostNetwork",)),
        "dnsPolicy": OptionalValueAt((f"{values}.dnsPolicy",)),
        "dnsConfig": OptionalValueAt((f"{values}.dnsConfig",)),
        "nodeSelector": _choose(values, "nodeSelector"),
        "tolerations": _choose(values, "tolerations"),
        "affinity": _build_affinity(values),
        "securityContext": ValueAt(f"{values}.podSecurityContext"),
        "topologySpreadConstraints": ReplaceableList(
            f"{values}.topologySpreadConstraints",
            [
                _build_spread(installation, workload, key)
                for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
            ],
        ),
        "initContainers": OptionalValueAt((f"{values}.extraInitContainers",)),
        "containers": ExtendedList(
            [_place_container(each) for each in _list_containers(workload)],
            (f"{values}.extraContainers",),
        ),
        "volumes": ExtendedList(
            [
                # In memory: a key that passes through a file never reaches a disk.
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
                # For modules of policies, which all processes of the Pod compile once.
                {"name": "cache", "emptyDir": {"sizeLimit": "4Gi"}},
            ],
            (f"{values}.extraVolumes",),
        ),
    }


def _choose(values: str, name: str) -> OptionalValueAt:
    """What the controller has itself, else what all have."""
    return OptionalValueAt((f"{values}.{name}", f"global.{name}"))


def _build_affinity(values: str) -> ConditionalPart:
    names = ("podAntiAffinity", "podAffinity", "nodeAffinity")
    parts = {name: OptionalValueAt((f"{values}.{name}",)) for name in names}
    return ConditionalPart(("|".join(f"{values}.{name}" for name in names),), parts)


def _build_spread(installation: Installation, workload: WorkloadTemplate, key: str) -> JsonObject:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": match_labels(installation, workload.component)},
    }


def _place_container(container: ContainerTemplate) -> Json:
    made = _build_container(container)
    return ConditionalPart((_ALL_IN_ONE,), made) if container.name == "controllers" else made


def _build_container(container: ContainerTemplate) -> JsonObject:
    values = container.values
    ports = [{"name": _name_port(container), "containerPort": container.metrics}]
    if container.https:
        ports.insert(0, {"name": "https", "containerPort": container.https})
    return {
        "name": container.name,
        "image": "<<image>>",
        "imagePullPolicy": ValueAt("image.pullPolicy"),
        "command": ["lictor"],
        "args": ArgumentList(
            container.command, name_controller(container.controller), values, container.flags
        ),
        "env": ExtendedList(
            [
                build_variable("POD_NAME", "metadata.name"),
                build_variable("POD_NAMESPACE", "metadata.namespace"),
                {"name": "XDG_CACHE_HOME", "value": _CACHE},
            ],
            ("global.extraEnvVars", f"{values}.extraEnvVars"),
        ),
        "ports": [{**port, "protocol": "TCP"} for port in ports],
        **_build_probes(container),
        "resources": ValueAt(f"{values}.resources"),
        "securityContext": ValueAt(f"{values}.securityContext"),
        "volumeMounts": ExtendedList(
            [
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                {"name": "cache", "mountPath": _CACHE},
            ],
            (f"{name_controller(container.controller)}.extraVolumeMounts",),
        ),
    }


def _name_port(container: ContainerTemplate) -> str:
    """Ports of one Pod must have different names."""
    return "more-metrics" if container.metrics == _SECOND_METRICS else "metrics"


def build_variable(name: str, path: str) -> JsonObject:
    """An environment variable with the value of a field of the Pod."""
    # The version as the API server would fill it in, so that nothing seems to differ from it.
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _build_probes(container: ContainerTemplate) -> JsonObject:
    return {
        f"{name}Probe": _build_probe(container, f"{name}Probe", path)
        for name, path in (
            ("startup", "liveness"),
            ("liveness", "liveness"),
            ("readiness", "readiness"),
        )
    }


def _build_probe(container: ContainerTemplate, probe: str, path: str) -> ExtendedMap:
    where: JsonObject = {"path": f"/health/{path}", "port": container.https or container.metrics}
    if container.https:
        where["scheme"] = "HTTPS"
    return ExtendedMap({"httpGet": where}, f"{name_controller(container.controller)}.{probe}")


# --- around them


def _build_budget(installation: Installation, workload: WorkloadTemplate) -> Json:
    budget = f"{workload.values}.podDisruptionBudget"
    spec = {
        "minAvailable": OptionalValueAt((f"{budget}.minAvailable",)),
        "maxUnavailable": ConditionalPart(
            (f"!{budget}.minAvailable",), OptionalValueAt((f"{budget}.maxUnavailable",))
        ),
        "selector": {"matchLabels": match_labels(installation, workload.component)},
        "unhealthyPodEvictionPolicy": OptionalValueAt((f"{budget}.unhealthyPodEvictionPolicy",)),
    }
    name = installation.names.controller(workload.controller)
    made = build_object(
        installation, "policy/v1/PodDisruptionBudget", name, workload.component, spec=spec
    )
    several = f"{workload.values}.replicas>1"
    if not workload.conditions:
        several = f"{several}|{workload.values}.autoscaling.enabled"
    return workload.when(made, f"{budget}.enabled", several)


def _build_autoscaler(installation: Installation, workload: WorkloadTemplate) -> Json:
    scaling = f"{workload.values}.autoscaling"
    name = installation.names.controller(workload.controller)
    loads = [("cpu", "CPU"), ("memory", "Memory")]
    metrics = [
        _build_metric(name, f"{scaling}.target{word}UtilizationPercentage") for name, word in loads
    ]
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": ValueAt(f"{scaling}.minReplicas"),
        "maxReplicas": ValueAt(f"{scaling}.maxReplicas"),
        "metrics": metrics,
        "behavior": OptionalValueAt((f"{scaling}.behavior",)),
    }
    kind = "autoscaling/v2/HorizontalPodAutoscaler"
    made = build_object(installation, kind, name, workload.component, spec=spec)
    return workload.when(made, f"{scaling}.enabled")


def _build_metric(name: str, path: str) -> ConditionalPart:
    target = {"type": "Utilization", "averageUtilization": ValueAt(path)}
    return ConditionalPart(
        (path,), {"type": "Resource", "resource": {"name": name, "target": target}}
    )


def _build_network_policy(installation: Installation, workload: WorkloadTemplate) -> Json:
    policy = f"{workload.values}.networkPolicy"
    ours, metrics, webhooks = f"{policy}.ingressFrom", list[Json](), list[Json]()
    for container in _list_containers(workload):
        for port, ports in ((container.metrics, metrics), (container.https, webhooks)):
            made = {"port": port, "protocol": "TCP"}
            is_second = container.name == "controllers"
            if port:
                ports.append(ConditionalPart((_ALL_IN_ONE,), made) if is_second else made)
    rules = [{"from": OptionalValueAt((ours, METRICS_FROM)), "ports": metrics}]
    if webhooks:
        # API servers call from addresses that cannot be selected.
        rules.append({"from": OptionalValueAt((ours,)), "ports": webhooks})
    spec = {
        "podSelector": {"matchLabels": match_labels(installation, workload.component)},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    name = installation.names.controller(workload.controller)
    kind = "networking.k8s.io/v1/NetworkPolicy"
    made = build_object(installation, kind, name, workload.component, spec=spec)
    return workload.when(made, f"{policy}.enabled")


# --- Services


def _build_services(installation: Installation) -> list[Json]:
    """The webhook server, which also answers about cleanup policies, and everyone's metrics."""
    names = installation.names
    admission, *others = list_workloads()
    webhook = {"name": "https", "port": 443, "targetPort": _HTTPS, "appProtocol": "https"}
    service = "admissionController.service"
    made = [
        _build_service(installation, names.service, admission, webhook, service),
        _build_metrics_service(installation, f"{names.service}-metrics", admission),
    ]
    port = {
        "name": "metrics",
        "port": ValueAt("backgroundController.metricsService.port"),
        "targetPort": _SECOND_METRICS,
        "appProtocol": "http",
    }
    path = "backgroundController.metricsService"
    together = _build_service(
        installation, f"{names.prefix}-controllers-metrics", admission, port, path
    )
    made.append(ConditionalPart((_ALL_IN_ONE, f"{path}.create"), together))
    for workload in others:
        name = f"{names.controller(workload.controller)}-metrics"
        made.append(_build_metrics_service(installation, name, workload))
    return made


def _build_metrics_service(
    installation: Installation, name: str, workload: WorkloadTemplate
) -> Json:
    path = f"{workload.values}.metricsService"
    port = {
        "name": "metrics",
        "port": ValueAt(f"{path}.port"),
        "targetPort": ValueAt(f"{workload.values}.metering.port"),
        "appProtocol": "http",
    }
    made = _build_service(installation, name, workload, port, path)
    return workload.when(made, f"{path}.create")


def _build_service(
    installation: Installation, name: str, workload: WorkloadTemplate, port: JsonObject, path: str
) -> JsonObject:
    entry = {**port, "nodePort": OptionalValueAt((f"{path}.nodePort",)), "protocol": "TCP"}
    spec = {
        "type": ValueAt(f"{path}.type"),
        "trafficDistribution": OptionalValueAt((f"{path}.trafficDistribution",)),
        "selector": match_labels(installation, workload.component),
        "ports": [entry],
    }
    made = build_object(installation, "v1/Service", name, workload.component, spec=spec)
    made["metadata"]["annotations"] = OptionalValueAt((f"{path}.annotations",))
    return made
