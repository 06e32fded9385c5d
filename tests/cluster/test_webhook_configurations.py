"""Webhook configurations on a real API server: nobody answers, and the cluster lives on."""

import asyncio
import subprocess
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from lictor.controllers.context import build_context
from lictor.controllers.webhook_configuration.configurations import WebhookReconciler
from lictor.controllers.webhook_configuration.writer import own_role, remove_webhooks
from lictor.core.errors import ApiError, NotFoundError
from lictor.http.keys import Algorithm, make_authority, write_certificates
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    LEASE,
    NAMESPACE,
    SECRET,
    VALIDATING_WEBHOOK,
    Resource,
)

NODE = Resource("", "v1", "nodes", "Node", namespaced=False)
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
CLUSTER_POLICIES = Resource(
    "kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False
)
VALIDATING_POLICIES = Resource(
    "policies.kyverno.io", "v1", "validatingpolicies", "ValidatingPolicy", namespaced=False
)


def check(name, kinds):
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": {"kinds": kinds}}]},
        "validate": {"failureAction": "Enforce", "pattern": {"metadata": {"name": "?*"}}},
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [rule]},
    }


def check_in_cel(name, resources):
    rule = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": resources,
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "true"}],
        },
    }


class Installation:
    """Namespace, authority and owner, and a keeper of webhooks that has no server behind it."""

    def __init__(self, client, prefix):
        self.client = client
        self.names = Names(prefix, f"{prefix}-system")
        flags = Flags()
        self.place = build_context(client, flags, self.names, "test")
        self.keeper = WebhookReconciler(self.place, lambda: True, spread=0)
        self._running = None

    async def begin(self):
        namespace = await self.client.create(
            NAMESPACE, {"metadata": {"name": self.names.namespace}}
        )
        authority = make_authority("ca", Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1))
        pem = write_certificates((authority.certificate,))
        data = {"tls.crt": b64encode(pem.encode()).decode()}
        secret = {"name": self.names.authority_secret(), "namespace": self.names.namespace}
        await self.client.create(SECRET, {"metadata": secret, "data": data})
        role = {"metadata": {"name": self.names.owner_role}, "rules": []}
        made = await self.client.create(CLUSTER_ROLE, role)
        await own_role(self.client, made, namespace)
        self._running = asyncio.create_task(self.place.run())
        await self.place.wait()

    async def end(self):
        if self._running is not None:
            self._running.cancel()

    async def settle(self, is_so):
        """Reconcile until it is so."""
        for _ in range(40):
            await self.keeper.reconcile()
            if is_so():
                return
            await asyncio.sleep(0.25)
        raise AssertionError(f"ready: {sorted(self.keeper.state.ready_keys)}")

    async def read(self):
        name = self.names.webhook("resource-validating")
        return await self.client.get(VALIDATING_WEBHOOK, name)

    async def find(self):
        return await self.client.find(VALIDATING_WEBHOOK, self.names.webhook("resource-validating"))


@pytest.fixture(scope="module")
def plane(open_cluster):
    """A cluster for these tests alone: it is shut off for a while."""
    with open_cluster() as plane:
        crds = subprocess.run(
            [sys.executable, "-m", "lictor", "crds"], check=True, capture_output=True, text=True
        ).stdout
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=crds)
        deadline = time.monotonic() + 60
        while plane.kubectl("get", "cpol,vpol", check=False).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        yield plane


@pytest.fixture
def play(plane, request):
    """Run a scene with an installation of its own."""

    def run(scene):
        async def inside():
            client = Client(load_config(str(plane.kubeconfig)))
            installation = Installation(client, request.function.__name__.split("_")[-1])
            try:
                await installation.begin()
                async with asyncio.timeout(120):
                    await scene(installation, client)
            finally:
                await installation.end()
                await remove_webhooks(client, installation.names)
                for kind in (CLUSTER_POLICIES, VALIDATING_POLICIES):
                    for policy in await client.list(kind):
                        await client.delete(kind, policy["metadata"]["name"])
                await client.close()

        asyncio.run(inside())

    return run


async def expect_refusal(writing):
    with pytest.raises(ApiError, match="failed calling webhook"):
        await writing


def config_map(name, namespace):
    return {"metadata": {"name": name, "namespace": namespace}}


def test_a_cluster_lives_and_gets_rid_of_us_while_nobody_answers(play, plane):
    async def scene(installation, client):
        # Policies of our own kinds are asked about too: they must be there before the webhooks.
        await client.create(CLUSTER_POLICIES, check("everything", ["*/*"]))
        await client.create(VALIDATING_POLICIES, check_in_cel("everything", ["*/*"]))
        ready = {"ClusterPolicy/everything", "ValidatingPolicy/everything"}
        await installation.settle(lambda: installation.keeper.state.ready_keys == ready)
        await asyncio.sleep(1)
        own = installation.names.namespace
        await expect_refusal(client.create(CONFIG_MAP, config_map("a", "default")))
        await expect_refusal(client.create(NAMESPACE, {"metadata": {"name": "other"}}))

        await client.create(NODE, {"metadata": {"name": "node"}})
        await client.patch(NODE, "node", {"metadata": {"labels": {"a": "b"}}})
        status = {"status": {"nodeInfo": {"kubeletVersion": "v1"}}}
        await client.patch(NODE, "node", status, subresource="status")
        await client.create(LEASE, config_map("node", "default"))
        await client.create(CONFIG_MAP, config_map("a", own))
        await client.create(CONFIG_MAP, config_map("a", "kube-system"))
        await client.patch(NAMESPACE, own, {"metadata": {"labels": {"a": "b"}}})
        assert plane.kubectl("create", "token", "default").stdout
        assert plane.kubectl("auth", "can-i", "get", "pods").stdout.strip() == "yes"

        await installation.end()
        if not plane.collects_garbage:
            return
        await client.delete(NAMESPACE, own)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                await installation.read()
            except NotFoundError:
                break
            await asyncio.sleep(0.5)
        await client.create(CONFIG_MAP, config_map("a", "default"))

    play(scene)


def test_what_the_api_server_refuses_holds_up_nobody(play):
    async def scene(installation, client):
        await client.create(VALIDATING_POLICIES, check_in_cel("bad", ["*", "configmaps"]))
        await client.create(VALIDATING_POLICIES, check_in_cel("good", ["configmaps"]))
        conditions = [{"name": "ours", "expression": "resource.Get('v1', 'pods', 'a', 'b') == 1"}]
        understood = check_in_cel("ours", ["secrets"])
        understood["spec"]["matchConditions"] = conditions
        await client.create(VALIDATING_POLICIES, understood)
        ready = {"ValidatingPolicy/good", "ValidatingPolicy/ours"}
        await installation.settle(lambda: installation.keeper.state.ready_keys == ready)
        refused = installation.keeper.state.refused
        assert "must not specify other resources" in refused["ValidatingPolicy/bad"]
        (webhook,) = (await installation.read())["webhooks"]
        assert webhook["clientConfig"]["service"]["path"] == "/vpol/good/ours"

    play(scene)


def test_nothing_is_written_twice_and_damage_is_repaired(play):
    async def scene(installation, client):
        await client.create(CLUSTER_POLICIES, check("maps", ["ConfigMap", "Widget"]))
        state = installation.keeper.state
        await installation.settle(lambda: state.ready_keys == {"ClusterPolicy/maps"})
        before = await installation.read()
        for _ in range(3):
            await installation.keeper.reconcile()
        assert (await installation.read())["metadata"]["generation"] == (
            before["metadata"]["generation"]
        )
        damage = {"webhooks": [], "metadata": {"labels": None}}
        await client.patch(VALIDATING_WEBHOOK, before["metadata"]["name"], damage)
        # Widgets are not served yet: their resource may have any name.
        wide = ["*", "configmaps", "pods/ephemeralcontainers"]
        await _settle_rules(installation, wide)
        await client.delete(VALIDATING_WEBHOOK, before["metadata"]["name"])
        await _settle_rules(installation, wide)
        assert (await installation.read())["metadata"]["labels"] == before["metadata"]["labels"]
        await client.create(CRDS, WIDGETS)
        await _settle_rules(installation, ["configmaps", "widgets"])

    play(scene)


async def _settle_rules(installation, resources):
    found = []
    for _ in range(40):
        await installation.keeper.reconcile()
        webhooks = (await installation.find() or {}).get("webhooks") or ()
        found = [path for each in webhooks for rule in each["rules"] for path in rule["resources"]]
        if sorted(found) == resources:
            return
        await asyncio.sleep(0.25)
    raise AssertionError(found)
