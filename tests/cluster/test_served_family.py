"""A family of another package in the embedded cluster: served, scanned, reported, measured."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from lictor.core.errors import ApiError
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import POLICY_REPORT, Resource

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
from installing import install_family

PODS = Resource("", "v1", "pods", "Pod")
POLICIES = Resource(
    "labels.example.com", "v1", "requiredlabels", "RequiredLabels", namespaced=False
)
PATIENCE = 60.0
POLICY = """\
apiVersion: labels.example.com/v1
kind: RequiredLabels
metadata: {name: need-team}
spec:
  labels: [team]
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
"""


def find_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Family:
    """A `lictor up` whose processes have the family."""

    def __init__(self, folder):
        self.kubeconfig = folder / "kubeconfig"
        self.metrics = find_port()
        (folder / "package").mkdir()
        (folder / "policy.yaml").write_text(POLICY)
        self._folder = folder
        self._environment = install_family(folder / "package")

    @contextmanager
    def run(self):
        words = (f"--kubeconfig={self.kubeconfig}", "--port=0", "--policies=policy.yaml")
        process = subprocess.Popen(
            [*self._command("up"), *words, f"--flag=metricsPort={self.metrics}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process.stdout.readline() if process.stdout else ""
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)

    def tell(self, *words):
        done = subprocess.run(
            [*self._command(*words), f"--kubeconfig={self.kubeconfig}"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def _command(self, *words):
        return [sys.executable, "-m", "lictor", *words]

    def ask(self, work):
        async def main():
            client = Client(load_config(str(self.kubeconfig)))
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(main())


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    made = Family(tmp_path_factory.mktemp("family"))
    with made.run() as told:
        assert "with 1 policy in force" in told
        yield made


def make_pod(name, **labels):
    metadata = {"name": name, "namespace": "default", "labels": labels}
    spec = {"containers": [{"name": "c", "image": "ghcr.io/acme/web"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def wait_for(find):
    deadline = time.monotonic() + PATIENCE
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return found


def test_requests_are_judged(family):
    family.ask(lambda client: client.create(PODS, make_pod("good", team="a")))
    with pytest.raises(ApiError, match="these labels are missing: team"):
        family.ask(lambda client: client.create(PODS, make_pod("bad")))


def test_its_own_lint_rule_guards_the_store(family):
    spec = {"labels": ["team", "team"], "matchConstraints": {"resourceRules": []}}
    head = {"apiVersion": "labels.example.com/v1", "kind": "RequiredLabels"}
    body = {**head, "metadata": {"name": "twice"}, "spec": spec}
    with pytest.raises(ApiError, match="is wanted twice"):
        family.ask(lambda client: client.create(POLICIES, body))


def test_the_policy_is_ready(family):
    policy = family.ask(lambda client: client.get(POLICIES, "need-team"))
    assert policy["status"]["conditionStatus"]["ready"] is True


def test_it_is_scanned_and_reported(family):
    family.ask(lambda client: client.create(PODS, make_pod("scanned", team="a")))

    def find():
        reports = family.ask(lambda client: client.list(POLICY_REPORT, "default"))
        return [
            (entry["source"], entry["policy"], entry["rule"], entry["result"])
            for report in reports
            if report["scope"]["name"] == "scanned"
            for entry in report.get("results") or ()
        ]

    assert wait_for(find) == [("required-labels", "need-team", "labels", "pass")]


def test_status_counts_it(family):
    assert "Policies: 1, 1 ready" in family.tell("status")


def test_it_is_measured(family):
    family.ask(lambda client: client.create(PODS, make_pod("measured", team="a")))
    address = f"http://127.0.0.1:{family.metrics}/metrics"

    def find():
        with urllib.request.urlopen(address) as answer:
            lines = answer.read().decode().splitlines()
        return [
            line
            for line in lines
            if line.startswith("kyverno_policy_results") and 'policy_name="need-team"' in line
        ]

    assert any('policy_validation_mode="enforce"' in line for line in wait_for(find))
