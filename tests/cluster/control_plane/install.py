"""Lictor in a test's cluster: its objects as `lictor install` prints them, its Pods as processes.

There is no kubelet, so a Deployment would only make Pods that stay pending. Instead its container
runs as a process beside the API server, with a token of the service account that the Pod would
have, and Services find it through EndpointSlices of ours.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from control_plane.cluster import Cluster
from control_plane.manifests import Object, apply_objects, print_manifests
from control_plane.process import Process

# What would need nodes.
_WORKLOADS = frozenset(
    ("Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob", "PodDisruptionBudget")
)
_READY = "/health/readiness"
_PATIENCE = 60.0
_COMPONENT = "app.kubernetes.io/component"
ADMISSION = "admission-controller"


class NotReadyError(RuntimeError):
    """Lictor ended, or did not become ready in time; the text has the end of its log."""


@dataclass(frozen=True)
class Replica:
    """One simulated Pod; only those of admission serve a port of webhooks."""

    component: str
    number: int
    process: Process
    port: int
    metrics_port: int


@dataclass
class Installation:
    """Lictor as it is installed, with as many replicas as were started."""

    cluster: Cluster
    prefix: str
    namespace: str
    deployments: Mapping[str, Object]
    """By component, such as admission-controller."""
    services: Sequence[Object]
    flags: Sequence[str] = ()
    """Flags for all of its programs, after those that `install` gives them."""
    replicas: list[Replica] = field(default_factory=list)
    """Those of admission."""
    controllers: list[Replica] = field(default_factory=list)
    """Those of other components."""
    _started: int = 0

    @property
    def process(self) -> Process:
        """The process of the first replica."""
        return self.replicas[0].process

    @property
    def kubeconfig(self) -> Path:
        """That of admission's service account."""
        return self.kubeconfig_of(ADMISSION)

    def kubeconfig_of(self, component: str) -> Path:
        """A kubeconfig with the rights that the Pods of a component have."""
        spec = self.deployments[component]["spec"]["template"]["spec"]
        return self.cluster.kubeconfig_for(
            self.namespace, spec.get("serviceAccountName") or "default"
        )

    def start_replica(self, *flags: str, wait: bool = True) -> Replica:
        """One more webhook server behind the Service; these flags come after all others."""
        replica = self._start(ADMISSION, len(self.replicas), flags)
        self.replicas.append(replica)
        self._announce(replica)
        if wait:
            self.wait_ready(replica)
        return replica

    def start_controller(self, component: str, *flags: str) -> Replica:
        """One more of another component, such as background-controller."""
        number = sum(each.component == component for each in self.controllers)
        replica = self._start(component, number, flags)
        self.controllers.append(replica)
        return replica

    def _start(self, component: str, number: int, flags: Sequence[str]) -> Replica:
        [container] = self.deployments[component]["spec"]["template"]["spec"]["containers"]
        port = self.cluster.port(9443 + self._started)
        metrics = self.cluster.port(8000 + self._started)
        self._started += 1
        process = self.cluster.start_lictor(
            *container["args"],
            f"--kubeconfig={self.kubeconfig_of(component)}",
            f"--metricsPort={metrics}",
            *self._serving_flags(component, port),
            *self.flags,
            *flags,
            environment={
                "POD_NAME": f"{self.prefix}-{component}-{self._started}",
                "POD_NAMESPACE": self.namespace,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        return Replica(component, number, process, port, metrics)

    def _serving_flags(self, component: str, port: int) -> list[str]:
        if component != ADMISSION:
            return []
        # Nobody learns from slices of ours that a replica is not ready: it need not wait for that.
        flags = [f"--webhookServerPort={port}", "--shutdownDelay=0s"]
        if not self.cluster.routes_services:
            flags.append(f"--serverIP={self.cluster.address}:{port}")
        return flags

    def wait_ready(self, replica: Replica, seconds: float = _PATIENCE) -> None:
        """Return when the replica says that it is ready. Raises NotReadyError."""
        url = f"https://{self.cluster.address}:{replica.port}{_READY}"
        deadline = time.monotonic() + seconds
        with httpx2.Client(verify=False, timeout=2, trust_env=False) as client:
            while time.monotonic() < deadline and replica.process.is_running():
                try:
                    if client.get(url).status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                time.sleep(0.1)
        state = "is not ready" if replica.process.is_running() else "ended"
        raise NotReadyError(f"{replica.process.name} {state}:\n{replica.process.read_log()}")

    def stop(self) -> None:
        """Stop all replicas, gently; objects in the cluster stay."""
        for replica in (*self.controllers, *self.replicas):
            replica.process.stop()
        for replica in self.replicas:
            self._withdraw(replica)
        self.replicas.clear()
        self.controllers.clear()
        self._started = 0

    def restart(self, flags: Sequence[str] | None = None) -> None:
        """Stop everything and start one of each that ran, with other flags where some are given."""
        components = sorted({each.component for each in self.controllers})
        self.stop()
        if flags is not None:
            self.flags = flags
        self.start_replica()
        for component in components:
            self.start_controller(component)

    def _announce(self, replica: Replica) -> None:
        """Let the Services find a replica. A slice has its ports in common: one for each."""
        if self.cluster.routes_services:
            apply_objects(self.cluster, self._slices(replica))

    def _withdraw(self, replica: Replica) -> None:
        if self.cluster.routes_services:
            names = [each["metadata"]["name"] for each in self._slices(replica)]
            words = ("delete", "endpointslice", *names, "-n", self.namespace)
            self.cluster.kubectl(*words, "--ignore-not-found", check=False)

    def _slices(self, replica: Replica) -> list[Object]:
        return [
            self._slice(service, replica)
            for service in self.services
            if service["spec"]["selector"].get(_COMPONENT, ADMISSION) == replica.component
        ]

    def _slice(self, service: Object, replica: Replica) -> Object:
        name = service["metadata"]["name"]
        ports = [
            {
                "name": port.get("name", ""),
                "port": replica.metrics_port if "metrics" in port.get("name", "") else replica.port,
                "protocol": "TCP",
            }
            for port in service["spec"]["ports"]
        ]
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-{replica.number}",
                "namespace": self.namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self.cluster.address], "conditions": {"ready": True}}],
            "ports": ports,
        }


def install_lictor(
    cluster: Cluster,
    *,
    prefix: str = "lictor",
    namespace: str = "lictor",
    flags: Sequence[str] = (),
    replicas: int = 1,
) -> Installation:
    """Put lictor into the cluster and start so many webhook servers."""
    words = ("install", "--skip-crds", "--prefix", prefix, "--namespace", namespace)
    # With the kinds of openreports.io, which some flags ask for.
    manifests = [*print_manifests("crds", "--openreports"), *print_manifests(*words)]
    apply_objects(cluster, [_detach(e) for e in manifests if e["kind"] not in _WORKLOADS])
    wait_established(cluster)
    deployments = [each for each in manifests if each["kind"] == "Deployment"]
    installation = Installation(
        cluster=cluster,
        prefix=prefix,
        namespace=namespace,
        deployments=_by_component(deployments),
        services=[each for each in manifests if each["kind"] == "Service"],
        flags=flags,
    )
    for _ in range(replicas):
        installation.start_replica()
    return installation


def _by_component(deployments: Iterable[Object]) -> dict[str, Object]:
    return {
        each["spec"]["template"]["metadata"]["labels"][_COMPONENT]: each for each in deployments
    }


def wait_established(cluster: Cluster) -> None:
    """Return when all kinds that were defined are served."""
    words = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cluster.kubectl(*words)


def _detach(body: Object) -> Object:
    """A Service without a selector: the controller manager leaves its endpoints to us."""
    if body["kind"] != "Service":
        return body
    spec = {name: value for name, value in body["spec"].items() if name != "selector"}
    return {**body, "spec": spec}
