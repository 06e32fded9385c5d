"""Policies and the servers that they name, against an API server in memory."""

import asyncio
import copy
import socket
import time
from functools import partial

import orjson
import pytest
from small_api import SmallApi
from webhook_samples import NAMES

from lictor.addons.kubewarden.controller import rollout
from lictor.addons.kubewarden.controller.objects import DISRUPTION_BUDGET, REPLICA_SET
from lictor.addons.kubewarden.controller.reconcile import POLICY_SERVER, PolicyServerReconciler
from lictor.addons.kubewarden.controller.rollout import POD, OwnServer
from lictor.addons.kubewarden.controller.webhooks import release_all_policies
from lictor.addons.kubewarden.family.entries import digest_document
from lictor.controllers.webhook_configuration.draft import WebhookEndpoint
from lictor.core.errors import ApiError
from lictor.core.evaluations import QUARANTINED
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    DEPLOYMENT,
    MUTATING_WEBHOOK,
    SERVICE,
    VALIDATING_WEBHOOK,
    find_resource,
)
from lictor.kubernetes.stored_policy import StoredPolicy

GROUP = "policies.kubewarden.io"
FINALIZER = "kubewarden.io/finalizer"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
PLACE = NAMES.namespace
LICTORS = "ghcr.io/acme/lictor:1"


def find_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


PROBES = find_port()


class Api(SmallApi):
    """With server-side apply that replaces what it is told, and generations."""

    def __init__(self):
        super().__init__()
        self.refused = set()
        # Names and subresources.
        self.denied = set()
        self.tried = 0

    async def patch(self, resource, name, patch, *, namespace="", kind="", subresource=""):
        if (name, subresource) in self.denied:
            raise ApiError("an admission webhook denied the request", status=403)
        return await super().patch(resource, name, patch, namespace=namespace)

    async def create(self, resource, body, namespace=""):
        self.tried += 1
        if len(body["metadata"]["name"]) > 253:
            raise ApiError("metadata.name: too long", status=422)
        return await super().create(resource, body, namespace)

    async def apply(self, resource, body):
        if resource.plural in self.refused:
            raise ApiError(f"cannot patch {resource.plural}", status=403)
        key = self._key(resource, body["metadata"])
        before = self.objects.get(key)
        metadata = {**((before or {}).get("metadata") or {}), **body["metadata"]}
        self.writes.append(("apply", *key))
        stored = self._store(resource, key, {**(before or {}), **body, "metadata": metadata})
        return copy.deepcopy(stored)

    async def list(self, resource, namespace="", *, labels="", fields=""):
        found = await super().list(resource, namespace)
        key, _, value = labels.partition("=")
        known = [each["metadata"].get("labels") or {} for each in found]
        return [
            each
            for each, own in zip(found, known, strict=True)
            if not key or (key in own and value in ("", own[key]))
        ]

    async def delete(self, resource, name, namespace="", **_):
        self.writes.append(("delete", resource.plural, namespace, name))
        return self.objects.pop((resource.plural, namespace, name), None) is not None


class View:
    """A cache that is never late."""

    def __init__(self, api, resource):
        self.resource, self._api = resource, api

    def get(self, name, namespace=""):
        return self._api.objects.get((self.resource.plural, namespace, name))

    def list(self):
        return [
            item
            for (plural, *_), item in self._api.objects.items()
            if plural == self.resource.plural
        ]


class Store:
    """The policies that the API server has."""

    def __init__(self, api):
        self._api = api
        self.reasons = {}

    @property
    def policies(self):
        found = []
        for kind in registry().kinds:
            if kind.path is not None and kind.path.per_policy:
                resource = find_resource(kind)
                found += [self._read(resource, each) for each in View(self._api, resource).list()]
        return tuple(found)

    def _read(self, resource, document):
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        loaded = load_documents(orjson.dumps(whole), "policy")
        return StoredPolicy(resource, whole, loaded.records[0] if loaded.records else None)

    def find_reason(self, policy):
        return self.reasons.get(policy.name, "")

    def has_invalid_settings(self, policy):
        return "settings are invalid" in self.find_reason(policy)


class Scene:
    """What a loop needs of its process, and the hands of people and of Kubernetes."""

    def __init__(self):
        self.client = Api()
        self.flags, self.names = Flags(), NAMES
        self.store = Store(self.client)
        self.is_healthy = True
        self.again = 0
        self.pages = {}
        self.events = []
        self.client.seed(CLUSTER_ROLE, {"metadata": {"name": NAMES.owner_role, "uid": "role"}})
        endpoint = WebhookEndpoint("Q0E=", PLACE, NAMES.service)
        own = OwnServer(self.store, lambda: endpoint, lambda: self.is_healthy)
        self.reconciler = PolicyServerReconciler(self, own, self.events.append, spread=0)
        self.reconciler.look_again = self.count

    def count(self):
        self.again += 1

    def watch(self, resource, **_):
        return View(self.client, resource)

    def run(self, times=1):
        for _ in range(times):
            asyncio.run(self.reconciler.reconcile())

    def play_pod(self, pod, address, states, *, ready=True, server="green"):
        """A Pod of lictor's image, and what its page says."""
        self.pages[address] = states
        labels = {"kubewarden/policy-server": server}
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.client.seed(
            POD,
            {
                "metadata": {"name": pod, "namespace": PLACE, "labels": labels},
                "status": {"podIP": address, "conditions": conditions},
            },
        )

    def describe(self, state="ready", reason="", name="clusterwide-a", server="green"):
        """What a Pod says that has the policy as it is now."""
        digest = digest_document(self.entries(server)[name])
        return {"policies": {name: {"digest": digest, "state": state, "reason": reason}}}

    def run_with_pages(self):
        """A run, while the Pods answer on their port for probes."""
        asyncio.run(self._run_with_pages())

    async def _run_with_pages(self):
        async def answer(page, reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"GET /policies HTTP/1.1\r\n")
            body = page if isinstance(page, bytes) else orjson.dumps(page)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            writer.close()

        servers = [
            await asyncio.start_server(partial(answer, page), address, PROBES)
            for address, page in self.pages.items()
        ]
        try:
            await self.reconciler.reconcile()
        finally:
            for server in servers:
                server.close()

    def add_server(self, name, **spec):
        body = {"image": "policy-server:1", "replicas": 1, **spec}
        self.client.seed(
            POLICY_SERVER, {"metadata": {"name": name, "uid": f"s-{name}"}, "spec": body}
        )

    def add_policy(self, name="a", kind="ClusterAdmissionPolicy", namespace="", **spec):
        resource = find_kind(kind)
        metadata = {"name": name, "uid": f"p-{namespace}/{name}", "generation": 1}
        if namespace:
            metadata["namespace"] = namespace
        body = {"module": "registry://x/y:1", "rules": [RULE], "mutating": False, **spec}
        self.client.seed(resource, {"metadata": metadata, "spec": body})

    def edit(self, resource, name, **spec):
        item = self.client.objects[resource.plural, "", name]
        self.client.seed(resource, {**item, "spec": {**item["spec"], **spec}})

    def begin_deletion(self, resource, name):
        item = self.client.objects[resource.plural, "", name]
        metadata = {**item["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}
        self.client.seed(resource, {**item, "metadata": metadata})

    def roll_out(self, server, *, ready=True):
        """What the controller manager and a kubelet do."""
        full = f"policy-server-{server}"
        deployment = self.client.objects["deployments", PLACE, full]
        template = deployment["spec"]["template"]
        version = template["metadata"]["labels"]["kubewarden/config-version"]
        labels = {**template["metadata"]["labels"], "pod-template-hash": version}
        notes = {"deployment.kubernetes.io/revision": version}
        metadata = deployment["metadata"]
        annotations = {**metadata["annotations"], **notes}
        self.client.seed(
            DEPLOYMENT, {**deployment, "metadata": {**metadata, "annotations": annotations}}
        )
        self._forget_pods(server)
        for resource in (REPLICA_SET, POD):
            made = {"name": f"{full}-{version}", "namespace": PLACE, "labels": labels}
            self.client.seed(
                resource,
                {
                    "metadata": {**made, "annotations": notes},
                    "spec": {"template": template},
                    "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
                },
            )

    def _forget_pods(self, server):
        for key, item in list(self.client.objects.items()):
            labels = item["metadata"].get("labels") or {}
            if key[0] == "pods" and labels.get("kubewarden/policy-server") == server:
                del self.client.objects[key]

    def status(self, name="a", kind="ClusterAdmissionPolicy", namespace=""):
        return self.client.read(find_kind(kind), name, namespace)["status"]

    def stage(self, *words, **more):
        return self.status(*words, **more)["policyStatus"]

    def condition(self, kind, *words, **more):
        return next(
            each for each in self.status(*words, **more)["conditions"] if each["type"] == kind
        )

    def webhook(self, name="clusterwide-a", resource=VALIDATING_WEBHOOK):
        return self.client.objects.get((resource.plural, "", name))

    def called(self, name="clusterwide-a", resource=VALIDATING_WEBHOOK):
        found = self.webhook(name, resource)
        return found and found["webhooks"][0]["clientConfig"]["service"]["name"]

    def entries(self, server):
        return orjson.loads(
            self.client.read(CONFIG_MAP, f"policy-server-{server}", PLACE)["data"]["policies.yml"]
        )


def find_kind(kind):
    return find_resource(registry().get(GROUP, kind))


CAP = "ClusterAdmissionPolicy"


@pytest.fixture
def scene():
    return Scene()


def test_a_policy_without_its_server_is_unscheduled(scene):
    scene.add_policy(policyServer="green")
    scene.run()
    assert scene.stage() == "unscheduled"
    assert scene.condition("PolicyActive")["reason"] == "PolicyServerNotFound"
    assert scene.webhook() is None


def test_a_policy_is_asked_about_once_every_pod_has_it(scene):
    scene.add_policy(policyServer="green")
    scene.add_server("green")
    scene.run()
    assert scene.stage() == "pending"
    assert scene.webhook() is None
    assert scene.again
    scene.roll_out("green", ready=False)
    scene.run()
    assert scene.stage() == "pending"
    assert "not ready" in scene.condition("PolicyUniquelyReachable")["message"]
    scene.roll_out("green")
    scene.run()
    assert scene.stage() == "active"
    assert scene.status()["mode"] == "protect"
    assert scene.called() == "policy-server-green"
    webhook = scene.webhook()
    assert webhook["metadata"]["labels"]["app.kubernetes.io/part-of"] == "kubewarden"
    assert webhook["metadata"]["annotations"]["kubewardenPolicyName"] == "a"
    [entry] = webhook["webhooks"]
    assert entry["name"] == "clusterwide-a.kubewarden.admission"
    assert entry["clientConfig"]["service"]["path"] == "/validate/clusterwide-a"
    assert FINALIZER in scene.client.read(find_kind(CAP), "a")["metadata"]["finalizers"]


def test_nothing_is_written_twice(scene):
    scene.add_policy(policyServer="green")
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.run(2)
    before = len(scene.client.writes)
    scene.run(2)
    assert scene.client.writes[before:] == []


def test_a_policy_moves_without_a_gap(scene):
    scene.add_policy(policyServer="green")
    scene.add_server("green")
    scene.add_server("blue")
    scene.run()
    for server in ("green", "blue"):
        scene.roll_out(server)
    scene.run()
    assert scene.called() == "policy-server-green"
    scene.edit(find_kind(CAP), "a", policyServer="blue")
    scene.run()
    # Blue is told, and green goes on answering.
    assert "clusterwide-a" in scene.entries("blue")
    assert "clusterwide-a" in scene.entries("green")
    assert scene.called() == "policy-server-green"
    assert scene.stage() == "active"
    assert scene.condition("PolicyUniquelyReachable")["status"] == "False"
    scene.roll_out("blue")
    scene.run()
    assert scene.called() == "policy-server-blue"
    scene.run()
    assert scene.entries("green") == {}


def test_a_policy_that_begins_to_mutate_is_asked_about_all_the_time(scene):
    scene.add_policy(policyServer="green")
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.run()
    scene.edit(find_kind(CAP), "a", mutating=True)
    scene.run()
    assert scene.called() == "policy-server-green"
    scene.roll_out("green")
    scene.run()
    assert scene.webhook() is None
    assert scene.called(resource=MUTATING_WEBHOOK) == "policy-server-green"


# --- servers of lictor's own image


@pytest.fixture
def hot(scene):
    """A server that looks at its policies itself, and a policy."""
    scene.add_policy(policyServer="green")
    scene.add_server("green", image=LICTORS, readinessProbePort=PROBES)
    scene.run()
    return scene


def test_every_ready_pod_must_have_the_policy(hot):
    assert "no ready Pods" in hot.condition("PolicyActive")["message"]
    hot.play_pod("one", "127.0.0.2", hot.describe())
    hot.play_pod("two", "127.0.0.3", {"policies": {}})
    hot.run_with_pages()
    assert hot.stage() == "pending"
    assert hot.webhook() is None
    assert "Pod two has not loaded it yet" in hot.condition("PolicyActive")["message"]
    assert hot.again
    hot.play_pod("two", "127.0.0.3", {"policies": {}}, ready=False)
    hot.run_with_pages()
    assert hot.stage() == "active"
    assert hot.called() == "policy-server-green"


def test_a_changed_policy_starts_no_pods_anew_and_keeps_its_webhook(hot):
    hot.play_pod("one", "127.0.0.2", hot.describe())
    hot.run_with_pages()
    before = hot.client.read(DEPLOYMENT, "policy-server-green", PLACE)["spec"]
    hot.edit(find_kind(CAP), "a", settings={"word": "new"}, timeoutSeconds=7)
    hot.run_with_pages()
    assert hot.client.read(DEPLOYMENT, "policy-server-green", PLACE)["spec"] == before
    assert hot.stage() == "active"
    assert hot.condition("PolicyServerConfigurationUpToDate")["status"] == "False"
    assert hot.webhook()["webhooks"][0]["timeoutSeconds"] == 10
    hot.play_pod("one", "127.0.0.2", hot.describe())
    hot.run_with_pages()
    assert hot.condition("PolicyServerConfigurationUpToDate")["status"] == "True"
    assert hot.webhook()["webhooks"][0]["timeoutSeconds"] == 7


@pytest.mark.parametrize("state", ["failed", "pending"])
def test_a_policy_that_cannot_be_loaded_says_why(hot, state):
    hot.play_pod("one", "127.0.0.2", hot.describe(state, "team is missing"))
    hot.run_with_pages()
    assert hot.stage() == "pending"
    # Its server refuses until the settings are valid; a module that may still come refuses nothing.
    assert (hot.webhook() is not None) is (state == "failed")
    told = hot.condition("PolicyActive")
    assert told["reason"] == "PolicyCannotBeLoaded"
    refused = "; its requests are denied" if state == "failed" else ""
    assert told["message"] == f"Pod one: team is missing{refused}"
    # Nobody needs to look every other second whether somebody has changed it.
    hot.again = 0
    hot.run_with_pages()
    assert bool(hot.again) is (state == "pending")


def test_a_policy_that_ended_a_process_is_named_in_one_event(hot):
    hot.play_pod("one", "127.0.0.2", hot.describe("failed", QUARANTINED))
    for _ in range(2):
        hot.run_with_pages()
    assert QUARANTINED in hot.condition("PolicyActive")["message"]
    [event] = hot.events
    assert (event.reason, event.message, event.about.name) == ("PolicyError", QUARANTINED, "a")


def test_a_policy_that_breaks_goes_on_refusing_and_is_not_called_active(hot):
    hot.play_pod("one", "127.0.0.2", hot.describe())
    hot.run_with_pages()
    hot.edit(find_kind(CAP), "a", settings={"team": ""})
    hot.run_with_pages()
    hot.play_pod("one", "127.0.0.2", hot.describe("failed", "team is missing"))
    hot.run_with_pages()
    assert hot.stage() == "pending"
    assert "requests are denied" in hot.condition("PolicyActive")["message"]
    assert hot.called() == "policy-server-green"


def test_a_policy_that_breaks_elsewhere_is_answered_where_it_was(hot):
    hot.play_pod("one", "127.0.0.2", hot.describe())
    hot.run_with_pages()
    hot.add_server("blue", image=LICTORS, readinessProbePort=PROBES)
    hot.edit(find_kind(CAP), "a", policyServer="blue")
    hot.run_with_pages()
    hot.play_pod("two", "127.0.0.3", hot.describe("failed", "no", server="blue"), server="blue")
    hot.run_with_pages()
    assert hot.stage() == "active"
    assert hot.called() == "policy-server-green"
    assert "no" in hot.condition("PolicyServerConfigurationUpToDate")["message"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"<html>", "no answer on port"),
        (b'{"odd":' + b"[" * 100_000, "no answer on port"),
        (b" " * (5 * 1024 * 1024), "more than 4194304 bytes"),
        ({"policies": {"clusterwide-a": {"digest": "", "state": "fine"}}}, "no answer on port"),
        ({"policies": {}, "refused": "see the log"}, "see the log"),
        ({"policies": {"clusterwide-a": {"digest": "00", "state": "ready"}}}, "not loaded it yet"),
    ],
)
def test_what_a_pod_says_is_not_believed_blindly(hot, page, why):
    hot.play_pod("one", "127.0.0.2", page)
    hot.run_with_pages()
    assert hot.stage() == "pending"
    assert why in hot.condition("PolicyActive")["message"]
    assert hot.webhook() is None


def test_pods_that_keep_silent_hold_up_a_run_for_a_short_while(hot, monkeypatch):
    monkeypatch.setattr(rollout, "_POD_SECONDS", 0.3)
    monkeypatch.setattr(rollout, "_ALL_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.4", PROBES))
        silent.listen()
        for number in range(100):
            hot.play_pod(f"pod-{number}", "127.0.0.4", {})
        hot.pages.clear()
        start = time.monotonic()
        hot.run()
        assert time.monotonic() - start < 20
    assert "in time" in hot.condition("PolicyActive")["message"]
    assert hot.webhook() is None


def test_only_addresses_are_asked(hot):
    hot.play_pod("one", "localhost", {})
    hot.pages.clear()
    hot.run()
    assert "does not appear to be" in hot.condition("PolicyActive")["message"]


def test_without_a_server_of_that_name_lictor_is_the_default_one(scene):
    scene.add_policy()
    scene.store.reasons["a"] = "module registry://x/y:1 is being fetched"
    scene.run()
    assert scene.stage() == "pending"
    assert "is being fetched" in scene.condition("PolicyActive")["message"]
    scene.store.reasons.clear()
    scene.run()
    assert scene.stage() == "active"
    assert scene.called() == NAMES.service
    # What is changed and broken afterwards goes on refusing, and says so.
    scene.store.reasons["a"] = "the settings are invalid"
    scene.run()
    assert scene.called() == NAMES.service
    assert scene.condition("PolicyServerConfigurationUpToDate")["status"] == "False"


def test_a_new_policy_with_invalid_settings_refuses(scene):
    scene.add_policy()
    scene.store.reasons["a"] = "the settings are invalid: team is missing"
    scene.run()
    assert scene.stage() == "pending"
    assert scene.called() == NAMES.service
    told = scene.condition("PolicyActive")
    assert told["reason"] == "PolicyCannotBeLoaded"
    assert "team is missing; its requests are denied" in told["message"]
    scene.store.reasons.clear()
    scene.run()
    assert scene.stage() == "active"


def test_a_default_server_takes_over(scene):
    scene.add_policy()
    scene.run()
    assert scene.called() == NAMES.service
    scene.add_server("default")
    scene.run()
    assert scene.called() == NAMES.service
    scene.roll_out("default")
    scene.run()
    assert scene.called() == "policy-server-default"


def test_webhooks_that_do_not_answer_get_no_new_policies(scene):
    scene.is_healthy = False
    scene.add_policy()
    scene.run()
    assert scene.stage() == "pending"
    assert scene.webhook() is None


def test_a_server_that_goes_takes_webhooks_with_it_first(scene):
    scene.add_policy(policyServer="green")
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.run()
    assert FINALIZER in scene.client.read(POLICY_SERVER, "green")["metadata"]["finalizers"]
    scene.begin_deletion(POLICY_SERVER, "green")
    scene.run()
    assert scene.stage() == "scheduled"
    assert scene.condition("PolicyActive")["reason"] == "PolicyServerLeaving"
    assert scene.webhook() is None
    scene.run()
    assert not scene.client.read(POLICY_SERVER, "green")["metadata"].get("finalizers")


def test_a_policy_that_goes_takes_its_webhook_first(scene):
    scene.add_policy()
    scene.run(2)
    scene.begin_deletion(find_kind(CAP), "a")
    scene.run()
    assert scene.webhook() is None
    assert not scene.client.read(find_kind(CAP), "a")["metadata"].get("finalizers")


def test_webhooks_of_policies_that_are_gone_go(scene):
    scene.add_policy()
    scene.run()
    del scene.client.objects[find_kind(CAP).plural, "", "a"]
    other = {"name": "clusterwide-b", "labels": {"app.kubernetes.io/part-of": "kubewarden"}}
    scene.client.seed(VALIDATING_WEBHOOK, {"metadata": other, "webhooks": []})
    scene.run()
    assert scene.webhook() is None
    # Nobody said that it is of a policy.
    assert scene.webhook("clusterwide-b") is not None


def test_policies_with_one_name_at_kubewarden_are_all_served(scene):
    scene.add_policy("b-c", "AdmissionPolicy", "a")
    scene.add_policy("c", "AdmissionPolicy", "a-b")
    scene.run()
    assert scene.stage("b-c", "AdmissionPolicy", "a") == "active"
    assert scene.stage("c", "AdmissionPolicy", "a-b") == "active"
    assert scene.webhook("namespaced-a-b-c") is not None
    entry = scene.webhook("namespaced.a-b.c")["webhooks"][0]
    assert entry["name"] == "namespaced.a-b.c.kubewarden.admission"
    assert entry["clientConfig"]["service"]["path"] == "/validate/namespaced.a-b.c"


def test_one_broken_server_holds_up_no_other(scene):
    scene.add_policy("a", policyServer="green")
    scene.add_policy("b", policyServer="red")
    scene.add_server("green")
    scene.client.seed(
        POLICY_SERVER, {"metadata": {"name": "red", "uid": "r"}, "spec": {"image": 3}}
    )
    scene.run()
    scene.roll_out("green")
    scene.run()
    assert scene.stage("a") == "active"
    assert scene.stage("b") == "scheduled"
    assert "cannot be run" in scene.condition("PolicyActive", "b")["message"]


def test_what_cannot_be_written_is_told(scene):
    scene.add_server("green", minAvailable=1)
    scene.client.refused.add(SERVICE.plural)
    with pytest.raises(ApiError):
        scene.run()
    conditions = scene.client.read(POLICY_SERVER, "green")["status"]["conditions"]
    told = {each["type"]: each["status"] for each in conditions}
    assert told["ServiceReconciled"] == "False"
    assert told["DeploymentReconciled"] == "True"
    assert ("apply", DISRUPTION_BUDGET.plural, PLACE, "policy-server-green") in scene.client.writes


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        ({}, {"matchExpressions": ["own"]}),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            {"matchLabels": {"team": "a"}, "matchExpressions": ["own"]},
        ),
        ({"allowInsideAdmissionControllerNamespace": True}, {}),
    ],
)
def test_labels_of_namespaces_are_kept(scene, spec, selector):
    own = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [PLACE]}
    wanted = {
        name: [own] if name == "matchExpressions" else value for name, value in selector.items()
    }
    scene.add_policy(**spec)
    scene.run()
    assert scene.webhook()["webhooks"][0]["namespaceSelector"] == wanted


def test_a_policy_of_a_namespace_is_kept_to_it(scene):
    scene.add_policy("a", "AdmissionPolicy", "red", policyServer="green")
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.run()
    [webhook] = scene.webhook("namespaced-red-a")["webhooks"]
    assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "red"}}
    assert webhook["rules"][0]["scope"] == "Namespaced"
    # The CRD says that no capabilities means none.
    assert not scene.entries("green")["namespaced-red-a"].get("hostCapabilities")


def test_an_installation_that_goes_lets_go_of_policies(scene):
    scene.add_policy()
    scene.add_policy("b", "AdmissionPolicy", "red", policyServer="green")
    scene.add_server("green")
    scene.run()
    foreign = {**copy.deepcopy(scene.webhook()["metadata"]), "name": "clusterwide-z"}
    scene.client.seed(
        VALIDATING_WEBHOOK, {"metadata": {**foreign, "ownerReferences": []}, "webhooks": []}
    )
    asyncio.run(release_all_policies(scene.client, NAMES))
    assert scene.webhook() is None
    # Somebody else's, such as Kubewarden's own.
    assert scene.webhook("clusterwide-z") is not None
    for resource, name in ((find_kind(CAP), "a"), (POLICY_SERVER, "green")):
        assert FINALIZER not in (scene.client.read(resource, name)["metadata"]["finalizers"])


@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_policy_that_nobody_may_change_holds_up_no_other(scene, subresource):
    """One in its namespace may refuse that, as may other webhooks."""
    scene.client.denied.add(("a", subresource))
    scene.add_policy("a", "AdmissionPolicy", "evil")
    scene.add_policy("z", "AdmissionPolicy", "other")
    with pytest.raises(ApiError, match="denied"):
        scene.run()
    assert scene.stage("z", "AdmissionPolicy", "other") == "active"
    assert scene.called("namespaced-other-z")


@pytest.mark.parametrize("server", ["green", "default"])
def test_a_policy_of_a_namespace_is_not_asked_about_what_keeps_it(scene, server):
    """Also where it came while nobody looked at what people write."""
    reports = {**RULE, "apiGroups": ["wgpolicyk8s.io"], "resources": ["*"]}
    own = {**RULE, "apiGroups": ["*"], "resources": ["admissionpolicies"], "operations": ["*"]}
    for name, rule in (("a", reports), ("b", own)):
        scene.add_policy(name, "AdmissionPolicy", "evil", policyServer=server, rules=[RULE, rule])
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.run()
    for name in ("a", "b"):
        assert scene.webhook(f"namespaced-evil-{name}") is None
        told = scene.condition("PolicyActive", name, "AdmissionPolicy", "evil")
        assert "a policy of one namespace cannot be about" in told["message"]


def test_large_settings_of_a_namespace_leave_room_for_others(scene):
    """A ConfigMap holds a mebibyte."""
    scene.add_server("green")
    large = {"text": "x" * 60_000}
    for number in range(20):
        scene.add_policy(
            f"p{number:02}", "AdmissionPolicy", "evil", policyServer="green", settings=large
        )
    scene.add_policy("z", "AdmissionPolicy", "other", policyServer="green")
    scene.add_policy("z", policyServer="green")
    scene.run()
    config = scene.client.read(CONFIG_MAP, "policy-server-green", PLACE)
    assert len(config["data"]["policies.yml"]) < 2**20
    scene.roll_out("green")
    scene.run()
    assert scene.stage("z") == scene.stage("z", "AdmissionPolicy", "other") == "active"
    assert scene.stage("p00", "AdmissionPolicy", "evil") == "active"
    told = scene.condition("PolicyActive", "p19", "AdmissionPolicy", "evil")
    assert "too large together" in told["message"]
    assert scene.webhook("namespaced-evil-p19") is None


def test_a_policy_is_not_active_where_its_server_was_not_told(scene):
    scene.add_server("green")
    scene.run()
    scene.roll_out("green")
    scene.client.refused.add(CONFIG_MAP.plural)
    scene.add_policy(policyServer="green")
    with pytest.raises(ApiError):
        scene.run()
    scene.roll_out("green")
    with pytest.raises(ApiError):
        scene.run()
    assert scene.stage() == "pending"
    assert scene.webhook() is None


def test_webhooks_that_are_refused_are_not_tried_all_the_time(scene):
    for number in range(10):
        scene.add_policy("x" * 240 + str(number), "AdmissionPolicy", "evil")
    scene.run(5)
    assert scene.client.tried == 10
    told = scene.condition("PolicyActive", "x" * 240 + "1", "AdmissionPolicy", "evil")
    assert (told["reason"], told["message"]) == ("WebhookRefused", "metadata.name: too long")
    # What has changed is tried at once.
    scene.add_policy("x" * 240 + "1", "AdmissionPolicy", "evil", failurePolicy="Ignore")
    scene.run()
    assert scene.client.tried == 11
