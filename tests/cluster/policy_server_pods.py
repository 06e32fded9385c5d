"""Plays the kubelet for Pods of policy servers: each is a `lictor policy-server` beside the cluster."""

import json
import threading
import time
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import httpx2
from control_plane.local import LocalCluster
from control_plane.process import Process

LABEL = "kubewarden/policy-server"
_SLICES = "/apis/discovery.k8s.io/v1"


@dataclass
class _Running:
    process: Process
    port: int
    readiness: int
    is_ready: bool = False


class PodRunner:
    """Starts and ends processes as Pods come and go, in a thread, until it is closed."""

    def __init__(self, plane: LocalCluster, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._running: dict[str, _Running] = {}
        self._ports = 18443
        self._is_closed = threading.Event()
        self.failure = ""
        # The names of all Pods that ever were.
        self.started: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        for each in self._running.values():
            each.process.kill()

    @property
    def logs(self) -> str:
        return "\n".join(each.process.read_log()[-1500:] for each in self._running.values())

    def _run(self) -> None:
        with self._plane.connect() as client:
            while not self._is_closed.wait(0.2):
                try:
                    self._sync(client)
                except (httpx2.HTTPError, OSError, KeyError) as error:
                    self.failure = f"{type(error).__name__}: {error}"
                    time.sleep(0.5)

    def _sync(self, client: httpx2.Client) -> None:
        path = self._path("/api/v1", "pods")
        found = client.get(path, params={"labelSelector": LABEL}).json()["items"]
        pods = {pod["metadata"]["name"]: pod for pod in found}
        for name in self._running.keys() - pods.keys():
            self._end(client, name)
        for name, pod in pods.items():
            if name not in self._running:
                self._running[name] = self._start(client, pod)
                self.started.append(name)
                continue
            self._mount(client, pod)
            if not self._running[name].is_ready:
                self._announce(client, pod, self._running[name])

    def _start(self, client: httpx2.Client, pod: dict[str, object]) -> _Running:
        [container] = pod["spec"]["containers"]
        assert container["args"] == ["policy-server"]
        folder = self._mount(client, pod)
        self._ports += 1
        # No two Pods of a server run at the same time here, and so one address is enough.
        readiness = container["readinessProbe"]["httpGet"]["port"]
        given = {each["name"]: each["value"] for each in container["env"]}
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        for name, value in given.items():
            if any(value.startswith(mount) for mount in mounts):
                given[name] = f"{folder}{value}"
        ports = {
            "KUBEWARDEN_BIND_ADDRESS": self._plane.address,
            "KUBEWARDEN_PORT": str(self._ports),
            "KUBEWARDEN_IGNORE_KUBERNETES_CONNECTION_FAILURE": "true",
        }
        process = self._plane.start_lictor("policy-server", environment={**given, **ports})
        return _Running(process, self._ports, readiness)

    def _mount(self, client: httpx2.Client, pod: dict[str, object]) -> Path:
        """The folder with the volumes of the Pod, as they are now."""
        folder = self._plane.folder / str(pod["metadata"]["name"])
        server = str(pod["metadata"]["labels"][LABEL])
        name = f"policy-server-{server}"
        secret = client.get(self._path("/api/v1", "secrets", name)).json()["data"]
        config = client.get(self._path("/api/v1", "configmaps", name)).json()["data"]
        for place, files in (
            ("pki", {key: b64decode(value).decode() for key, value in secret.items()}),
            ("config", config),
            ("tmp", {}),
        ):
            (folder / place).mkdir(parents=True, exist_ok=True)
            for file, text in files.items():
                path = folder / place / file
                if path.exists() and path.read_text(encoding="utf-8") == text:
                    continue
                draft = path.with_name(f".{file}")
                draft.write_text(text, encoding="utf-8")
                draft.replace(path)
        return folder

    def _announce(self, client: httpx2.Client, pod: dict[str, object], running: _Running) -> None:
        try:
            url = f"http://{self._plane.address}:{running.readiness}/readiness"
            if httpx2.get(url, timeout=2, trust_env=False).status_code != 200:
                return
        except httpx2.HTTPError:
            return
        name = str(pod["metadata"]["name"])
        server = str(pod["metadata"]["labels"][LABEL])
        made = client.post(
            self._path(_SLICES, "endpointslices"), json=self._slice(name, server, running)
        )
        made.raise_for_status()
        conditions = [{"type": "Ready", "status": "True"}]
        address = self._plane.address
        status = {
            "phase": "Running",
            "conditions": conditions,
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        client.patch(
            self._path("/api/v1", "pods", name) + "/status",
            content=json.dumps({"status": status}),
            headers={"content-type": "application/merge-patch+json"},
        ).raise_for_status()
        running.is_ready = True

    def _slice(self, name: str, server: str, running: _Running) -> dict[str, object]:
        ports = [
            {"name": port, "port": running.port, "protocol": "TCP"}
            for port in ("policy-server", "policy-server-legacy")
        ]
        labels = {"kubernetes.io/service-name": f"policy-server-{server}"}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": self._namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._plane.address], "conditions": {"ready": True}}],
            "ports": ports,
        }

    def _end(self, client: httpx2.Client, name: str) -> None:
        client.delete(self._path(_SLICES, "endpointslices", name))
        running = self._running.pop(name)
        # API servers still ask for a moment.
        threading.Timer(2.0, running.process.kill).start()

    def _path(self, group: str, plural: str, name: str = "") -> str:
        return "/".join(filter(None, (f"{group}/namespaces/{self._namespace}/{plural}", name)))
