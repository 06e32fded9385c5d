"""Plays the kubelet for one node: Pods of a namespace become processes with addresses of their own.

The controller manager does the rest as in any cluster: Deployments make Pods, Services find those
that are ready.
"""

import ipaddress
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2
from control_plane.local import LocalCluster
from control_plane.process import Process

NODE = "node-1"
_MERGE = {"content-type": "application/merge-patch+json"}
# Until everybody has heard that a Pod is to get no more requests.
_GRACE = 2.0
_ADDRESSES = ipaddress.ip_network("198.51.100.0/24")  # for documentation; routed nowhere
# A Pod, and its address -> the process; None where the Pod need not run to be ready.
StartPod = Callable[[dict, str], Process | None]


@dataclass
class _Running:
    address: str
    process: Process | None
    is_ready: bool = False
    ends_at: float = 0.0


@dataclass
class Kubelet:
    """Runs in a thread from `start` to `close`; `failure` says why it stopped before that."""

    plane: LocalCluster
    namespace: str
    start_pod: StartPod
    failure: str = ""
    # What ran: the name of each Pod, and its images.
    history: list[tuple[str, str]] = field(default_factory=list)
    _running: dict[str, _Running] = field(default_factory=dict)
    _closed: threading.Event = field(default_factory=threading.Event)
    _beat: float = 0.0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for each in self._running.values():
            if each.process is not None:
                each.process.kill()

    @property
    def logs(self) -> str:
        processes = [each.process for each in self._running.values() if each.process is not None]
        return "\n".join(process.read_log()[-3000:] for process in processes)

    def _run(self) -> None:
        with self.plane.connect() as client:
            node = {"metadata": {"name": NODE}, "apiVersion": "v1", "kind": "Node"}
            client.post("/api/v1/nodes", json=node)
            while not self._closed.wait(0.1):
                try:
                    self._stay_alive(client)
                    self._sync(client)
                except (httpx2.HTTPError, KeyError, OSError) as error:
                    self.failure = f"{type(error).__name__}: {error}"

    def _stay_alive(self, client: httpx2.Client) -> None:
        """A node that says nothing is taken for dead after 40 seconds, and its Pods with it."""
        if time.monotonic() < self._beat:
            return
        self._beat = time.monotonic() + 5
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "here"}
        conditions = [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]
        status = {"status": {"conditions": conditions}}
        client.patch(
            f"/api/v1/nodes/{NODE}/status", content=json.dumps(status), headers=_MERGE
        ).raise_for_status()

    def _sync(self, client: httpx2.Client) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in client.get(self._path()).json()["items"]}
        for name, pod in pods.items():
            if name not in self._running:
                self._running[name] = self._begin(client, pod)
            running = self._running[name]
            if pod["metadata"].get("deletionTimestamp"):
                self._end(client, name, running)
            elif not running.is_ready and self._is_ready(client, name, running):
                running.is_ready = True
                self._tell(client, name, running)

    def _begin(self, client: httpx2.Client, pod: dict) -> _Running:
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": target,
        }
        client.post(f"{self._path(name)}/binding", json=binding)
        address = str(_ADDRESSES[len(self._running) + 1])
        command = ("ip", "addr", "add", f"{address}/32", "dev", "lo")
        subprocess.run(self.plane.command(*command), check=True)
        images = ",".join(each["image"] for each in pod["spec"]["containers"])
        self.history.append((name, images))
        running = _Running(address, self.start_pod(pod, address))
        self._tell(client, name, running)
        return running

    def _is_ready(self, client: httpx2.Client, name: str, running: _Running) -> bool:
        if running.process is None:
            return True
        path = f"/api/v1/namespaces/{self.namespace}/pods/https:{name}:9443/proxy/health/readiness"
        return client.get(path).status_code == 200

    def _tell(self, client: httpx2.Client, name: str, running: _Running) -> None:
        state = "True" if running.is_ready else "False"
        conditions = [{"type": kind, "status": state} for kind in ("Ready", "ContainersReady")]
        address = running.address
        status = {"phase": "Running", "conditions": conditions, "podIP": address}
        status["podIPs"] = [{"ip": address}]
        body = json.dumps({"status": status})
        client.patch(f"{self._path(name)}/status", content=body, headers=_MERGE).raise_for_status()

    def _end(self, client: httpx2.Client, name: str, running: _Running) -> None:
        """At once for those who look for it, a little later for those who have found it before."""
        if not running.ends_at:
            running.ends_at = time.monotonic() + _GRACE
        elif time.monotonic() > running.ends_at:
            if running.process is not None:
                running.process.stop(patience=5)
            client.delete(self._path(name), params={"gracePeriodSeconds": 0})

    def _path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")
