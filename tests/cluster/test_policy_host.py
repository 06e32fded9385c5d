"""What Kubewarden's policies ask of a cluster, answered by a real API server."""

import asyncio
import time
from collections.abc import Callable

import orjson
import pytest
from control_plane.cluster import Cluster
from wat_guests import data, wapc

from lictor.addons.kubewarden.family.entries import ContextAwareResource, MemberEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module, make_engine
from lictor.core.errors import GuestError, HostCallError
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import CONFIG_MAP, NAMESPACE, ROLE_BINDING
from lictor.lookups.lookups import ClusterLookups

HERE = "host-calls"
RBAC = "rbac.authorization.k8s.io"
ENTRY = MemberEntry(
    module="m",
    host_capabilities=("kubernetes/*",),
    context_aware_resources=(
        ContextAwareResource("v1", "ConfigMap"),
        ContextAwareResource("v1", "Namespace"),
        ContextAwareResource("v1", "Zzz"),
    ),
)


def run(cluster: Cluster, test: Callable[[PolicyHost, Callable[..., Json]], None]) -> None:
    """The policy asks on a thread, as guests do; `do` has the client do something."""

    async def bounded() -> None:
        client = Client(load_config(str(cluster.kubeconfig)))
        loop = asyncio.get_running_loop()
        lookups = ClusterLookups(client, loop)

        def do(coroutine) -> Json:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

        def work() -> None:
            if do(client.find(NAMESPACE, HERE)) is None:
                do(client.create(NAMESPACE, {"metadata": {"name": HERE}}))
            for name, labels in (("a", {"team": "a"}), ("b", {"team": "b"})):
                if do(client.find(CONFIG_MAP, name, HERE)) is None:
                    do(client.create(CONFIG_MAP, make(name, labels)))
            test(PolicyHost(lookups, ENTRY), lambda act: do(act(client)))

        try:
            async with asyncio.timeout(120):
                await asyncio.to_thread(work)
        finally:
            await lookups.close()
            await client.close()

    asyncio.run(bounded())


def make(name: str, labels: dict[str, str]) -> JsonObject:
    metadata = {"name": name, "namespace": HERE, "labels": labels}
    return {"metadata": metadata, "data": {"k": name}, "immutable": False}


def ask(host: PolicyHost, operation: str, **payload: Json) -> Json:
    return orjson.loads(host.call("kubernetes", operation, orjson.dumps(payload)))


def list_maps(host: PolicyHost, **more: Json) -> JsonObject:
    asked = {"api_version": "v1", "kind": "ConfigMap", "namespace": HERE, **more}
    found: JsonObject = ask(host, "list_resources_by_namespace", **asked)
    return found


def names(listed: JsonObject) -> list[str]:
    own = [each["metadata"]["name"] for each in listed["items"]]
    return [name for name in own if not name.startswith("kube-root-ca")]


def test_objects(cluster: Cluster) -> None:
    def test(host, _) -> None:
        asked = {"api_version": "v1", "kind": "ConfigMap", "disable_cache": True}
        found = ask(host, "get_resource", **asked, name="a", namespace=HERE)
        assert (found["kind"], found["data"]) == ("ConfigMap", {"k": "a"})
        masked = ask(
            host, "get_resource", **asked, name="a", namespace=HERE, field_masks=["immutable"]
        )
        assert masked == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": HERE, "labels": {"team": "a"}},
            "immutable": False,
        }
        with pytest.raises(HostCallError, match="Cannot find v1/ConfigMap named 'none'"):
            ask(host, "get_resource", **asked, name="none", namespace=HERE)
        with pytest.raises(HostCallError, match="no namespace was provided"):
            ask(host, "get_resource", **asked, name="a")
        # A name must not lead to another path.
        with pytest.raises(HostCallError):
            ask(host, "get_resource", **asked, name="../secrets/x", namespace=HERE)

    run(cluster, test)


def test_selectors_are_the_api_servers(cluster: Cluster) -> None:
    def test(host, _) -> None:
        assert names(list_maps(host)) == ["a", "b"]
        assert names(list_maps(host, label_selector="team=b")) == ["b"]
        assert names(list_maps(host, label_selector="team in (a, c)")) == ["a"]
        assert names(list_maps(host, field_selector="metadata.name=b")) == ["b"]
        assert names(list_maps(host, label_selector="team=none")) == []
        (item,) = list_maps(host, label_selector="team=a", field_masks=["data"])["items"]
        assert set(item) == {"apiVersion", "kind", "metadata", "data"}
        assert item["metadata"]["managedFields"] == []
        for selector in ({"label_selector": "a=b=c"}, {"field_selector": "data.k=a"}):
            with pytest.raises(HostCallError):
                list_maps(host, **selector)
        with pytest.raises(HostCallError, match="Zzz"):
            ask(host, "list_resources_all", api_version="v1", kind="Zzz")

    run(cluster, test)


def test_lists_follow_what_happens(cluster: Cluster) -> None:
    def test(host, do) -> None:
        for _ in range(3):
            assert "c" not in names(list_maps(host))
        do(lambda client: client.create(CONFIG_MAP, make("c", {})))
        try:
            wait_for(lambda: names(list_maps(host)) == ["a", "b", "c"])
        finally:
            do(lambda client: client.delete(CONFIG_MAP, "c", HERE))
        wait_for(lambda: names(list_maps(host)) == ["a", "b"])

    run(cluster, test)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_policies_in_rego_find_their_data(cluster: Cluster) -> None:
    def test(host, _) -> None:
        with pytest.raises(HostCallError, match="Zzz"):
            host.context()

    run(cluster, test)


def test_a_guest_reads_an_object(cluster: Cluster) -> None:
    """A policy in Wasm, which answers with what the API server told it."""

    def test(host, _) -> None:
        asked = {"api_version": "v1", "kind": "ConfigMap", "name": "a", "namespace": HERE}
        payload = orjson.dumps({**asked, "disable_cache": True, "field_masks": ["data"]}).decode()
        texts = {2048: "kubewarden", 2100: "kubernetes", 2200: "get_resource", 2400: payload}
        places = " ".join(f"(i32.const {at}) (i32.const {len(t)})" for at, t in texts.items())
        code = f"""(drop (call $ask {places}))
          (call $take_response (i32.const 8192))
          (call $complain (i32.const 8192) (call $response_len)) (return (i32.const 0))"""
        content = wapc(code, extra=" ".join(data(at, text) for at, text in texts.items()))
        module = compile_module(content, make_engine())
        guest = open_guest(module, ExecutionMode.WAPC, GuestLimits(seconds=None), host)
        with pytest.raises(GuestError) as caught:
            guest.validate({}, {})
        assert orjson.loads(str(caught.value))["data"] == {"k": "a"}

    run(cluster, test)


def test_access_is_reviewed(cluster: Cluster) -> None:
    def test(host, do) -> None:
        binding = {
            "metadata": {"name": "readers", "namespace": HERE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "host-jane", "apiGroup": RBAC}],
        }
        do(lambda client: client.create(ROLE_BINDING, binding))
        wait_for(lambda: may(host, "host-jane", HERE))
        assert not may(host, "host-jane", "default")
        assert not may(host, "host-joe", HERE)

    run(cluster, test)


def may(host: PolicyHost, user: str, namespace: str) -> bool:
    attributes = {"verb": "get", "resource": "configmaps", "namespace": namespace}
    review = {"user": user, "groups": None, "resource_attributes": attributes}
    found = ask(host, "can_i", subject_access_review=review, disable_cache=True)
    return bool(found["allowed"])
