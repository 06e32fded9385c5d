"""Settings, roles, namespaces and lookups of policies, watched on a real API server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from control_plane.cluster import Cluster

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import ConflictError, LookupFailedError
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Caller
from lictor.core.model.result import Status
from lictor.core.ports import ApiCall
from lictor.install.crds import build_crds
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.names import Names
from lictor.kubernetes.namespaces import NamespaceCache
from lictor.kubernetes.rbac import RoleCache
from lictor.kubernetes.resource import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    GLOBAL_CONTEXT_ENTRY,
    NAMESPACE,
    ROLE_BINDING,
)
from lictor.kubernetes.settings import Settings, SettingsWatch
from lictor.lookups.lookups import ClusterLookups


@asynccontextmanager
async def connect(cluster: Cluster) -> AsyncIterator[Client]:
    client = Client(load_config(str(cluster.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def running(*watched) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run()) for each in watched]
    try:
        for each in watched:
            await asyncio.wait_for(each.wait(), 30)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    async with asyncio.timeout(2 * seconds):
        while not condition():  # noqa: ASYNC110  (many things may make it true)
            await asyncio.sleep(0.02)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await test()

    asyncio.run(bounded())


async def make_namespace(client: Client, name: str, **labels: str) -> str:
    with contextlib.suppress(ConflictError):
        await client.create(NAMESPACE, {"metadata": {"name": name, "labels": labels}})
    return name


def config_map(name: str, namespace: str, labels: dict | None = None, **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": data}


def test_settings_are_reloaded(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-settings")
            watch = SettingsWatch(client, Names("lictor", here))
            told: list[Settings] = []
            watch.listen(told.append)
            async with running(watch):
                assert watch.current == Settings()
                await client.create(CONFIG_MAP, config_map("other", here, excludeGroups="x"))
                await client.create(CONFIG_MAP, config_map("lictor", here, excludeGroups="a"))
                await until(lambda: watch.current.exclude_groups.excluded == ("a",))
                patch = {"data": {"excludeGroups": "b", "webhooks": "nonsense"}}
                await client.patch(CONFIG_MAP, "lictor", patch, namespace=here)
                await until(lambda: watch.current.exclude_groups.excluded == ("b",))
                assert len(watch.current.problems) == 1
                await client.delete(CONFIG_MAP, "lictor", here)
                await until(lambda: watch.current == Settings())
            assert len(told) == 3

    run(test)


def test_roles_are_followed(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-roles")
            book = RoleCache(client)
            jane = Caller("world-jane", groups=("world-devs", "system:authenticated"))
            async with running(book):
                _, everyone = book.roles_of(jane, here)
                assert "system:basic-user" in everyone
                subject = {
                    "kind": "User",
                    "name": "world-jane",
                    "apiGroup": "rbac.authorization.k8s.io",
                }
                group = {
                    "kind": "Group",
                    "name": "world-devs",
                    "apiGroup": "rbac.authorization.k8s.io",
                }
                role = {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "edit",
                }
                await client.create(
                    ROLE_BINDING,
                    {
                        "metadata": {"name": "a", "namespace": here},
                        "roleRef": role,
                        "subjects": [subject],
                    },
                )
                await client.create(
                    ROLE_BINDING,
                    {
                        "metadata": {"name": "b", "namespace": here},
                        "roleRef": {**role, "kind": "Role", "name": "local"},
                        "subjects": [subject],
                    },
                )
                await client.create(
                    CLUSTER_ROLE_BINDING,
                    {
                        "metadata": {"name": "world-devs"},
                        "roleRef": {**role, "name": "view"},
                        "subjects": [group],
                    },
                )
                expected = (("world-roles:local",), tuple(sorted({*everyone, "edit", "view"})))
                await until(lambda: book.roles_of(jane, here) == expected)
                _, elsewhere = book.roles_of(jane, "default")
                assert "edit" not in elsewhere
                await client.delete(ROLE_BINDING, "a", here)
                await client.delete(CLUSTER_ROLE_BINDING, "world-devs")
                await until(lambda: book.roles_of(jane, here) == (("world-roles:local",), everyone))

    run(test)


def test_namespaces(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            await make_namespace(client, "world-known", team="a")
            book = NamespaceCache(client)
            # Before the watch has told of it, it is asked for.
            early = await book.ensure("world-known")
            assert early is not None
            assert book.labels("world-known")["team"] == "a"
            assert await book.ensure("world-unknown") is None
            async with running(book):
                patch = {"metadata": {"labels": {"team": "b"}}}
                await client.patch(NAMESPACE, "world-known", patch)
                await until(lambda: book.labels("world-known")["team"] == "b")
                assert book.object("world-known")["kind"] == "Namespace"
                assert book.object("kube-system") is not None
                assert book.labels("world-unknown") == {}

    run(test)


def test_lookups(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-lookups")
            await client.create(CONFIG_MAP, config_map("plain", here, x="1"))
            cached = {"cache.kyverno.io/enabled": "true"}
            await client.create(CONFIG_MAP, config_map("cached", here, cached, x="2"))
            lookups = ClusterLookups(client, asyncio.get_running_loop(), Flags())
            async with running(lookups):
                await asyncio.to_thread(ask_everything, lookups, here)
                await client.patch(CONFIG_MAP, "cached", {"data": {"x": "3"}}, namespace=here)
                await until(lambda: lookups.config_map(here, "cached")["data"] == {"x": "3"})

    run(test)


def ask_everything(lookups: ClusterLookups, here: str) -> None:
    assert lookups.config_map(here, "plain")["data"] == {"x": "1"}
    assert lookups.config_map(here, "cached")["data"] == {"x": "2"}
    with pytest.raises(LookupFailedError, match="not found"):
        lookups.config_map(here, "absent")
    found = lookups.call_api(
        ApiCall(f"/api/v1/namespaces/{here}/configmaps?labelSelector=cache.kyverno.io%2Fenabled")
    )
    assert [item["metadata"]["name"] for item in found["items"]] == ["cached"]
    assert lookups.resource("v1", "Namespace", "", here)["metadata"]["name"] == here
    assert lookups.resource("v1", "ConfigMap", here, "absent") is None
    crds = lookups.resources("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
    assert isinstance(crds, list)
    names = {item["metadata"]["name"] for item in lookups.resources("v1", "ConfigMap", here)}
    assert {"plain", "cached"} <= names
    # Any version of any group, as targets of mutations may say.
    names = {item["metadata"]["name"] for item in lookups.resources("*", "ConfigMap", here)}
    assert {"plain", "cached"} <= names
    with pytest.raises(LookupFailedError, match="serves no Nonsense"):
        lookups.resources("v1", "Nonsense", here)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert lookups.call_api(ApiCall(path, method="POST", data=review))["status"]["allowed"] is False


POLICY = """
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: quota, namespace: world-policy}
spec:
  background: false
  rules:
  - name: known-team
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: teams
      apiCall: {urlPath: "/api/v1/namespaces/{{ request.object.metadata.annotations.where }}/configmaps/teams"}
    validate:
      message: unknown team
      deny:
        conditions:
          any:
          - key: "{{ request.object.metadata.labels.team }}"
            operator: AnyNotIn
            value: "{{ teams.data.names | parse_json(@) }}"
"""


def test_a_policy_reads_its_own_namespace_only(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            here = await make_namespace(client, "world-policy")
            await client.create(CONFIG_MAP, config_map("teams", here, names='["a", "b"]'))
            await make_namespace(client, "world-other")
            await client.create(CONFIG_MAP, config_map("teams", "world-other", names='["c"]'))
            lookups = ClusterLookups(client, asyncio.get_running_loop(), Flags())
            policies = [each.record for each in load_documents(POLICY, "policy").policies]
            engine = Engine(compile_documents(policies, lookups=lookups))

            def judge(team: str, where: str):
                metadata = {
                    "name": "p", "namespace": here, "labels": {"team": team}, "annotations": {"where": where},
                }  # fmt: skip
                return engine.evaluate({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

            def statuses(team: str, where: str) -> list:
                return [(r.status, r.message) for r in judge(team, where).results]

            async with running(lookups):
                assert (await asyncio.to_thread(statuses, "a", here))[0][0] is Status.PASS
                assert (await asyncio.to_thread(statuses, "x", here))[0][0] is Status.FAIL
                status, message = (await asyncio.to_thread(statuses, "c", "world-other"))[0]
                assert status is Status.ERROR
                assert "refers to namespace world-other, which is different from" in message
                sly = f"{here}/../world-other"
                status, message = (await asyncio.to_thread(statuses, "c", sly))[0]
                assert status is Status.ERROR
                assert "refers to namespace world-other" in message

    run(test)


def entry(name: str, **spec: object) -> dict:
    return {
        "apiVersion": GLOBAL_CONTEXT_ENTRY.api_version,
        "kind": "GlobalContextEntry",
        "metadata": {"name": name},
        "spec": spec,
    }


async def install_entries(client: Client) -> None:
    for crd in build_crds():
        if crd["metadata"]["name"].startswith("globalcontextentries."):
            await client.apply(CUSTOM_RESOURCE_DEFINITION, crd)
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(LookupFailedError):
                await client.list(GLOBAL_CONTEXT_ENTRY)
                return
            await asyncio.sleep(0.2)


def test_global_context(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            await install_entries(client)
            here = await make_namespace(client, "world-global")
            await client.create(CONFIG_MAP, config_map("a", here, x="1"))
            resource = {"version": "v1", "resource": "configmaps", "namespace": here}
            names = [
                {"name": "names", "jmesPath": "[?starts_with(metadata.name, 'a')].metadata.name"}
            ]
            call = {"urlPath": f"/api/v1/namespaces/{here}", "refreshInterval": "1s"}
            absent = {"urlPath": "/api/v1/nowhere", "refreshInterval": "1s", "retryLimit": 1}
            made = (
                entry("world-maps", kubernetesResource=resource, projections=names),
                entry("world-call", apiCall=call),
                entry("world-absent", apiCall=absent),
            )
            for each in made:
                await client.apply(GLOBAL_CONTEXT_ENTRY, each)
            lookups = ClusterLookups(client, asyncio.get_running_loop(), Flags())

            async def read(name: str):
                return await asyncio.to_thread(lookups.global_reference, name)

            async def read_until(name: str, expected: Callable[[object], bool]) -> None:
                async with asyncio.timeout(20):
                    while True:
                        with contextlib.suppress(LookupFailedError):
                            if expected(await read(name)):
                                return
                        await asyncio.sleep(0.05)

            async with running(lookups):
                await read_until("world-maps.names", lambda found: found == ["a"])
                whole = await read("world-maps")
                item = next(each for each in whole if each["metadata"]["name"] == "a")
                assert (item["kind"], item["apiVersion"], item["data"]) == (
                    "ConfigMap",
                    "v1",
                    {"x": "1"},
                )
                await client.create(CONFIG_MAP, config_map("a2", here))
                await read_until("world-maps.names", lambda found: found == ["a", "a2"])
                with pytest.raises(LookupFailedError, match='projection "other" not found'):
                    await read("world-maps.other")
                await read_until("world-call", lambda found: found["kind"] == "Namespace")
                patch = {"metadata": {"labels": {"fresh": "1"}}}
                await client.patch(NAMESPACE, here, patch)
                await read_until("world-call", lambda found: "fresh" in found["metadata"]["labels"])
                await until_fails(
                    lambda: read("world-absent"), "failed to GET resource with raw url"
                )
                # An entry that changes, and one that goes.
                for_all = [{"name": "names", "jmesPath": "length(@) > `2`"}]
                await client.apply(
                    GLOBAL_CONTEXT_ENTRY,
                    entry("world-maps", kubernetesResource=resource, projections=for_all),
                )
                await read_until("world-maps.names", lambda found: isinstance(found, bool))
                await client.delete(GLOBAL_CONTEXT_ENTRY, "world-maps")
                await until_fails(
                    lambda: read("world-maps"), "failed to fetch entry key=world-maps"
                )
            for name in ("world-call", "world-absent"):
                await client.delete(GLOBAL_CONTEXT_ENTRY, name)

    run(test)


async def until_fails(ask: Callable[[], Awaitable[object]], message: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await ask()
            except LookupFailedError as error:
                if message in str(error):
                    return
            await asyncio.sleep(0.05)


def test_what_we_may_not_read_is_told(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "world-denied", check=False)
    cluster.kubectl("-n", "world-denied", "create", "serviceaccount", "robot", check=False)
    kubeconfig = cluster.kubeconfig_for("world-denied", "robot")

    async def test() -> None:
        client = Client(load_config(str(kubeconfig)))
        lookups = ClusterLookups(client, asyncio.get_running_loop(), Flags())
        call = ApiCall("/api/v1/namespaces/world-denied/secrets")
        with pytest.raises(LookupFailedError, match="permission denied: secrets is forbidden"):
            await asyncio.to_thread(lookups.call_api, call)
        await client.close()

    run(test)


def test_json_of_answers_is_plain(cluster: Cluster) -> None:
    async def test() -> None:
        async with connect(cluster) as client:
            lookups = ClusterLookups(client, asyncio.get_running_loop())
            answer = await asyncio.to_thread(lookups.call_api, ApiCall("/version"))
            assert json.loads(json.dumps(answer)) == answer
            # What is no JSON is text.
            assert await asyncio.to_thread(lookups.call_api, ApiCall("/healthz")) == "ok"

    run(test)
