"""Statuses, native policies and events of policies, on a real API server."""

import asyncio
import contextlib
import functools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from control_plane.cluster import Cluster

from lictor.controllers.native_policies.objects import mutating_binding, mutating_policy
from lictor.controllers.native_policies.reconcile import build_native_loop
from lictor.controllers.status.policies import WebhookReadiness, build_status_loop, identify_policy
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.core.report.events import Event, EventAction, EventReason, ObjectReference
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.events import EventSink, build_event
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import (
    DEPLOYMENT,
    EVENT,
    NAMESPACE,
    VALIDATING_ADMISSION_BINDING,
    VALIDATING_ADMISSION_POLICY,
    Resource,
    find_resource,
)
from lictor.kubernetes.settings import Settings
from lictor.policies.store import PolicyStore

CEL_EXCEPTION = find_resource(registry().get("policies.kyverno.io", "PolicyException"))
CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))
MUTATING_POLICY = find_resource(registry().get("policies.kyverno.io", "MutatingPolicy"))
VALIDATING_POLICY = find_resource(registry().get("policies.kyverno.io", "ValidatingPolicy"))

FLAGS = Flags(
    enable_policy_exception=True,
    exception_namespace="*",
    generate_mutating_admission_policy=True,
    reports_service_account_name="system:serviceaccount:default:nobody",
)


@pytest.fixture(scope="module", autouse=True)
def definitions(cluster: Cluster) -> None:
    """The kinds of policies, as `lictor crds` writes them."""
    made = subprocess.run(
        [sys.executable, "-m", "lictor", "crds"], capture_output=True, text=True, check=True
    )
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)
    waiting = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    # It stumbles over one that has no conditions at all yet.
    while cluster.kubectl(*waiting, check=False).returncode:
        time.sleep(0.5)


def in_loop(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[Cluster], None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(cluster: Cluster) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(90):
                await test(cluster)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def connect(cluster: Cluster) -> AsyncIterator[Client]:
    client = Client(load_config(str(cluster.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def working(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


class Place:
    """What these two loops take from the context of all loops."""

    def __init__(self, client: Client, flags: Flags, store: PolicyStore) -> None:
        self.client = client
        self.flags = flags
        self.store = store
        self._caches: list[Cache] = []

    def watch(self, resource: Resource, *, labels: str = "") -> Cache:
        self._caches.append(Cache(self.client, resource, labels=labels))
        return self._caches[-1]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in (self.store, *self._caches):
                group.create_task(each.run())  # type: ignore[attr-defined]

    async def wait(self) -> None:
        for each in (self.store, *self._caches):
            await each.wait()  # type: ignore[attr-defined]


class Upkeep:
    """The two loops, with webhooks that someone else keeps."""

    def __init__(self, client: Client, flags: Flags = FLAGS) -> None:
        self.client = client
        self.store = PolicyStore(client, flags)
        self.context = Place(client, flags, self.store)
        self.webhooks = WebhookReadiness()
        self.events: list[Event] = []
        self.native_loop, self.native = build_native_loop(
            self.context, self.webhooks, self.events.append
        )
        self.status_loop = build_status_loop(
            self.context, self.webhooks, self.native, emit=lambda _: None
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Upkeep"]:
        async with working(self.context.run()):
            await asyncio.wait_for(self.context.wait(), 30)
            async with working(self.status_loop.run(), self.native_loop.run()):
                yield self

    def configure(self) -> None:
        """As if the webhook configurations held all policies of now."""
        self.webhooks.show({identify_policy(p): p.uid for p in self.store.policies}, {})

    async def see(self, resource: Resource, name: str, test: Callable[[JsonObject], bool]) -> None:
        """Wait until an object is as it should be."""
        found: JsonObject | None = None
        try:
            async with asyncio.timeout(20):
                while True:
                    self.configure()
                    found = await self.client.find(resource, name)
                    if found is not None and test(found):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{resource.kind} {name} stays {found}") from None

    async def miss(self, resource: Resource, name: str) -> None:
        """Wait until an object is gone."""
        async with asyncio.timeout(20):
            while await self.client.find(resource, name) is not None:
                self.configure()
                await asyncio.sleep(0.1)


def classic(name: str, **validate: object) -> JsonObject:
    rule = {
        "name": "check",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"message": "no", **validate},
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"background": False, "rules": [rule]},
    }


def validating(name: str, *, native: bool = False, **spec: object) -> JsonObject:
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    return {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "autogen": {"validatingAdmissionPolicy": {"enabled": native}},
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "has(object.metadata.labels)", "message": "no"}],
            **spec,
        },
    }


def deployment(name: str) -> JsonObject:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


def is_ready(policy: JsonObject) -> bool:
    conditions = (policy.get("status") or {}).get("conditions") or [{}]
    return conditions[0].get("status") == "True"


def is_settled(policy: JsonObject) -> bool:
    native = (policy.get("status") or {}).get("validatingadmissionpolicy") or {}
    return is_ready(policy) and "non CEL rules" in native["message"]


def is_generated(policy: JsonObject) -> bool:
    return (policy.get("status") or {}).get("generated") is True


# --- status


@in_loop
async def test_status_of_a_classic_policy(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        await client.create(CLUSTER_POLICY, classic("st-ready", pattern={"spec": {"x": "?*"}}))
        await upkeep.see(CLUSTER_POLICY, "st-ready", is_ready)
        status = (await client.get(CLUSTER_POLICY, "st-ready"))["status"]
        assert status["rulecount"] == {"validate": 1, "generate": 0, "mutate": 0, "verifyimages": 0}
        names = [rule["name"] for rule in status["autogen"]["rules"]]
        assert names == ["autogen-check", "autogen-cronjob-check"]
        assert status["conditions"][0]["reason"] == "Succeeded"
        await client.delete(CLUSTER_POLICY, "st-ready")


@in_loop
async def test_status_is_written_once(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        await client.create(CLUSTER_POLICY, classic("st-once", pattern={"spec": {"x": "?*"}}))
        await upkeep.see(CLUSTER_POLICY, "st-once", is_settled)
        before = await client.get(CLUSTER_POLICY, "st-once")
        for _ in range(5):
            upkeep.status_loop.wake()
            await asyncio.sleep(0.2)
        assert await client.get(CLUSTER_POLICY, "st-once") == before
        await client.delete(CLUSTER_POLICY, "st-once")


@in_loop
async def test_status_tells_what_does_not_compile(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        deny = {"conditions": {"all": [{"key": "{{ nope( }}", "operator": "Equals", "value": 1}]}}
        await client.create(CLUSTER_POLICY, classic("st-broken", deny=deny))

        def is_told(policy: JsonObject) -> bool:
            [ready] = (policy.get("status") or {}).get("conditions") or [{}]
            return ready.get("status") == "False" and "spec.rules[0]" in ready.get("message", "")

        await upkeep.see(CLUSTER_POLICY, "st-broken", is_told)
        await client.delete(CLUSTER_POLICY, "st-broken")


@in_loop
async def test_status_of_a_policy_in_cel(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        await client.create(VALIDATING_POLICY, validating("st-cel"))

        def lacks(policy: JsonObject) -> bool:
            status = (policy.get("status") or {}).get("conditionStatus") or {"conditions": ()}
            return [each["status"] for each in status["conditions"]] == ["True", "False"]

        await upkeep.see(VALIDATING_POLICY, "st-cel", lacks)
        status = (await client.get(VALIDATING_POLICY, "st-cel"))["status"]
        assert status["conditionStatus"]["ready"] is False
        [webhook, permissions] = status["conditionStatus"]["conditions"]
        assert (webhook["type"], webhook["message"]) == (
            "WebhookConfigured",
            "Webhook configured.",
        )
        assert permissions["message"] == (
            "Policy is not ready for reporting, missing permissions: get apps/v1, "
            "Resource=deployments: ; list apps/v1, Resource=deployments: ; watch apps/v1, "
            "Resource=deployments: ."
        )
        assert status["generated"] is False
        await client.delete(VALIDATING_POLICY, "st-cel")


# --- native policies


@in_loop
async def test_native_policy_comes_heals_and_goes(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        await client.create(VALIDATING_POLICY, validating("nat", native=True))
        await upkeep.see(VALIDATING_POLICY, "nat", is_generated)
        made = await client.get(VALIDATING_ADMISSION_POLICY, "vpol-nat")
        assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "kyverno"}
        assert made["metadata"]["ownerReferences"][0]["name"] == "nat"
        assert [e.related.name for e in upkeep.events] == ["vpol-nat", "vpol-nat-binding"]

        # Someone edits one and deletes the other.
        wrong = {**made, "spec": {**made["spec"], "failurePolicy": "Ignore"}}
        await client.replace(VALIDATING_ADMISSION_POLICY, wrong)
        await client.delete(VALIDATING_ADMISSION_BINDING, "vpol-nat-binding")
        await upkeep.see(VALIDATING_ADMISSION_BINDING, "vpol-nat-binding", lambda _: True)
        await upkeep.see(
            VALIDATING_ADMISSION_POLICY,
            "vpol-nat",
            lambda p: p["spec"]["failurePolicy"] == "Fail",
        )

        # The policy does not want it any more: the webhook comes back first.
        body = await client.get(VALIDATING_POLICY, "nat")
        body["spec"]["autogen"]["validatingAdmissionPolicy"]["enabled"] = False
        await client.replace(VALIDATING_POLICY, body)
        await upkeep.miss(VALIDATING_ADMISSION_POLICY, "vpol-nat")
        await upkeep.miss(VALIDATING_ADMISSION_BINDING, "vpol-nat-binding")
        left = await client.get(VALIDATING_POLICY, "nat")
        assert left["status"]["generated"] is False
        assert "not enabled" in left["status"]["conditionStatus"]["message"]
        await client.delete(VALIDATING_POLICY, "nat")


@in_loop
async def test_native_policy_waits_for_the_webhook_before_it_goes(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        await client.create(VALIDATING_POLICY, validating("nat-gap", native=True))
        await upkeep.see(VALIDATING_POLICY, "nat-gap", is_generated)
        upkeep.webhooks.show({}, {})
        body = await client.get(VALIDATING_POLICY, "nat-gap")
        body["spec"]["autogen"]["validatingAdmissionPolicy"]["enabled"] = False
        await client.replace(VALIDATING_POLICY, body)
        await asyncio.sleep(2)
        assert await client.find(VALIDATING_ADMISSION_POLICY, "vpol-nat-gap") is not None
        await upkeep.miss(VALIDATING_ADMISSION_POLICY, "vpol-nat-gap")
        await client.delete(VALIDATING_POLICY, "nat-gap")


@in_loop
async def test_native_policy_judges_and_heeds_exceptions(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        policy = validating("nat-judge", native=True)
        await client.create(VALIDATING_POLICY, policy)
        await upkeep.see(VALIDATING_POLICY, "nat-judge", is_generated)
        exception = {
            "apiVersion": "policies.kyverno.io/v1beta1",
            "kind": "PolicyException",
            "metadata": {"name": "nat-judge", "namespace": "default"},
            "spec": {
                "policyRefs": [{"name": "nat-judge", "kind": "ValidatingPolicy"}],
                "matchConditions": [
                    {"name": "excepted", "expression": "object.metadata.name == 'free'"}
                ],
            },
        }
        await client.create(CEL_EXCEPTION, exception)
        await upkeep.see(
            VALIDATING_ADMISSION_POLICY,
            "vpol-nat-judge",
            lambda p: bool(p["spec"].get("matchConditions")),
        )
        await asyncio.sleep(2)
        await client.create(DEPLOYMENT, deployment("free"), "default")
        with pytest.raises(ApiError, match="vpol-nat-judge"):
            await client.create(DEPLOYMENT, deployment("bound"), "default")
        await client.delete(DEPLOYMENT, "free", "default")
        await client.delete(CEL_EXCEPTION, "nat-judge", "default")
        await client.delete(VALIDATING_POLICY, "nat-judge")


@in_loop
async def test_native_policy_from_a_cluster_policy(cluster: Cluster) -> None:
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        cel = {
            "generate": True,
            "expressions": [{"expression": "object.metadata.name != 'evil'"}],
        }
        body = classic("nat-classic", cel=cel, failureAction="Enforce")
        resources = {"kinds": ["ConfigMap"], "operations": ["CREATE"]}
        body["spec"]["rules"][0]["match"] = {"any": [{"resources": resources}]}
        await client.create(CLUSTER_POLICY, body)

        def is_native(policy: JsonObject) -> bool:
            made = (policy.get("status") or {}).get("validatingadmissionpolicy") or {}
            return made == {"generated": True, "message": ""}

        await upkeep.see(CLUSTER_POLICY, "nat-classic", is_native)
        await asyncio.sleep(1)
        done = cluster.kubectl("create", "configmap", "evil", check=False)
        assert "cpol-nat-classic" in done.stderr
        await client.delete(CLUSTER_POLICY, "nat-classic")
        await upkeep.miss(VALIDATING_ADMISSION_POLICY, "cpol-nat-classic")


@in_loop
async def test_native_policy_from_a_mutating_policy(cluster: Cluster) -> None:
    expression = 'Object{metadata: Object.metadata{labels: Object.metadata.labels{a: "b"}}}'
    async with connect(cluster) as client, Upkeep(client).running() as upkeep:
        body = validating("nat-change")
        body["kind"] = "MutatingPolicy"
        del body["spec"]["validations"]
        body["spec"]["autogen"] = {"mutatingAdmissionPolicy": {"enabled": True}}
        body["spec"]["mutations"] = [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
        ]
        await client.create(MUTATING_POLICY, body)
        await upkeep.see(MUTATING_POLICY, "nat-change", is_generated)
        made = await client.get(mutating_policy("v1beta1"), "mpol-nat-change")
        assert made["spec"]["reinvocationPolicy"] == "Never"
        await client.get(mutating_binding("v1beta1"), "mpol-nat-change-binding")
        await client.delete(MUTATING_POLICY, "nat-change")
        await upkeep.miss(mutating_policy("v1beta1"), "mpol-nat-change")


# --- events


def violation(number: int, namespace: str = "") -> Event:
    about = ObjectReference("kyverno.io/v1", "ClusterPolicy", f"ev-{number}", namespace)
    related = ObjectReference("v1", "Pod", "p", "default")
    return Event(EventReason.VIOLATION, EventAction.BLOCKED, "x" * 2000, about, related)


async def list_events(client: Client, name: str, namespace: str = "default") -> list[JsonObject]:
    found = await client.list(EVENT, namespace, fields=f"regarding.name={name}")
    return [event for event in found if event["regarding"]["name"] == name]


@in_loop
async def test_event_reaches_the_cluster(cluster: Cluster) -> None:
    async with connect(cluster) as client:
        sink = EventSink(client, Flags(), instance="here")
        async with working(sink.run()):
            sink.emit(violation(1))
            await sink.drain(10)
        [event] = await list_events(client, "ev-1")
        assert event["reason"] == "PolicyViolation"
        assert event["action"] == "Resource Blocked"
        assert event["type"] == "Warning"
        assert event["reportingController"] == "kyverno-admission"
        assert event["reportingInstance"] == "kyverno-admission-here"
        assert event["related"]["name"] == "p"
        assert len(event["note"]) == 1024
        assert event["note"].endswith("...")


@in_loop
async def test_equal_events_are_counted(cluster: Cluster) -> None:
    async with connect(cluster) as client:
        sink = EventSink(client, Flags(), count_every=0.2)
        async with working(sink.run()):
            for _ in range(5):
                sink.emit(violation(2))
            await sink.drain(10)
            async with asyncio.timeout(10):
                while "series" not in (await list_events(client, "ev-2"))[0]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        [event] = await list_events(client, "ev-2")
        assert event["series"]["count"] == 5


@in_loop
async def test_events_about_a_namespace_that_goes_are_given_up(cluster: Cluster) -> None:
    """The API server says why by a cause; nobody tries again, and none counts as lost."""
    async with connect(cluster) as client:
        body = {"metadata": {"name": "going", "finalizers": ["lictor.test/hold"]}}
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", **body})
        await client.delete(NAMESPACE, "going")
        sink = EventSink(client, Flags())
        event = violation(3, "going")
        with pytest.raises(ApiError) as refused:
            await client.create(EVENT, build_event(event, "e", "i"), "going")
        assert "NamespaceTerminating" in refused.value.causes
        async with working(sink.run()):
            sink.emit(event)
            await sink.drain(10)
        assert sink.dropped == 0
        await client.patch(NAMESPACE, "going", {"metadata": {"finalizers": None}})


@in_loop
async def test_events_beyond_the_queue_are_dropped(cluster: Cluster) -> None:
    async with connect(cluster) as client:
        sink = EventSink(client, Flags(max_queued_events=3))
        for number in range(10, 20):
            sink.emit(violation(number))
        assert sink.dropped == 7
        async with working(sink.run()):
            await sink.drain(10)
        assert len(await list_events(client, "ev-12")) == 1
        assert not await list_events(client, "ev-13")


@in_loop
async def test_events_that_nobody_wants(cluster: Cluster) -> None:
    success = Event(
        EventReason.APPLIED,
        EventAction.PASSED,
        "pass",
        ObjectReference("v1", "Pod", "ev-ok", "default"),
    )
    settings = Settings()
    async with connect(cluster) as client:
        sink = EventSink(client, Flags(omit_events="PolicyViolation"), lambda: settings)
        async with working(sink.run()):
            sink.emit(violation(30), success)
            settings = Settings(
                generate_success_events=True,
                success_event_actions=frozenset(["Resource Mutated"]),
            )
            sink.emit(success)
            await sink.drain(5)
            assert not await list_events(client, "ev-30")
            assert not await list_events(client, "ev-ok")
            settings = Settings(generate_success_events=True)
            sink.emit(success)
            await sink.drain(5)
        assert len(await list_events(client, "ev-ok")) == 1


@in_loop
async def test_event_of_a_namespace_that_is_gone(cluster: Cluster) -> None:
    async with connect(cluster) as client:
        with pytest.raises(NotFoundError):
            await client.get(NAMESPACE, "ev-nowhere")
        sink = EventSink(client, Flags())
        async with working(sink.run()):
            sink.emit(violation(40, "ev-nowhere"))
            await sink.drain(10)
        assert sink.dropped == 0
