"""Kind selectors into the resources that an API server serves."""

import asyncio

import pytest
from fake_api import Answer, run_api

from lictor.core.errors import ApiError
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.discovery import Discovery, ServedResource, find_resources


def served(group, version, path, kind, *, namespaced=True):
    resource, _, subresource = path.partition("/")
    return ServedResource(group, version, resource, subresource, kind, namespaced)


SERVED = (
    served("", "v1", "pods", "Pod"),
    served("", "v1", "pods/exec", "PodExecOptions"),
    served("", "v1", "pods/status", "Pod"),
    served("", "v1", "nodes", "Node", namespaced=False),
    served("", "v1", "nodes/status", "Node", namespaced=False),
    served("", "v1", "events", "Event"),
    served("events.k8s.io", "v1", "events", "Event"),
    served("apps", "v1", "deployments", "Deployment"),
    served("apps", "v1", "deployments/scale", "Scale"),
    served("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    served("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("Pod", ["/v1/pods"]),
        ("v1/Pod", ["/v1/pods"]),
        ("v2/Pod", []),
        ("Pod/exec", ["/v1/pods/exec"]),
        ("Pod.exec", ["/v1/pods/exec"]),
        ("v1/Pod/exec", ["/v1/pods/exec"]),
        ("Pod/foo", []),
        ("Pod/*", ["/v1/pods/exec", "/v1/pods/status"]),
        ("PodExecOptions", []),
        ("Foo", []),
        ("Foo/*", []),
        ("Event", ["/v1/events", "events.k8s.io/v1/events"]),
        ("apps/*/Deployment", ["apps/v1/deployments"]),
        ("apps/v1/Deployment/scale", ["apps/v1/deployments/scale"]),
        ("*/Deployment", ["apps/v1/deployments"]),
        ("Deployment/scale", ["apps/v1/deployments/scale"]),
        ("*/scale", ["apps/v1/deployments/scale"]),
        ("autoscaling/v2/*", ["autoscaling/v2/horizontalpodautoscalers"]),
        (
            "HorizontalPodAutoscaler",
            [
                "autoscaling/v1/horizontalpodautoscalers",
                "autoscaling/v2/horizontalpodautoscalers",
            ],
        ),
        ("a*/v1/*", ["apps/v1/deployments", "autoscaling/v1/horizontalpodautoscalers"]),
        ("a/b/c/d/e", []),
        ("", []),
    ],
)
def test_find(selector, found):
    chosen = find_resources(SERVED, parse_kind_selector(selector))
    assert [f"{each.group}/{each.version}/{each.path}" for each in chosen] == found


def test_everything_has_its_parts():
    assert find_resources(SERVED, parse_kind_selector("*/*")) == SERVED
    whole = find_resources(SERVED, parse_kind_selector("*"))
    assert whole == tuple(each for each in SERVED if not each.subresource)


class Server:
    """An API server with one group of its own and one aggregated group."""

    def __init__(self):
        self.aggregated = 200
        self.kinds = ["Pod"]
        self.groups = True

    def answer(self, asked):
        if asked.path == "/apis" and self.groups:
            versions = [{"groupVersion": "metrics.k8s.io/v1"}]
            return Answer(body={"groups": [{"versions": versions}]})
        if asked.path == "/apis":
            return Answer(500, body={"message": "no"})
        if asked.path == "/api/v1":
            return Answer(body={"resources": [self._describe(kind) for kind in self.kinds]})
        if asked.path == "/apis/metrics.k8s.io/v1":
            return Answer(self.aggregated, body={"resources": [self._describe("Metric")]})
        return Answer(404, body={})

    def _describe(self, kind):
        return {"name": kind.lower() + "s", "kind": kind, "namespaced": True}


def play(scene):
    """Run a scene with a Discovery and the server that it asks."""
    server = Server()

    async def run():
        with run_api(server.answer) as api:
            client = Client(ClusterConfig(api.url))
            try:
                await scene(Discovery(client), server, api)
            finally:
                await client.close()

    asyncio.run(run())


def test_answers_are_kept_until_something_changes():
    async def scene(discovery, server, api):
        await discovery.ensure()
        await discovery.ensure()
        assert len(api.asked) == 3
        assert discovery.find("Pod")
        server.kinds.append("Secret")
        assert not discovery.find("Secret")
        before = discovery.resources
        heard = []
        discovery.listen(lambda: heard.append(1))
        discovery.mark_stale()
        await discovery.ensure()
        assert heard == [1]
        assert discovery.find("Secret")
        assert discovery.resources is not before

    play(scene)


def test_the_same_answers_are_the_same_object():
    async def scene(discovery, server, api):
        await discovery.refresh()
        before = discovery.resources
        await discovery.refresh()
        assert discovery.resources is before

    play(scene)


def test_an_aggregated_api_that_is_away_keeps_what_it_told():
    async def scene(discovery, server, api):
        await discovery.refresh()
        server.aggregated = 503
        server.kinds.append("Secret")
        await discovery.refresh()
        assert discovery.failed == ("metrics.k8s.io/v1",)
        assert discovery.find("Metric")
        assert discovery.find("Secret")
        server.aggregated = 404
        await discovery.refresh()
        assert discovery.failed == ()
        assert not discovery.find("Metric")

    play(scene)


def test_a_failure_leaves_it_stale():
    async def scene(discovery, server, api):
        server.groups = False
        with pytest.raises(ApiError):
            await discovery.ensure()
        server.groups = True
        await discovery.ensure()
        assert discovery.find("Pod")

    play(scene)


def test_a_kind_that_is_not_known_is_asked_for_once_more():
    async def scene(discovery, server, api):
        await discovery.refresh()
        # Not at once again: a policy for a kind that is nowhere must not cost a flood of requests.
        asked = len(api.asked)
        assert await discovery.search("Secret") == ()
        assert len(api.asked) == asked
        discovery._read_at -= 10
        server.kinds.append("Secret")
        assert await discovery.search("Secret")

    play(scene)
