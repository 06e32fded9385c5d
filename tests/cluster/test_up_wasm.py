"""`lictor up --policies` with a policy in Wasm, whose module is a file beside it or in a registry."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_guests import MARK, REFUSAL, write_guests

from lictor.core.errors import ApiError
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import Resource

PODS = Resource("", "v1", "pods", "Pod")
POLICY = """\
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: no-marked-pods}
spec:
  module: file://modules/refuse_marked.wasm
  settings: {}
  mutating: false
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""


def make_pod(name):
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [{"name": "c", "image": "ghcr.io/acme/web"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def ask(kubeconfig, work):
    async def main():
        client = Client(load_config(str(kubeconfig)))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(main())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_guests(tmp_path / "modules")
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def test_a_policy_with_invalid_settings_refuses_until_they_are_valid(folder):
    """As in Kubewarden; before, the requests that it was about passed."""
    (folder / "policy.yaml").write_text(POLICY.replace("refuse_marked", "invalid"))
    kubeconfig = folder / "kubeconfig"
    refused = pytest.raises(ApiError, match="team is missing")
    with up(kubeconfig, f"--policies={folder / 'policy.yaml'}"), refused:
        ask(kubeconfig, lambda client: client.create(PODS, make_pod("fine")))


@contextlib.contextmanager
def up(kubeconfig, *words):
    command = [sys.executable, "-m", "lictor", "up", f"--kubeconfig={kubeconfig}", "--port=0"]
    process = subprocess.Popen(
        [*command, "--flag=disableMetrics=true", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_a_policy_beside_its_module_is_in_force(folder):
    kubeconfig = folder / "kubeconfig"
    with up(kubeconfig, f"--policies={folder / 'policy.yaml'}") as told:
        assert "with 1 policy in force" in told
        ask(kubeconfig, lambda client: client.create(PODS, make_pod("fine")))
        with pytest.raises(ApiError, match=REFUSAL):
            ask(kubeconfig, lambda client: client.create(PODS, make_pod(MARK)))
