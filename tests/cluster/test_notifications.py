"""Notifications in a cluster: Secrets, what was told, and replicas of which one tells it."""

import asyncio
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

import pytest
from control_plane.cluster import Cluster
from control_plane.manifests import apply_objects
from control_plane.process import Process

from lictor.addons.web.notifications.memory import MOST_REMEMBERED, ConfigMapStore
from lictor.addons.web.notifications.notifier import Notifier, build_notifier, run_notifier
from lictor.addons.web.notifications.secrets import SecretReader
from lictor.addons.web.notifications.settings import (
    NotificationFilter,
    NotificationSettings,
    NotificationTarget,
    SecretKeyReference,
    SecretSource,
    WebhookTarget,
)
from lictor.addons.web.sources.cluster_reports import ClusterReports
from lictor.core.errors import ConflictError, UndeliveredError
from lictor.core.raw import Json, JsonObject
from lictor.install.crds import build_crds
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CONFIG_MAP, POLICY_REPORT

sys.path.append(str(Path(__file__).parents[1] / "unit" / "addons" / "web"))

from notification_server import Got, Reply, TargetServer, run_target

# What docs/guides/web-ui.md says that the page's service account needs, and for reports.
RULES = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["hook"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
]
READ = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}]
PATIENCE = 90.0


@dataclass
class Place:
    """A namespace in which notifications run, with the rights that they need."""

    cluster: Cluster
    names: Names
    kubeconfig: Path

    @property
    def namespace(self) -> str:
        return self.names.namespace

    def write_secret(self, url: str) -> None:
        data = {"url": b64encode(url.encode()).decode()}
        apply_objects(self.cluster, [_object("v1", "Secret", "hook", self.namespace, data=data)])

    def write_report(self, name: str, *rules: str) -> None:
        results = [
            {"policy": "p", "rule": rule, "result": "fail", "source": "kyverno", "message": "no"}
            for rule in rules
        ]
        report = _object(
            POLICY_REPORT.api_version,
            POLICY_REPORT.kind,
            name,
            self.namespace,
            scope={"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": self.namespace},
            results=results,
        )
        apply_objects(self.cluster, [report])

    def build_settings(self) -> NotificationSettings:
        source = SecretSource(SecretKeyReference("hook", "url"))
        target = NotificationTarget(
            "hook",
            NotificationFilter(namespaces=(self.namespace,)),
            webhook=WebhookTarget(url_from=source),
        )
        return NotificationSettings((target,))

    @asynccontextmanager
    async def run_replica(self):
        """One process of the page, as far as notifications go."""
        client = Client(load_config(str(self.kubeconfig)))
        state = ClusterReports({"here": client})
        store = ConfigMapStore(client, self.namespace, "lictor-web")
        notifier = build_notifier(
            state, self.build_settings(), store=store, client=client, names=self.names
        )
        tasks = [
            asyncio.create_task(state.run()),
            asyncio.create_task(run_notifier(notifier, client, self.names)),
        ]
        try:
            yield notifier
        finally:
            for task in reversed(tasks):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await client.close()


def _object(version: str, kind: str, name: str, namespace: str = "", **parts: Json) -> JsonObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Place]:
    name = f"notify-{uuid4().hex[:8]}"
    rbac = "rbac.authorization.k8s.io"
    account = [{"kind": "ServiceAccount", "name": "notifier", "namespace": name}]
    apply_objects(cluster, [_object("v1", "Namespace", name), *build_crds(("wgpolicyk8s.io",))])
    roles = [("Role", "RoleBinding", name, RULES), ("ClusterRole", "ClusterRoleBinding", "", READ)]
    objects = [_object("v1", "ServiceAccount", "notifier", name)]
    for kind, binding, namespace, rules in roles:
        objects.append(_object(f"{rbac}/v1", kind, name, namespace, rules=rules))
        reference = {"apiGroup": rbac, "kind": kind, "name": name}
        objects.append(
            _object(f"{rbac}/v1", binding, name, namespace, roleRef=reference, subjects=account)
        )
    apply_objects(cluster, objects)
    yield Place(cluster, Names("lictor", name), cluster.kubeconfig_for(name, "notifier"))
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")
    cluster.kubectl("delete", "policyreports", "--all", "-n", name)


async def wait_for(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def is_ready(notifier: Notifier) -> bool:
    return notifier._notified is not None and bool(notifier._notified.covered)


def told(server: TargetServer) -> list[tuple[str, str]]:
    return [(got.json["data"]["resource"]["name"], got.json["data"]["rule"]) for got in server.got]


def test_replicas_tell_each_violation_once(place: Place) -> None:
    place.write_report("old", "a")

    async def run(server: TargetServer) -> None:
        async with AsyncExitStack() as first_stack, AsyncExitStack() as second_stack:
            first = await first_stack.enter_async_context(place.run_replica())
            await wait_for(lambda: is_ready(first))
            second = await second_stack.enter_async_context(place.run_replica())
            await asyncio.to_thread(place.write_report, "web", "a")
            await wait_for(lambda: len(server.got) == 1)
            # A scan says the same again, and one thing more.
            await asyncio.to_thread(place.write_report, "web", "b", "a")
            await wait_for(lambda: len(server.got) == 2)
            assert not second.is_leading
            await first_stack.aclose()
            await asyncio.to_thread(place.write_report, "api", "a")
            await wait_for(lambda: len(server.got) == 3)
            assert second.is_leading
        await asyncio.to_thread(place.write_report, "job", "a")
        # Everybody was away when this came.
        async with place.run_replica():
            await wait_for(lambda: len(server.got) == 4)
            await asyncio.sleep(0.5)

    with run_target() as server:
        place.write_secret(f"{server.url}/services/key-1234")
        asyncio.run(run(server))
        assert told(server) == [("web", "a"), ("web", "b"), ("api", "a"), ("job", "a")]
        assert server.got[0].json["source"] == "/lictor/clusters/here"
    words = ("get", "configmaps,leases", "-n", place.namespace, "-o", "yaml")
    kept = place.cluster.kubectl(*words).stdout
    assert "lictor-web-notifications-recent" in kept
    assert "key-1234" not in kept
    assert b64encode(b"key-1234").decode()[:8] not in kept


def test_a_replica_that_is_killed_is_followed_by_another(place: Place) -> None:
    """The program itself, as its Pods run it: after a kill nothing is told twice, or lost."""
    cluster = place.cluster
    # The end of the network on this side.
    near = str(ip_address(cluster.address) - 1) if cluster.routes_services else "127.0.0.1"
    settings = cluster.folder / f"{place.namespace}.yaml"
    settings.write_text(
        "targets:\n- name: hook\n"
        f"  filter: {{namespaces: [{place.namespace}]}}\n"
        "  webhook: {urlFrom: {secretKeyRef: {name: hook, key: url}}}\n"
    )

    def start(name: str, port: int) -> Process:
        return cluster.start_lictor(
            *("web", "--login", f"--notifications={settings}", f"--port={cluster.port(port)}"),
            *(f"--kubeconfig={place.kubeconfig}", f"--namespace={place.namespace}"),
            environment={"POD_NAME": name},
        )

    def wait_until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def is_written() -> bool:
        words = ("get", "configmap", "lictor-web-notifications-recent", "-n", place.namespace)
        return "lictor" in cluster.kubectl(*words, "--ignore-not-found").stdout

    place.write_report("old", "a")
    with run_target(address=near) as server:
        place.write_secret(server.url)
        first = start("first", 8301)
        wait_until(is_written)
        # Once more, now that what is there was read.
        time.sleep(2.5)
        second = start("second", 8302)
        place.write_report("web", "a")
        wait_until(lambda: len(server.got) == 1)
        time.sleep(2.5)
        first.kill()
        place.write_report("api", "a")
        wait_until(lambda: len(server.got) == 2)
        time.sleep(0.5)
        assert told(server) == [("web", "a"), ("api", "a")]
        second.stop()


def test_a_secret_that_is_replaced_counts_without_a_restart(place: Place) -> None:
    def answer(got: Got) -> Reply:
        return Reply(200 if got.target == "/new" else 403)

    async def run(server: TargetServer) -> None:
        async with place.run_replica() as notifier:
            await wait_for(lambda: is_ready(notifier))
            await asyncio.to_thread(place.write_report, "web", "a")
            await wait_for(lambda: bool(server.got))
            await asyncio.to_thread(place.write_secret, f"{server.url}/new")
            await wait_for(lambda: any(got.target == "/new" for got in server.got))

    with run_target(answer) as server:
        place.write_secret(f"{server.url}/old")
        asyncio.run(run(server))
        assert [got.target for got in server.got].count("/new") == 1


def test_what_can_be_wrong_with_secrets(place: Place) -> None:
    place.write_secret("https://hooks.example.com/key-1234")
    admin = str(place.cluster.kubeconfig)

    async def read(kubeconfig: str, name: str, key: str) -> str:
        client = Client(load_config(kubeconfig))
        try:
            reader = SecretReader(client, place.namespace)
            return await reader.read(SecretSource(SecretKeyReference(name, key)))
        finally:
            await client.close()

    kubeconfig = str(place.kubeconfig)
    assert asyncio.run(read(kubeconfig, "hook", "url")).endswith("/key-1234")
    with pytest.raises(UndeliveredError, match=r"Secret notify-.*/hook has no key other"):
        asyncio.run(read(kubeconfig, "hook", "other"))
    with pytest.raises(UndeliveredError, match=r"there is no Secret notify-.*/nothing"):
        asyncio.run(read(admin, "nothing", "url"))
    with pytest.raises(UndeliveredError, match=r"cannot be read: .*forbidden"):
        asyncio.run(read(kubeconfig, "another", "url"))


def test_two_who_write_at_once(place: Place) -> None:
    async def run() -> None:
        client = Client(load_config(str(place.kubeconfig)))
        first, second = (ConfigMapStore(client, place.namespace, "lictor-web") for _ in range(2))
        try:
            assert await first.read("recent") is None
            assert await second.read("recent") is None
            await first.write("recent", b"1")
            with pytest.raises(ConflictError):
                await second.write("recent", b"2")
            assert await second.read("recent") == b"1"
            await second.write("recent", b"3")
            with pytest.raises(ConflictError):
                await first.write("recent", b"4")
            # As large as it can become.
            await second.read("snapshot")
            await second.write("snapshot", b"x" * 5 * MOST_REMEMBERED)
            name = "lictor-web-notifications-snapshot"
            assert await client.find(CONFIG_MAP, name, place.namespace)
        finally:
            await client.close()

    asyncio.run(run())
