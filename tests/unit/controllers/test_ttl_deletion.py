"""Objects whose time to live is over: deleted once, at their moment, and tried again."""

import asyncio
from datetime import UTC, datetime, timedelta

from prometheus_client import REGISTRY

from lictor.controllers.policy_writes import PolicyWrites
from lictor.controllers.ttl import ExpiringObject, TtlDeletions, TtlWatches, find_due
from lictor.core.errors import ApiError, ConflictError, UnreachableError
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CONFIG_MAP, Resource
from lictor.kubernetes.work_queue import DueQueue

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Client:
    def __init__(self):
        self.deleted = []
        self.faults = []

    async def delete(self, resource, name, namespace="", *, propagation="", preconditions=None):
        if self.faults:
            raise self.faults.pop(0)
        self.deleted.append((name, propagation, preconditions))
        return True


class Site:
    def __init__(self):
        self.client = Client()
        self.due = DueQueue()
        self.now = NOON
        self.items = {}
        self.deletions = TtlDeletions(
            PolicyWrites(self.client, Names()), self.due, self.items.get, now=lambda: self.now
        )

    def put(self, name, ttl, namespace="default", **annotations):
        item = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "creationTimestamp": "2026-03-01T12:00:00Z",
                "labels": {"cleanup.kyverno.io/ttl": ttl},
                "annotations": annotations,
            }
        }
        mortal = ExpiringObject(CONFIG_MAP, namespace, name)
        self.items[mortal] = item
        if due := find_due(item):
            self.due.put(mortal, due.timestamp())
        return mortal

    def names(self):
        return [name for name, *_ in self.client.deleted]

    async def after(self, **length):
        self.now = NOON + timedelta(**length)
        await self.deletions.reconcile()


def test_each_goes_at_its_moment():
    async def scenario():
        site = Site()
        site.put("b", "2m", **{"cleanup.kyverno.io/propagation-policy": "Orphan"})
        site.put("a", "1m", **{"cleanup.kyverno.io/propagation-policy": "Sideways"})
        site.put("never", "rubbish")
        await site.after(seconds=59)
        assert site.names() == []
        await site.after(seconds=60)
        assert site.names() == ["a"]
        await site.after(minutes=5)
        assert site.names() == ["a", "b"]
        assert [propagation for _, propagation, _ in site.client.deleted] == ["", "Orphan"]
        assert site.client.deleted[0][2] == {"uid": "uid-a", "resourceVersion": "1"}

    asyncio.run(scenario())


def test_what_lictor_is_made_of_does_not_expire(caplog):
    async def scenario():
        site = Site()
        site.put("lictor", "1m", namespace="lictor")
        site.put("a", "1m")
        await site.after(minutes=5)
        assert site.names() == ["a"]

    asyncio.run(scenario())
    assert "object not deleted" in caplog.text


def test_more_time_given_meanwhile_counts():
    async def scenario():
        site = Site()
        mortal = site.put("a", "1m")
        # The news of the longer life is in the cache, but the agenda has not heard it yet.
        site.items[mortal]["metadata"]["labels"]["cleanup.kyverno.io/ttl"] = "1h"
        await site.after(minutes=2)
        assert site.names() == []

    asyncio.run(scenario())


def test_what_could_not_be_deleted_is_tried_again_with_growing_pauses():
    async def scenario():
        site = Site()
        site.put("a", "1m")
        site.client.faults = [ApiError("no", status=403), ApiError("no", status=403)]
        await site.after(seconds=60)
        assert site.due.next_due == NOON.timestamp() + timedelta(seconds=62).total_seconds()
        await site.after(seconds=62)
        assert site.due.next_due == NOON.timestamp() + timedelta(seconds=66).total_seconds()
        await site.after(seconds=66)
        assert site.names() == ["a"]
        labels = {
            "resource_namespace": "default",
            "resource_group": "",
            "resource_version": "v1",
            "resource_resource": "configmaps",
        }
        name = "kyverno_ttl_controller_errors_total"
        assert REGISTRY.get_sample_value(name, labels) == 2

    asyncio.run(scenario())


def test_a_change_at_the_last_moment_is_waited_for_briefly():
    async def scenario():
        site = Site()
        site.put("a", "1m")
        site.client.faults = [ConflictError("changed", status=409)]
        await site.after(seconds=60)
        assert site.due.next_due == NOON.timestamp() + timedelta(seconds=60.2).total_seconds()
        await site.after(seconds=61)
        assert site.names() == ["a"]

    asyncio.run(scenario())


def test_without_an_api_server_nothing_is_forgotten():
    async def scenario():
        site = Site()
        for number in range(20):
            site.put(f"m{number:02d}", "1m")
        site.client.faults = [UnreachableError("away")]
        try:
            await site.after(seconds=60)
        except UnreachableError:
            pass
        else:
            raise AssertionError("the loop must hear of it, and pause")
        assert len(site.due) == 13
        await site.after(seconds=61)
        assert len(site.names()) == 20

    asyncio.run(scenario())


PODS = Resource("", "v1", "pods", "Pod")


class Lists:
    """A client whose collections are empty and whose watches never end."""

    def __init__(self):
        self.closed = False
        self.watched = set()

    async def list_pages(self, resource, namespace="", **options):
        assert options["labels"] == "cleanup.kyverno.io/ttl"
        self.watched.add(resource.plural)
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, resource, **_):
        try:
            await asyncio.sleep(60)
        finally:
            self.watched.discard(resource.plural)
        yield

    async def close(self):
        self.closed = True


def test_only_what_may_be_deleted_is_watched():
    async def scenario():
        lists = Lists()
        allowed = {"pods"}
        everything = frozenset(("list", "watch", "delete"))
        served = [
            Collection(PODS, everything),
            Collection(CONFIG_MAP, everything),
            Collection(Resource("", "v1", "events", "Event"), frozenset(("list", "watch"))),
            Collection(Resource("x", "v1beta1", "pods", "Pod"), everything, preferred=False),
        ]

        async def serve():
            return served

        async def allows(access):
            return access.resource in allowed

        watches = TtlWatches(lambda: lists, serve, allows, DueQueue(), 60.0)
        await watches.reconcile()
        await asyncio.sleep(0.05)
        assert lists.watched == {"pods"}
        allowed |= {"configmaps"}
        await watches.reconcile()
        await asyncio.sleep(0.05)
        assert lists.watched == {"pods", "configmaps"}
        allowed -= {"pods"}
        await watches.reconcile()
        await asyncio.sleep(0.05)
        assert lists.watched == {"configmaps"}
        await watches.stop()
        assert lists.watched == set()
        assert lists.closed

    asyncio.run(scenario())
