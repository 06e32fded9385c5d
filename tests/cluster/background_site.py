"""A cluster with lictor and its background controller in it, for tests of what that does."""

import asyncio
import json
import time

import pytest
from control_plane.install import install_lictor

from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config

HOME = "lictor"
RESYNC = 8.0
BACKGROUND = "background-controller"
RIGHTS = ["get", "list", "watch", "create", "update", "patch", "delete"]


class Site:
    """A cluster with lictor in it, seen with the rights of its administrator."""

    def __init__(self, plane, installation):
        self.plane = plane
        self.installation = installation

    def apply(self, *bodies):
        items = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        return self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def kubectl(self, *words, check=True):
        return self.plane.kubectl(*words, check=check)

    def find(self, kind, name, namespace=""):
        words = ["get", kind, name, "-o", "json", "--ignore-not-found"]
        text = self.kubectl(*words, *(["-n", namespace] if namespace else []), check=False).stdout
        return json.loads(text) if text.strip() else None

    def data(self, name, namespace, kind="configmap"):
        found = self.find(kind, name, namespace)
        return found and found.get("data")

    def is_ready(self, policy):
        found = self.find(policy["kind"], policy["metadata"]["name"])
        status = (found or {}).get("status") or {}
        status = status.get("conditionStatus") or status
        return any(
            condition["type"] in ("Ready", "WebhookConfigured") and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        )

    def install(self, policy):
        self.apply(policy)
        until(lambda: self.is_ready(policy), f"policy {policy['metadata']['name']}")
        # The API server itself needs a moment to hear of its new webhooks.
        time.sleep(0.5)

    def make_namespace(self, name):
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def count_updates(self):
        words = ("get", "updaterequests", "-n", HOME, "-o", "name")
        return len(self.kubectl(*words).stdout.split())

    def start_background(self, *flags):
        return self.installation.start_controller(BACKGROUND, *flags)

    def run(self, work):
        """Work with a client of the administrator's."""

        async def main():
            client = Client(load_config(str(self.plane.kubeconfig)))
            try:
                return await work(client)
            finally:
                await client.close()
                # Connections over TLS take a moment to end.
                await asyncio.sleep(0.3)

        return asyncio.run(main())


def say(line):
    """A figure that whoever runs the tests wants to see (pytest -s)."""
    print(line)  # noqa: T201


def until(holds, what, seconds=30.0):
    """Wait until something holds; how long that took."""
    began = time.monotonic()
    # Twice as long on a busy machine: whoever minds how long it took looks at the answer.
    while time.monotonic() - began < 2 * seconds:
        if holds():
            return time.monotonic() - began
        time.sleep(0.1)
    pytest.fail(f"not after {2 * seconds:.0f} s: {what}")


def stays(holds, what, seconds=2.0):
    """Something holds for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds(), what
        time.sleep(0.2)


def make_role(name, resources):
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"generate:{name}",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": RIGHTS}],
    }


def build_site(plane, resources):
    """Install lictor; the background may write these resources of the core group."""
    flags = [f"--resyncPeriod={RESYNC:.0f}s"]
    made = Site(plane, install_lictor(plane, namespace=HOME, flags=flags))
    made.apply(make_role("tests", resources))
    made.start_background()
    return made
