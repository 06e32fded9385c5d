"""Cleanup and deleting policies and the time-to-live label, on a real API server."""

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from lictor.cli.cleanup import cleanup
from lictor.controllers.cleanup.schedule import build_policies_loop
from lictor.controllers.context import build_context
from lictor.controllers.ttl import build_ttl_loops
from lictor.core.errors import NotFoundError, UsageError
from lictor.core.families.registry import registry
from lictor.install.crds import build_crds
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client, MetadataClient
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CONFIG_MAP, NAMESPACE, SECRET, find_resource

CLEANUP_POLICY = find_resource(registry().get("kyverno.io", "CleanupPolicy"))
CLUSTER_CLEANUP_POLICY = find_resource(registry().get("kyverno.io", "ClusterCleanupPolicy"))
DELETING_POLICY = find_resource(registry().get("policies.kyverno.io", "DeletingPolicy"))
NAMESPACED_DELETING_POLICY = find_resource(
    registry().get("policies.kyverno.io", "NamespacedDeletingPolicy")
)

INSTALLATION = "cleanup-tests"
ACCOUNT = "lictor-cleanup-controller"
READ = ["get", "list", "watch"]
_numbers = itertools.count()
POLICIES = ["cleanuppolicies", "clustercleanuppolicies"]
CEL_POLICIES = ["deletingpolicies", "namespaceddeletingpolicies"]
RULES = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": READ},
    {"apiGroups": ["kyverno.io"], "resources": ["*"], "verbs": READ},
    {"apiGroups": ["policies.kyverno.io"], "resources": ["*"], "verbs": READ},
    {"apiGroups": ["policies.kubewarden.io"], "resources": ["*"], "verbs": READ},
    {
        "apiGroups": ["kyverno.io", "policies.kyverno.io"],
        "resources": [f"{name}/status" for name in (*POLICIES, *CEL_POLICIES)],
        "verbs": ["patch"],
    },
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": READ},
    # The settings, and what most tests delete. Secrets are not ours to touch.
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*READ, "delete"]},
]


class Clock:
    """A clock that can be put forward, so that nobody waits for the next minute."""

    def __init__(self):
        self.ahead = timedelta()

    def __call__(self):
        return datetime.now(UTC) + self.ahead


class Controller:
    """The loops of one controller in this process, and what they said."""

    def __init__(self, loops, clock, place):
        self.loops = loops
        self.clock = clock
        self.place = place
        self.events = []

    def put_forward(self, **length):
        self.clock.ahead += timedelta(**length)
        for loop in self.loops:
            loop.wake()


@pytest.fixture(scope="module")
def installed(cluster):
    crds = {"apiVersion": "v1", "kind": "List", "items": list(build_crds(()))}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(crds))
    cluster.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s",
        *(f"crd/{name}.kyverno.io" for name in POLICIES),
        *(f"crd/{name}.policies.kyverno.io" for name in CEL_POLICIES),
    )  # fmt: skip
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": INSTALLATION},
        "rules": RULES,
    }
    cluster.kubectl("create", "namespace", INSTALLATION)
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", INSTALLATION)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    cluster.kubectl(
        "create", "clusterrolebinding", INSTALLATION, f"--clusterrole={INSTALLATION}",
        f"--serviceaccount={INSTALLATION}:{ACCOUNT}",
    )  # fmt: skip
    yield cluster
    cluster.kubectl("delete", "namespace", INSTALLATION, "--wait=false")
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", INSTALLATION)


@asynccontextmanager
async def running(cluster, *, clock=None, **flags):
    """One cleanup controller with the rights of its service account."""
    clock = clock or Clock()
    config = load_config(str(cluster.kubeconfig_for(INSTALLATION, ACCOUNT)))
    client = Client(config)
    options = Flags(ttl_reconciliation_interval="2s", **flags)
    names = Names("lictor", INSTALLATION)
    place = build_context(client, options, names, "tests")
    controller = Controller([], clock, place)
    policies = build_policies_loop(place, controller.events.append, clock)
    controller.loops = [policies, *build_ttl_loops(place)]
    tasks = [asyncio.create_task(place.run())]
    try:
        await asyncio.wait_for(place.wait(), 20)
        tasks += [asyncio.create_task(loop.run()) for loop in controller.loops]
        yield controller
    finally:
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


@asynccontextmanager
async def admin(cluster, name):
    """A client with all rights and a namespace for one test."""
    client = Client(load_config(str(cluster.kubeconfig)))
    name = f"{name}-{next(_numbers)}"
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    try:
        yield client, name
    finally:
        for kind in (CLUSTER_CLEANUP_POLICY, DELETING_POLICY):
            for item in await client.list(kind):
                await client.delete(kind, item["metadata"]["name"])
        await client.delete(NAMESPACE, name)
        await client.close()


async def until(ask, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = await ask()
        if answer:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {ask}")


async def put(client, namespace, name, kind=CONFIG_MAP, **metadata):
    return await client.create(
        kind, {"metadata": {"name": name, "namespace": namespace, **metadata}}
    )


async def names_in(client, namespace, kind=CONFIG_MAP):
    found = [item["metadata"]["name"] for item in await client.list(kind, namespace)]
    return sorted(name for name in found if name != "kube-root-ca.crt")


def classic(namespace="", *, kinds=("ConfigMap",), conditions=None, annotations=None, **spec):
    name = "sweep"
    kind = CLEANUP_POLICY if namespace else CLUSTER_CLEANUP_POLICY
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedule": "*/1 * * * *",
            "match": {"any": [{"resources": {"kinds": list(kinds), "names": ["old-*"]}}]},
            **({"conditions": conditions} if conditions else {}),
            **spec,
        },
    }
    if namespace:
        body["metadata"]["namespace"] = namespace
    return kind, body


def deleting(namespace="", *, condition='object.metadata.name.startsWith("old-")', **constraints):
    kind = NAMESPACED_DELETING_POLICY if namespace else DELETING_POLICY
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "sweep"},
        "spec": {
            "schedule": "*/1 * * * *",
            "matchConstraints": {"resourceRules": [rule], **constraints},
            "conditions": [{"name": "old", "expression": condition}],
        },
    }
    if namespace:
        body["metadata"]["namespace"] = namespace
    return kind, body


def find_condition(policy, name):
    status = policy.get("status") or {}
    holder = status.get("conditionStatus") or status
    found = [each for each in holder.get("conditions") or () if each["type"] == name]
    return found[0] if found else None


async def wait_for_condition(client, kind, namespace, name, status):
    async def ask():
        policy = await client.get(kind, "sweep", namespace)
        condition = find_condition(policy, name)
        return policy if condition and condition["status"] == status else None

    return await until(ask)


async def leave_end_of_minute():
    """The policies are due at every full minute, and must not be before the test says so."""
    second = time.time() % 60
    if second > 40:
        await asyncio.sleep(60.5 - second)


async def wait_for_run(client, kind, namespace, after=""):
    async def ask():
        policy = await client.get(kind, "sweep", namespace)
        executed = (policy.get("status") or {}).get("lastExecutionTime") or ""
        return policy if executed > after else None

    return await until(ask)


@pytest.mark.parametrize("build", [classic, deleting], ids=["CleanupPolicy", "DeletingPolicy"])
def test_policy_deletes_when_due_and_not_before(installed, build):
    async def scenario():
        async with admin(installed, "cl-due") as (client, space), running(installed) as controller:
            await leave_end_of_minute()
            for name in ("old-1", "old-2", "new"):
                await put(client, space, name)
            await put(client, "default", "old-elsewhere")
            kind, body = build(space)
            await client.create(kind, body)
            await wait_for_condition(client, kind, space, "Ready", "True")
            await asyncio.sleep(0.5)
            assert await names_in(client, space) == ["new", "old-1", "old-2"]
            controller.put_forward(seconds=61)
            policy = await wait_for_run(client, kind, space)
            assert await names_in(client, space) == ["new"]
            assert await client.find(CONFIG_MAP, "old-elsewhere", "default")
            said = find_condition(policy, "Executing")
            assert (said["status"], said["reason"]) == ("False", "Succeeded")
            assert "deleted 2 objects" in said["message"]
            assert find_condition(policy, "Ready")["status"] == "True"
            told = {event.message for event in controller.events}
            assert len(told) == 2
            assert all(text.startswith("successfully ") for text in told)
            # The next run is one of its own.
            await put(client, space, "old-3")
            controller.put_forward(seconds=61)
            await wait_for_run(client, kind, space, policy["status"]["lastExecutionTime"])
            assert await names_in(client, space) == ["new"]
            await client.delete(CONFIG_MAP, "old-elsewhere", "default")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "build", [classic, deleting], ids=["ClusterCleanupPolicy", "DeletingPolicy"]
)
def test_cluster_policy_reads_many_pages_and_namespace_labels(installed, build):
    async def scenario():
        async with admin(installed, "cl-many") as (client, space), running(installed) as controller:
            await client.patch(NAMESPACE, space, {"metadata": {"labels": {"sweep": "yes"}}})
            await put(client, "default", "old-here")
            for start in range(0, 130, 13):
                await asyncio.gather(
                    *(put(client, space, f"old-{n:03d}") for n in range(start, start + 13))
                )
            selector = {"matchLabels": {"sweep": "yes"}}
            if build is classic:
                kind, body = build()
                body["spec"]["match"]["any"][0]["resources"]["namespaceSelector"] = selector
            else:
                kind, body = build(namespaceSelector=selector)
            await client.create(kind, body)
            await wait_for_condition(client, kind, "", "Ready", "True")
            controller.put_forward(seconds=61)
            policy = await wait_for_run(client, kind, "")
            assert await names_in(client, space) == []
            assert "deleted 130 objects" in find_condition(policy, "Executing")["message"]
            assert await client.find(CONFIG_MAP, "old-here", "default")
            await client.delete(CONFIG_MAP, "old-here", "default")

    asyncio.run(scenario())


def test_dry_run_deletes_nothing_and_says_what_would_go(installed):
    async def scenario():
        async with admin(installed, "cl-dry") as (client, space), running(installed) as controller:
            await put(client, space, "old-1")
            kind, body = classic(space, annotations={"lictor.io/dry-run": "true"})
            await client.create(kind, body)
            await wait_for_condition(client, kind, space, "Ready", "True")
            controller.put_forward(seconds=61)
            policy = await wait_for_run(client, kind, space)
            said = find_condition(policy, "Executing")
            assert said["reason"] == "DryRun"
            assert said["message"] == f"dry run: would delete 1 object: ConfigMap/{space}/old-1"
            assert await names_in(client, space) == ["old-1"]
            # The event follows the status.
            async with asyncio.timeout(20):
                while not controller.events:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert [str(event.reason) for event in controller.events] == ["PolicySkipped"]

    asyncio.run(scenario())


def test_command_line_says_what_would_go(installed, capsys, tmp_path):
    async def scenario():
        async with admin(installed, "cl-cli") as (client, space):
            for name in ("old-1", "old-2", "new"):
                await put(client, space, name)
            for kind, body in (classic(space), deleting(space)):
                await client.create(kind, body)
            doubtful = deleting(space, condition="object.data.none == 'x'")[1]
            (tmp_path / "doubtful.json").write_text(json.dumps(doubtful), encoding="utf-8")
            assert await ask(f"{space}/sweep") == 0
            said = capsys.readouterr().out
            assert said.count(f"  {space}/ConfigMap/old-1\n") == 2
            assert "new" not in said
            assert await ask("--format", "json") == 0
            policies = json.loads(capsys.readouterr().out)
            ours = [each for each in policies if each.get("namespace") == space]
            assert [each["kind"] for each in ours] == ["CleanupPolicy", "NamespacedDeletingPolicy"]
            assert all(len(each["resources"]) == 2 for each in ours)
            assert await ask("--file", str(tmp_path / "doubtful.json")) == 1
            assert "  not ConfigMap/" in capsys.readouterr().out
            with pytest.raises(UsageError, match="no cleanup or deleting policy 'nobody'"):
                await ask("nobody")
            assert await names_in(client, space) == ["new", "old-1", "old-2"]

    async def ask(*words):
        given = ["--dry-run", "--kubeconfig", str(installed.kubeconfig), *words]
        return await asyncio.to_thread(cleanup.main, given, standalone_mode=False)

    asyncio.run(scenario())


def test_missing_permission_shows_on_the_status_and_as_an_event(installed):
    async def scenario():
        async with admin(installed, "cl-rbac") as (client, space), running(installed) as controller:
            await put(client, space, "old-1", SECRET)
            await put(client, space, "old-1")
            kind, body = classic(space, kinds=("Secret", "ConfigMap"))
            await client.create(kind, body)
            policy = await wait_for_condition(client, kind, space, "Ready", "False")
            message = find_condition(policy, "Ready")["message"]
            assert "cleanup controller has no permission to delete kind Secret" in message
            assert "ConfigMap" not in message
            assert any("no permission to list kind Secret" in e.message for e in controller.events)
            # What may be done is done.
            controller.put_forward(seconds=61)
            policy = await wait_for_run(client, kind, space)
            assert find_condition(policy, "Executing")["reason"] == "Failed"
            assert await names_in(client, space) == []
            assert await names_in(client, space, SECRET) == ["old-1"]

    asyncio.run(scenario())


def test_policy_that_cannot_be_used_says_why(installed):
    async def scenario():
        async with admin(installed, "cl-bad") as (client, space), running(installed):
            kind, body = deleting(space, condition="object.metadata.name ==")
            await client.create(kind, body)
            policy = await wait_for_condition(client, kind, space, "Ready", "False")
            assert policy["status"]["conditionStatus"]["ready"] is False
            other, body = classic(space, kinds=("NoSuchKind",))
            await client.create(other, body)
            policy = await wait_for_condition(client, other, space, "Ready", "False")
            assert "NoSuchKind" in find_condition(policy, "Ready")["message"]

    asyncio.run(scenario())


def test_missed_hours_are_made_up_for_once_after_a_restart(installed):
    async def scenario():
        clock = Clock()
        async with admin(installed, "cl-restart") as (client, space):
            await put(client, space, "old-1")
            kind, body = classic(space)
            await client.create(kind, body)
            clock.ahead = timedelta(hours=2)
            async with running(installed, clock=clock):
                policy = await wait_for_run(client, kind, space)
                assert await names_in(client, space) == []
                await put(client, space, "old-2")
                await asyncio.sleep(1)
                again = await client.get(kind, "sweep", space)
                if clock().second > 5:
                    same = policy["status"]["lastExecutionTime"]
                    assert again["status"]["lastExecutionTime"] == same
                    assert await names_in(client, space) == ["old-2"]

    asyncio.run(scenario())


def test_run_that_a_dead_leader_began_is_begun_again(installed):
    async def scenario():
        async with admin(installed, "cl-dead") as (client, space):
            await put(client, space, "old-1")
            kind, body = classic(space)
            await client.create(kind, body)
            begun = {
                "type": "Executing",
                "status": "True",
                "reason": "Started",
                "message": "a run is under way",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            patch = {"status": {"conditions": [begun]}}
            await client.patch(kind, "sweep", patch, namespace=space, subresource="status")
            async with running(installed):
                await wait_for_run(client, kind, space)
                assert await names_in(client, space) == []

    asyncio.run(scenario())


def test_two_leaders_at_once_run_a_policy_once(installed):
    async def scenario():
        clock = Clock()
        async with (
            admin(installed, "cl-two") as (client, space),
            running(installed, clock=clock) as one,
            running(installed, clock=clock) as other,
        ):
            kind, body = classic(space)
            await client.create(kind, body)
            await wait_for_condition(client, kind, space, "Ready", "True")
            runs = 0
            last = ""
            for _ in range(3):
                await put(client, space, "old-1")
                one.clock.ahead += timedelta(seconds=61)
                for controller in (one, other):
                    for loop in controller.loops:
                        loop.wake()
                policy = await wait_for_run(client, kind, space, last)
                last = policy["status"]["lastExecutionTime"]
                runs += 1
                assert await names_in(client, space) == []
            told = [*one.events, *other.events]
            assert len([e for e in told if e.message.startswith("successfully")]) == runs
            assert not [e for e in told if e.message.startswith("failed")]

    asyncio.run(scenario())


def test_resource_filters_and_finalizers_are_respected(installed):
    async def scenario():
        async with (
            admin(installed, "cl-filter") as (client, space),
            running(installed) as controller,
        ):
            settings = {"resourceFilters": f"[ConfigMap,{space},old-kept]"}
            body = {"metadata": {"name": "lictor", "namespace": INSTALLATION}, "data": settings}
            await client.create(CONFIG_MAP, body)
            for name in ("old-kept", "old-1"):
                await put(client, space, name)
            await put(client, space, "old-held", finalizers=["tests.lictor.io/hold"])
            kind, body = classic(space)
            await client.create(kind, body)
            await wait_for_condition(client, kind, space, "Ready", "True")
            await until(lambda: _async(controller.place.settings.current.resource_filters))
            controller.put_forward(seconds=61)
            policy = await wait_for_run(client, kind, space)
            assert await names_in(client, space) == ["old-held", "old-kept"]
            assert "deleted 2 objects" in find_condition(policy, "Executing")["message"]
            # What is on its way out is not deleted again.
            controller.put_forward(seconds=61)
            last = policy["status"]["lastExecutionTime"]
            policy = await wait_for_run(client, kind, space, last)
            assert "deleted 0 objects" in find_condition(policy, "Executing")["message"]
            await client.patch(
                CONFIG_MAP, "old-held", {"metadata": {"finalizers": None}}, namespace=space
            )
            await client.delete(CONFIG_MAP, "lictor", INSTALLATION)

    asyncio.run(scenario())


async def _async(value):
    return value


def test_time_to_live(installed):
    async def scenario():
        async with admin(installed, "ttl-all") as (client, space), running(installed):
            label = "cleanup.kyverno.io/ttl"
            await put(client, space, "past", labels={label: "2023-07-19T120000Z"})
            await put(client, space, "later", labels={label: "1h"})
            await put(client, space, "nonsense", labels={label: "10ay"})
            await put(client, space, "forbidden", SECRET, labels={label: "1s"})
            await put(client, space, "plain")
            await until(lambda: _gone(client, space, "past"))
            started = time.monotonic()
            await put(client, space, "soon", labels={label: "4s"})
            await until(lambda: _gone(client, space, "soon"))
            assert 2.5 < time.monotonic() - started < 30
            # A label that comes later counts as well, and from the creation.
            await client.patch(
                CONFIG_MAP, "plain", {"metadata": {"labels": {label: "1s"}}}, namespace=space
            )
            await until(lambda: _gone(client, space, "plain"))
            assert await names_in(client, space) == ["later", "nonsense"]
            assert await names_in(client, space, SECRET) == ["forbidden"]
            # Twice the same name.
            await put(client, space, "soon", labels={label: "1s"})
            await until(lambda: _gone(client, space, "soon"))

    asyncio.run(scenario())


def test_watches_of_labelled_objects_carry_metadata_only(installed):
    async def scenario():
        async with admin(installed, "ttl-meta") as (client, space):
            await client.create(
                CONFIG_MAP,
                {"metadata": {"name": "a", "namespace": space}, "data": {"much": "text"}},
            )
            slim = MetadataClient(client.config)
            cache = Cache(slim, CONFIG_MAP, namespace=space)
            task = asyncio.create_task(cache.run())
            await cache.wait()
            await put(client, space, "b", annotations={"some": "note"})
            await until(lambda: _async(cache.get("b", space)))
            task.cancel()
            for name in ("a", "b"):
                found = cache.get(name, space)
                assert found["metadata"]["uid"]
                assert found["kind"] == "PartialObjectMetadata"
                assert "data" not in found
            await slim.close()

    asyncio.run(scenario())


async def _gone(client, namespace, name):
    try:
        await client.get(CONFIG_MAP, name, namespace)
    except NotFoundError:
        return True
    return False
