"""A webhook to ask: the embedded cluster with one part's policies in it, and `lictor serve`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
import yaml

# Clusters for tests live there.
sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from control_plane.credentials import Authority
from control_plane.embedded import EmbeddedCluster
from control_plane.manifests import apply_objects, print_manifests

Object = dict[str, Any]
NAMESPACE = "lictor"
# What the tables were taken with: nothing is left alone, and the API server itself asks nobody.
SETTINGS = {
    "resourceFilters": "[Event,*,*] [*/*,kyverno,*]",
    "excludeGroups": "",
    "webhooks": '{"objectSelector":{"matchLabels":{"nope":"x"}}}',
}
_PLURALS = {
    "ClusterPolicy": "clusterpolicies",
    "Policy": "policies",
    "ValidatingPolicy": "validatingpolicies",
    "NamespacedValidatingPolicy": "namespacedvalidatingpolicies",
    "MutatingPolicy": "mutatingpolicies",
    "NamespacedMutatingPolicy": "namespacedmutatingpolicies",
}


class AdmissionSite:
    """The cluster, and one webhook server in front of it."""

    def __init__(self, setup: Path) -> None:
        self.cluster = EmbeddedCluster(loopback=True)
        self._setup = setup
        self._server: Any = None
        self.url = ""

    def __enter__(self) -> "AdmissionSite":
        self.cluster.start()
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "lictor", "namespace": NAMESPACE},
            "data": SETTINGS,
        }
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        apply_objects(self.cluster, print_manifests("crds"))
        apply_objects(self.cluster, [home, settings])
        # The kinds of the definitions among them come first.
        apply_objects(self.cluster, read_documents(self._setup))
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()

    def load(self, policies: Iterable[Object]) -> None:
        """Create these policies; `apply` would lose the nulls in some of them."""
        with self.cluster.connect() as client:
            for policy in policies:
                _create(client, policy)

    def serve(self) -> None:
        """Start the webhook server, or another one in place of the last."""
        if self._server is not None:
            self._server.stop()
        pair = Authority(self.cluster.folder).sign_server([self.cluster.address])
        port = self.cluster.port(9443)
        self.url = f"https://{self.cluster.address}:{port}"
        self._server = self.cluster.start_lictor(
            "serve",
            "--no-control",
            "--workers=1",
            "--disableMetrics",
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--webhookServerPort={port}",
            f"--tlsCert={pair.certificate}",
            f"--tlsKey={pair.key}",
            # Nothing that follows an answer is asked about here.
            "--admissionReports=false",
        )
        self.cluster._wait(self._is_ready, "the webhook")

    def _is_ready(self) -> bool:
        if not self._server.is_running():
            raise RuntimeError(f"lictor ended:\n{self._server.read_log()}")
        with httpx2.Client(verify=False, timeout=2, trust_env=False) as client:
            return client.get(f"{self.url}/health/readiness").status_code == 200


def read_documents(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]


def _create(client: httpx2.Client, body: Object) -> None:
    namespace = body["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    answer = client.post(f"/apis/{body['apiVersion']}{inside}/{_PLURALS[body['kind']]}", json=body)
    if not answer.is_success:
        raise RuntimeError(f"{body['kind']} {body['metadata']['name']}: {answer.text}")
