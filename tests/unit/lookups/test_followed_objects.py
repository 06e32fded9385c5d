"""Objects that are asked for again and again: when they are watched, and when they are listed."""

import asyncio
import queue
import time
from collections.abc import Iterator

import pytest
from fake_api import Answer, Asked, FakeApi, run_api

from lictor.core.errors import ApiError, LookupFailedError
from lictor.core.ports import ObjectQuery
from lictor.core.raw import JsonObject
from lictor.http.addresses import HostResolver
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.resource import CONFIG_MAP
from lictor.lookups.followed_objects import FollowedObjects

QUERY = ObjectQuery("v1", "ConfigMap")


def make(name: str, version: int = 1, size: int = 1) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    metadata["managedFields"] = [{"manager": "m"}]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"x": "y" * size},
    }


class ListAndWatch:
    """Two objects; events are what a test puts into the queue."""

    def __init__(self) -> None:
        self.items = [make("b"), make("a")]
        self.events: queue.Queue[JsonObject | None] = queue.Queue()
        self.status = 200

    def __call__(self, asked: Asked) -> Answer:
        if self.status != 200:
            return Answer(self.status, {"code": self.status, "message": "you may not"})
        if "watch=" in asked.path:
            return Answer(lines=self._watch())
        return Answer(body={"metadata": {"resourceVersion": "5"}, "items": self.items})

    def _watch(self) -> Iterator[JsonObject]:
        while (event := self.events.get()) is not None:
            yield event


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (many things may make it true)
            await asyncio.sleep(0.01)


def run(test, **options) -> None:
    server = ListAndWatch()
    with run_api(server) as api:

        async def bounded() -> None:
            client = Client(ClusterConfig(api.url))
            followed = FollowedObjects(client, **options)
            try:
                async with asyncio.timeout(20):
                    await test(followed, server, api)
            finally:
                server.events.put(None)
                await followed.close()
                await client.close()

        asyncio.run(bounded())


def count(api: FakeApi, word: str) -> int:
    return sum(word in each.path for each in api.asked)


async def follow(followed: FollowedObjects, query: ObjectQuery = QUERY):
    """Ask until the answer comes from a watch."""
    before = await followed.select(query, CONFIG_MAP)
    async with asyncio.timeout(60):
        while True:
            found = await followed.select(query, CONFIG_MAP)
            if found is before:
                return found
            before = found
            await asyncio.sleep(0.01)


def names(found) -> list[str]:
    return [each["metadata"]["name"] for each in found]


def test_what_is_asked_once_is_listed():
    async def test(followed, server, api) -> None:
        found = await followed.select(QUERY, CONFIG_MAP)
        assert names(found) == ["a", "b"]
        assert "managedFields" not in found[0]["metadata"]
        assert (len(api.asked), count(api, "watch=")) == (1, 0)

    run(test)


def test_what_is_asked_again_is_watched_and_heard_of():
    async def test(followed, server, api) -> None:
        found = await follow(followed)
        asked = len(api.asked)
        assert await followed.select(QUERY, CONFIG_MAP) is found
        assert len(api.asked) == asked
        server.events.put({"type": "ADDED", "object": make("c", 6)})
        await until(lambda: followed.count_bytes() > 250)
        assert names(await followed.select(QUERY, CONFIG_MAP)) == ["a", "b", "c"]
        server.events.put({"type": "DELETED", "object": make("a", 7)})
        await until(lambda: len(followed._watched[QUERY].cache) == 2)
        assert names(await followed.select(QUERY, CONFIG_MAP)) == ["b", "c"]
        assert len(api.asked) == asked

    run(test)


def test_selectors_and_masks_are_part_of_the_question():
    query = ObjectQuery("v1", "ConfigMap", "n", "a=b", "metadata.name=a", ("data.x",))

    async def test(followed, server, api) -> None:
        found = await followed.select(query, CONFIG_MAP)
        path = api.asked[0].path
        assert path.startswith("/api/v1/namespaces/n/configmaps?")
        assert "labelSelector=a%3Db" in path
        assert "fieldSelector=metadata.name%3Da" in path
        assert found[0] == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"},
            "data": {"x": "y"},
        }

    run(test)


def test_what_would_fill_the_memory_is_not_watched():
    async def test(followed, server, api) -> None:
        server.items = [make(f"m{number}", size=1000) for number in range(20)]
        for _ in range(5):
            assert len(await followed.select(QUERY, CONFIG_MAP)) == 20
            await asyncio.sleep(0.05)
        assert followed.count_bytes() == 0
        # One more list was for the watch that was given up.
        assert len(api.asked) <= 7

    run(test, most_bytes=10_000)


def test_the_number_of_watches_has_a_bound():
    async def test(followed, server, api) -> None:
        for number in range(6):
            query = ObjectQuery("v1", "ConfigMap", label_selector=f"a={number}")
            for _ in range(2):
                await followed.select(query, CONFIG_MAP)
        assert [each.label_selector for each in followed._watched] == ["a=3", "a=4", "a=5"]

    run(test, most_watched=3)


def test_watches_that_nobody_needs_end():
    now = [0.0]

    async def test(followed, server, api) -> None:
        await follow(followed)
        now[0] = 601.0
        await followed.select(ObjectQuery("v1", "ConfigMap", "other"), CONFIG_MAP)
        assert QUERY not in followed._watched

    run(test, clock=lambda: now[0])


def test_a_copy_that_is_not_kept_in_step_does_not_answer():
    async def test(followed, server, api) -> None:
        await follow(followed)
        server.status = 403
        server.events.put({"type": "ERROR", "object": {"code": 410, "message": "gone"}})
        await until(lambda: followed._watched[QUERY].cache.trouble)
        with pytest.raises(ApiError, match="you may not"):
            await followed.select(QUERY, CONFIG_MAP)

    run(test)


def test_what_may_not_be_listed_is_an_error():
    async def test(followed, server, api) -> None:
        server.status = 403
        for _ in range(3):
            with pytest.raises(ApiError, match="you may not"):
                await followed.select(QUERY, CONFIG_MAP)

    run(test)


# --- names of hosts


def test_hosts_are_resolved():
    assert "127.0.0.1" in HostResolver().resolve("localhost", 10)
    assert HostResolver().resolve("192.0.2.7", 10) == ("192.0.2.7",)


@pytest.mark.parametrize("host", ["", "a b", "a\0b", "a\nb", "x" * 254])
def test_hosts_that_are_none(host):
    with pytest.raises(LookupFailedError):
        HostResolver().resolve(host, 10)


def test_a_name_server_that_does_not_answer_holds_up_so_many(monkeypatch):
    resolver = HostResolver()
    found = [(2, 1, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: time.sleep(0.5) or found)
    for _ in range(32):
        with pytest.raises(LookupFailedError, match="was not resolved within"):
            resolver.resolve("slow.example", 0.0)
    with pytest.raises(LookupFailedError, match="too many lookups"):
        resolver.resolve("slow.example", 0.0)
    time.sleep(0.7)
    assert resolver.resolve("slow.example", 5.0) == ("192.0.2.1",)
    found.clear()
    with pytest.raises(LookupFailedError, match="no usable addresses"):
        resolver.resolve("empty.example", 5.0)


def test_a_host_that_nobody_knows(monkeypatch):
    def refuse(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    with pytest.raises(LookupFailedError, match="not known"):
        HostResolver().resolve("no.such.invalid", 10)
