"""An installation of Kyverno in a cluster: its own manifests, with settings that people have changed.

The manifests are those of its Go module. Its Pods are played by `kyverno_stand_in.py`, and its
webhook configurations and certificates are written as its controllers write them.
"""

import json
import shutil
import sys
import threading
import time
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import httpx2
from control_plane.go_modules import BuildError, run_go
from control_plane.local import LocalCluster
from control_plane.process import Process, start_process
from kubelet import Kubelet
from kyverno_stand_in import REFUSAL

from lictor.http import keys
from lictor.http.keys import Algorithm

MODULE = "github.com/kyverno/kyverno@v1.18.2"
NAMESPACE = "kyverno"
STAND_IN = Path(__file__).parent / "kyverno_stand_in.py"
_KYVERNO = "reg.kyverno.io/"
_COMPONENT = "app.kubernetes.io/component"
# Which Services answer, by the component of their Pods.
SERVERS = {
    "admission-controller": "kyverno-svc",
    "cleanup-controller": "kyverno-cleanup-controller",
}


@cache
def find_manifests() -> Path | None:
    """All manifests of Kyverno in one file; None where its module cannot be had."""
    if shutil.which("go") is None:
        return None
    try:
        answer = json.loads(run_go(Path.cwd(), "mod", "download", "-json", MODULE))
    except BuildError:
        return None
    file = Path(answer["Dir"]) / "config" / "install-latest-testing.yaml"
    return file if file.exists() else None


@dataclass(frozen=True)
class Certificates:
    """One authority, and a certificate for each server, in files and Secrets."""

    folder: Path
    authority: keys.KeyPair

    def write(self, plane: LocalCluster) -> None:
        for service in SERVERS.values():
            hosts = (service, f"{service}.{NAMESPACE}", f"{service}.{NAMESPACE}.svc")
            lifetime = timedelta(days=100)
            pair = keys.make_serving(
                self.authority, hosts, Algorithm.RSA, datetime.now(UTC), lifetime
            )
            (self.folder / f"{service}.crt").write_text(pair.certificate_pem)
            (self.folder / f"{service}.key").write_text(pair.key_pem)
            for name, each in (("ca", self.authority), ("pair", pair)):
                self._keep(plane, f"{service}.{NAMESPACE}.svc.kyverno-tls-{name}", each)

    def _keep(self, plane: LocalCluster, name: str, pair: keys.KeyPair) -> None:
        labels = {"cert.kyverno.io/managed-by": "kyverno"}
        entries = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "type": "kubernetes.io/tls",
            "data": {key: b64encode(text.encode()).decode() for key, text in entries.items()},
        }
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(secret))


def make_certificates(plane: LocalCluster) -> Certificates:
    """As Kyverno makes them."""
    lifetime = timedelta(days=300)
    authority = keys.make_authority("*.kyverno.svc", Algorithm.RSA, datetime.now(UTC), lifetime)
    made = Certificates(plane.folder, authority)
    made.write(plane)
    return made


# --- webhook configurations, as Kyverno's controllers write them

_CHANGES = ["CREATE", "UPDATE"]
WEBHOOKS = (
    ("resource-validating", False, "validate.kyverno.svc-fail", "/validate/fail", "", "configmaps"),
    ("resource-mutating", True, "mutate.kyverno.svc-fail", "/mutate/fail", "", "configmaps"),
    ("policy-validating", False, "validate-policy.kyverno.svc", "/policyvalidate", "kyverno.io", "clusterpolicies"),
    ("policy-mutating", True, "mutate-policy.kyverno.svc", "/policymutate", "kyverno.io", "clusterpolicies"),
    ("exception-validating", False, "kyverno-svc.kyverno.svc", "/exceptionvalidate", "kyverno.io", "policyexceptions"),
    ("cleanup-validating", False, "kyverno-cleanup-controller.kyverno.svc", "/validate", "kyverno.io", "cleanuppolicies"),
)  # fmt: skip


def write_webhooks(plane: LocalCluster, certificates: Certificates) -> None:
    """Each refuses requests that nobody answers."""
    for name, mutating, webhook, path, group, plural in WEBHOOKS:
        service = SERVERS["cleanup-controller" if "cleanup" in name else "admission-controller"]
        bundle = b64encode(certificates.authority.certificate_pem.encode()).decode()
        reference = {"name": service, "namespace": NAMESPACE, "path": path, "port": 443}
        rule = {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "resources": [plural],
            "operations": _CHANGES,
        }
        outside = {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": [NAMESPACE, "kube-system"],
        }
        entry = {
            "name": webhook,
            "clientConfig": {"service": reference, "caBundle": bundle},
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None" if not mutating else "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
            "namespaceSelector": {"matchExpressions": [outside]},
        }
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration",
            "metadata": {
                "name": f"kyverno-{name}-webhook-cfg",
                "labels": {"webhook.kyverno.io/managed-by": "kyverno"},
            },
            "webhooks": [entry],
        }
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(configuration))


# --- its Pods


@dataclass(frozen=True)
class PodStarter:
    """What a Pod of Kyverno's namespace runs as."""

    plane: LocalCluster

    def __call__(self, pod: dict, address: str) -> Process | None:
        component = pod["metadata"]["labels"].get(_COMPONENT, "")
        [container] = pod["spec"]["containers"]
        if container["image"].startswith(_KYVERNO):
            service = SERVERS.get(component)
            return self._start_stand_in(pod, address, service) if service else None
        return self._start_lictor(pod, address) if component == "admission-controller" else None

    def _start_stand_in(self, pod: dict, address: str, service: str) -> Process:
        name, folder = pod["metadata"]["name"], self.plane.folder
        pair = [str(folder / f"{service}.{end}") for end in ("crt", "key")]
        return start_process(
            [sys.executable, str(STAND_IN), address, "9443", *pair],
            name=name,
            log=folder / f"{name}.log",
            prefix=self.plane.network.prefix,
        )

    def _start_lictor(self, pod: dict, address: str) -> Process:
        spec = pod["spec"]
        kubeconfig = self.plane.kubeconfig_for(NAMESPACE, spec["serviceAccountName"])
        return self.plane.start_lictor(
            *spec["containers"][0]["args"],
            f"--kubeconfig={kubeconfig}",
            "--workers=1",
            f"--webhookServerHost={address}",
            f"--metricsHost={address}",
            "--shutdownDelay=1s",
            environment={"POD_NAME": pod["metadata"]["name"], "POD_NAMESPACE": NAMESPACE},
        )


def open_kubelet(plane: LocalCluster) -> Kubelet:
    """A node for the Pods of Kyverno and of lictor."""
    kubelet = Kubelet(plane, NAMESPACE, PodStarter(plane))
    kubelet.start()
    return kubelet


# --- people who go on working


@dataclass
class Requests:
    """Makes requests all the time, in a thread: some must pass, some must be refused by a policy."""

    plane: LocalCluster
    namespace: str
    count: int = 0
    faults: list[str] = field(default_factory=list)
    _closed: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Requests":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        with self.plane.connect() as client:
            while not self._closed.wait(0.05):
                self.count += 1
                try:
                    self._ask(client)
                except httpx2.HTTPError as error:
                    self.faults.append(f"{type(error).__name__}: {error}")

    def _ask(self, client: httpx2.Client) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self._expect(client, path, "v1", "ConfigMap", f"good-{self.count}", 201)
        self._expect(client, path, "v1", "ConfigMap", f"bad-{self.count}", 400)
        spec = {
            "schedule": "0 0 * * *",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["old-*"]}}]},
        }
        path = f"/apis/kyverno.io/v2/namespaces/{self.namespace}/cleanuppolicies?dryRun=All"
        self._expect(
            client, path, "kyverno.io/v2", "CleanupPolicy", f"old-{self.count}", 201, spec=spec
        )

    def _expect(
        self,
        client: httpx2.Client,
        path: str,
        version: str,
        kind: str,
        name: str,
        status: int,
        **parts: object,
    ) -> None:
        began = time.monotonic()
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}
        answer = client.post(path, json=body)
        is_refusal = answer.status_code in (400, 403) and REFUSAL in answer.text
        if not (is_refusal if status == 400 else answer.status_code == status):
            seconds = time.monotonic() - began
            self.faults.append(
                f"{kind} {name}: {answer.status_code} after {seconds:.1f} s: {answer.text[:300]}"
            )
