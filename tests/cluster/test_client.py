"""The client and the watch cache against a real API server, which also goes away and comes back."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from control_plane.cluster import Cluster
from control_plane.local import LocalCluster

from lictor.core.errors import ApiError, ConflictError, GoneError, NotFoundError, UnreachableError
from lictor.kubernetes.cache import Cache, Change
from lictor.kubernetes.client import Client, PatchType
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Resource

WIDGET = Resource("world.lictor.test", "v1", "widgets", "Widget")


def config_map(name: str, namespace: str, **data: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


@asynccontextmanager
async def connect(cluster: Cluster) -> AsyncIterator[Client]:
    client = Client(load_config(str(cluster.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def run_cache(cache: Cache) -> AsyncIterator[Cache]:
    task = asyncio.create_task(cache.run())
    try:
        await asyncio.wait_for(cache.wait(), 30)
        yield cache
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    async with asyncio.timeout(2 * seconds):
        while not condition():  # noqa: ASYNC110  (many things may make it true)
            await asyncio.sleep(0.02)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await test()

    asyncio.run(bounded())


async def make_namespace(client: Client, name: str) -> str:
    with contextlib.suppress(ConflictError):
        await client.create(NAMESPACE, {"metadata": {"name": name}})
    return name


def test_verbs(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-verbs")
            made = await client.create(CONFIG_MAP, config_map("a", here, x="1"))
            with pytest.raises(ConflictError) as conflict:
                await client.create(CONFIG_MAP, config_map("a", here))
            assert (conflict.value.status, conflict.value.reason) == (409, "AlreadyExists")
            changed = await client.patch(CONFIG_MAP, "a", {"data": {"y": "2"}}, namespace=here)
            assert changed["data"] == {"x": "1", "y": "2"}
            with pytest.raises(ConflictError) as conflict:
                await client.replace(CONFIG_MAP, made)
            assert conflict.value.reason == "Conflict"
            patch = [{"op": "remove", "path": "/data/x"}]
            await client.patch(CONFIG_MAP, "a", patch, namespace=here, kind=PatchType.JSON)
            found = await client.get(CONFIG_MAP, "a", here)
            assert found["data"] == {"y": "2"}
            assert await client.find(CONFIG_MAP, "absent", here) is None
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAP, "absent", here)
            with pytest.raises(ApiError) as invalid:
                await client.create(CONFIG_MAP, config_map("No Name", here))
            assert (invalid.value.status, invalid.value.reason) == (422, "Invalid")

    run(test)


def test_apply_owns_its_fields(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-apply")
            await client.apply(CONFIG_MAP, config_map("a", here, ours="1", gone="1"))
            await client.patch(CONFIG_MAP, "a", {"data": {"theirs": "1"}}, namespace=here)
            applied = await client.apply(CONFIG_MAP, config_map("a", here, ours="2"))
            assert applied["data"] == {"ours": "2", "theirs": "1"}
            other = Client(client.config, field_manager="other")
            with pytest.raises(ConflictError, match="conflict"):
                await other.apply(CONFIG_MAP, config_map("a", here, ours="3"), force=False)
            await other.apply(CONFIG_MAP, config_map("a", here, ours="3"))
            await other.close()

    run(test)


def test_delete_with_preconditions(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-delete")
            made = await client.create(CONFIG_MAP, config_map("a", here))
            with pytest.raises(ConflictError):
                await client.delete(CONFIG_MAP, "a", here, preconditions={"uid": "another"})
            uid = made["metadata"]["uid"]
            assert await client.delete(CONFIG_MAP, "a", here, preconditions={"uid": uid})
            assert not await client.delete(CONFIG_MAP, "a", here)

    run(test)


def test_pages(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-pages")
            for number in range(25):
                await client.create(CONFIG_MAP, config_map(f"page-{number:02}", here))
            pages = [
                [item["metadata"]["name"] for item in page["items"]]
                async for page in client.list_pages(
                    CONFIG_MAP, here, page=10, fields="metadata.name!=kube-root-ca.crt"
                )
            ]
            assert [len(page) for page in pages] == [10, 10, 5]
            assert list(chain.from_iterable(pages)) == [f"page-{number:02}" for number in range(25)]
            items = await client.list(CONFIG_MAP, here, fields="metadata.name=page-03")
            assert [(item["apiVersion"], item["kind"]) for item in items] == [("v1", "ConfigMap")]

    run(test)


def test_old_versions_are_gone(own_cluster: LocalCluster) -> None:
    """A cache that slept while the API server forgot old versions lists again."""

    async def test() -> None:
        async with connect(own_cluster) as client:
            here = await make_namespace(client, "world-gone")
            old = await client.create(CONFIG_MAP, config_map("a", here))
            since = old["metadata"]["resourceVersion"]
            for number in range(3):
                await client.create(CONFIG_MAP, config_map(f"b-{number}", here))
            # It remembers what it saw itself, and a new one saw nothing yet.
            await asyncio.to_thread(own_cluster.restart_api_server)
            watch = client.watch(CONFIG_MAP, since=since, namespace=here)
            with pytest.raises(GoneError):
                await asyncio.wait_for(anext(watch), 20)
            cache = Cache(client, CONFIG_MAP, namespace=here)
            cache._since = since
            async with run_cache_unsynced(cache):
                await until(lambda: cache.get("a", here) is not None)

    run(test)


@asynccontextmanager
async def run_cache_unsynced(cache: Cache) -> AsyncIterator[None]:
    task = asyncio.create_task(cache.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_cache_follows(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-cache")
            await client.create(CONFIG_MAP, config_map("first", here))
            changes: list[Change] = []
            cache = Cache(client, CONFIG_MAP, namespace=here, labels="!skip")
            cache.listen(changes.append)
            async with run_cache(cache):
                await until(lambda: cache.get("first", here) is not None)
                assert cache.get("first", here) is not None
                await client.create(CONFIG_MAP, config_map("second", here, x="1"))
                await until(lambda: cache.get("second", here) is not None)
                await client.patch(CONFIG_MAP, "second", {"data": {"x": "2"}}, namespace=here)
                await until(lambda: (cache.get("second", here) or {})["data"] == {"x": "2"})
                # What no longer fits the selector is gone for the watcher.
                labels = {"metadata": {"labels": {"skip": "1"}}}
                await client.patch(CONFIG_MAP, "second", labels, namespace=here)
                await until(lambda: cache.get("second", here) is None)
                await client.delete(CONFIG_MAP, "first", here)
                await until(lambda: cache.get("first", here) is None)
            told = [
                (change.type, change.object["metadata"]["name"])
                for change in changes
                if change.object["metadata"]["name"] in ("first", "second")
            ]
            assert told == [
                ("ADDED", "first"),
                ("ADDED", "second"),
                ("MODIFIED", "second"),
                ("DELETED", "second"),
                ("DELETED", "first"),
            ]
            item = cache.list(here)[0]
            assert "managedFields" not in item["metadata"]

    run(test)


def test_kind_that_comes_later(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-later")
            cache = Cache(client, WIDGET)
            async with run_cache(cache):
                assert cache.list() == []
                await client.create(CUSTOM_RESOURCE_DEFINITION, make_definition())
                widget = {"metadata": {"name": "w", "namespace": here}, "spec": {"a": 1}}
                await create_patiently(
                    client, {**widget, "apiVersion": WIDGET.api_version, "kind": "Widget"}
                )
                await until(lambda: cache.get("w", here) is not None)
                # And goes again.
                await client.delete(CUSTOM_RESOURCE_DEFINITION, "widgets.world.lictor.test")
                await until(lambda: not cache.list())

    run(test)


async def create_patiently(client: Client, body: dict) -> None:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NotFoundError):
                await client.create(WIDGET, body)
                return
            await asyncio.sleep(0.1)


def make_definition() -> dict:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.world.lictor.test"},
        "spec": {
            "group": "world.lictor.test",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }


def test_service_account_may_only_what_it_may(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "world-account", check=False)
    cluster.kubectl("-n", "world-account", "create", "serviceaccount", "robot", check=False)
    kubeconfig = cluster.kubeconfig_for("world-account", "robot")

    async def test() -> None:
        client = Client(load_config(str(kubeconfig)))
        with pytest.raises(ApiError) as refused:
            await client.list(CONFIG_MAP, "world-account")
        assert refused.value.status == 403
        assert "system:serviceaccount:world-account:robot" in str(refused.value)
        await client.close()

    run(test)


def test_acts_as_another(cluster: Cluster) -> None:
    from msgspec.structs import replace

    async def test() -> None:
        config = replace(
            load_config(str(cluster.kubeconfig)),
            impersonate="jane",
            impersonate_groups=("dev", "ops"),
            impersonate_uid="7",
            impersonate_extra={"example.com/scope": ("a", "b")},
        )
        client = Client(config)
        answer = await client.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        assert answer["status"]["userInfo"] == {
            "username": "jane",
            "uid": "7",
            "groups": ["dev", "ops", "system:authenticated"],
            "extra": {"example.com/scope": ["a", "b"]},
        }
        await client.close()

    run(test)


PLUGIN = """
import json, os, sys
kubeconfig = json.load(open(sys.argv[1]))
user = kubeconfig["users"][0]["user"]
import base64
read = lambda name: base64.b64decode(user[name]).decode()
open(sys.argv[2], "a").write("asked\\n")
print(json.dumps({
    "kind": "ExecCredential",
    "apiVersion": "client.authentication.k8s.io/v1",
    "status": {
        "clientCertificateData": read("client-certificate-data"),
        "clientKeyData": read("client-key-data"),
        "expirationTimestamp": "2999-01-01T00:00:00Z",
    },
}))
"""


def test_certificate_of_a_plugin(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    log = tmp_path / "log"
    config = json.loads(cluster.kubeconfig.read_text())
    arguments = [str(tmp_path / "plugin.py"), str(cluster.kubeconfig), str(log)]
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": arguments,
            "interactiveMode": "Never",
        }
    }
    (tmp_path / "config").write_text(json.dumps(config))

    async def test() -> None:
        client = Client(load_config(str(tmp_path / "config")))
        answers = await asyncio.gather(*(client.list(NAMESPACE) for _ in range(5)))
        assert all(answers)
        cache = Cache(client, NAMESPACE)
        async with run_cache(cache):
            assert len(cache)
        await client.close()
        assert log.read_text() == "asked\n"

    run(test)


def test_a_token_that_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("create", "namespace", "world-token", check=False)
    cluster.kubectl("-n", "world-token", "create", "serviceaccount", "robot", check=False)
    good = json.loads(cluster.kubeconfig_for("world-token", "robot").read_text())
    token = good["users"][0]["user"]["token"]
    (tmp_path / "token").write_text("stale")
    good["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "config").write_text(json.dumps(good))

    async def test() -> None:
        client = Client(load_config(str(tmp_path / "config")))
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        ask = partial(
            client.request, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review
        )
        with pytest.raises(ApiError) as refused:
            await ask()
        assert refused.value.status == 401
        (tmp_path / "token").write_text(token)
        answer = await ask()
        assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:world-token:robot"
        await client.close()

    run(test)


def test_server_of_another_name(cluster: Cluster) -> None:
    from msgspec.structs import replace

    async def test() -> None:
        config = load_config(str(cluster.kubeconfig))
        known = Client(replace(config, tls_server_name="kubernetes.default.svc"))
        assert (await known.request("GET", "/version"))["major"] == "1"
        await known.close()
        unknown = Client(replace(config, tls_server_name="elsewhere.example"))
        with pytest.raises(UnreachableError, match=r"(?i)hostname mismatch"):
            await unknown.request("GET", "/version")
        await unknown.close()

    run(test)


def test_survives_a_restart_of_the_api_server(own_cluster: LocalCluster) -> None:
    async def test() -> None:
        async with connect(own_cluster) as client:
            here = await make_namespace(client, "world-restart")
            cache = Cache(client, CONFIG_MAP, namespace=here)
            async with run_cache(cache):
                await client.create(CONFIG_MAP, config_map("before", here))
                await until(lambda: cache.get("before", here) is not None)
                changes: list[Change] = []
                cache.listen(changes.append)
                await asyncio.to_thread(own_cluster.restart_api_server, kill=True)
                # What is known stays known while nobody answers.
                assert cache.get("before", here) is not None
                await client.create(CONFIG_MAP, config_map("after", here))
                await client.delete(CONFIG_MAP, "before", here)
                await until(lambda: cache.get("after", here) is not None, 40)
                await until(lambda: cache.get("before", here) is None)
            # Without the ConfigMap that a controller writes into every namespace, at its own time.
            names = [
                (change.type, name)
                for change in changes
                if (name := change.object["metadata"]["name"]) != "kube-root-ca.crt"
            ]
            # In either order: the server may have lost its last events when it was killed.
            assert sorted(names) == [("ADDED", "after"), ("DELETED", "before")]

    run(test)


def test_half_open_connection(own_cluster: LocalCluster) -> None:
    """A peer that vanishes without a word is noticed by the kernel's own questions."""
    if not own_cluster.network.name:
        pytest.skip("needs a network of its own")

    async def test() -> None:
        async with connect(own_cluster) as client:
            here = await make_namespace(client, "world-silence")
            cache = Cache(client, CONFIG_MAP, namespace=here)
            async with run_cache(cache):
                await until(lambda: cache.get("kube-root-ca.crt", here) is not None, 30)
                drop_packets(own_cluster, on=True)
                started = asyncio.get_running_loop().time()
                # The server ends nothing: it is our side that must notice.
                await until(lambda: cache._pause > 0.5, 60)
                assert asyncio.get_running_loop().time() - started < 45
                drop_packets(own_cluster, on=False)
                own_cluster.kubectl("-n", here, "create", "configmap", "later")
                await until(lambda: cache.get("later", here) is not None, 40)

    run(test)


def drop_packets(plane: LocalCluster, *, on: bool) -> None:
    """Nothing comes out of the network any more, and nobody is told."""
    change = "add" if on else "del"
    command = ["ip", "-n", plane.network.name, "route", change, "blackhole", near_address(plane)]
    subprocess.run(command, check=True)


def near_address(plane: LocalCluster) -> str:
    import ipaddress

    return f"{ipaddress.ip_address(plane.address) - 1}/32"
