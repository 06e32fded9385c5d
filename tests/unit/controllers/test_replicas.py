"""Who judges what: UIDs shared out over Leases that are renewed."""

import asyncio

import pytest
from paged_api import make_uid

from lictor.controllers.scan import replicas as module
from lictor.controllers.scan.replicas import MEMBER_LABEL, Membership
from lictor.core.errors import ApiError
from lictor.kubernetes.client import WatchEvent
from lictor.kubernetes.names import Names


class LeaseApi:
    """Keeps Leases, and tells everyone who watches."""

    def __init__(self):
        self.leases = {}
        self.watchers = []
        self.version = 0
        self.broken = False

    async def list_pages(self, *_, **__):
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": [*self.leases.values()]}

    async def watch(self, *_, **__):
        queue = asyncio.Queue()
        self.watchers.append(queue)
        while True:
            yield await queue.get()

    async def apply(self, resource, body):
        if self.broken:
            raise ApiError("away", status=500)
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.leases[body["metadata"]["name"]] = body
        self.emit("MODIFIED", body)

    async def delete(self, resource, name, namespace):
        if name in self.leases:
            self.emit("DELETED", self.leases.pop(name))

    def emit(self, kind, body):
        for queue in self.watchers:
            queue.put_nowait(WatchEvent(kind, body))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_PERIOD", 0.03)
    monkeypatch.setattr(module, "_SETTLE", 0.05)
    monkeypatch.setattr(module, "_LIFETIME", 1.0)
    monkeypatch.setattr(module, "_DEAD_SECONDS", 2.0)


def join(api, identity, describe=dict):
    return Membership(api, Names(), "reports", identity, describe)


async def wait_for_members(membership, count):
    for _ in range(1000):
        if len(membership.members) == count:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not {count} members")


def test_two_members_share_evenly_and_completely():
    async def run():
        api = LeaseApi()
        first, second = join(api, "one"), join(api, "two")
        tasks = [asyncio.create_task(each.run()) for each in (first, second)]
        await first.wait()
        await second.wait()
        await asyncio.sleep(0.1)
        uids = [make_uid(number) for number in range(4000)]
        mine = sum(first.owns(uid) for uid in uids)
        assert 0.45 < mine / len(uids) < 0.55
        assert all(first.owns(uid) != second.owns(uid) for uid in uids)
        await leave(tasks)

    asyncio.run(run())


def test_whichever_two_replicas_there_are_neither_has_much_more():
    """The arcs of the ring that belong to each, for pairs of Pods with the names that Pods have."""
    for number in range(40):
        names = tuple(f"lictor-reports-controller-{number}-{letter}" for letter in "ab")
        ring, before, share = module._build_ring(names), 0, 0
        for point, member in ring:
            share += point - before if member == names[0] else 0
            before = point
        assert 0.45 < share / 2**64 < 0.55


async def leave(tasks):
    for task in tasks:
        task.cancel()
    _, running = await asyncio.wait(tasks, timeout=60)
    assert not running


def test_a_member_that_goes_leaves_its_part_to_the_others():
    async def run():
        api, changes = LeaseApi(), []
        first, second = join(api, "one"), join(api, "two")
        first.listen(lambda: changes.append(len(first.members)))
        tasks = [asyncio.create_task(each.run()) for each in (first, second)]
        await first.wait()
        await wait_for_members(first, 2)
        await leave(tasks[1:])
        await wait_for_members(first, 1)
        await asyncio.sleep(0.15)
        # On a machine that stands still, a member may count as gone for a while.
        assert (changes[0], changes[-1]) == (2, 1)
        assert all(first.owns(make_uid(number)) for number in range(100))
        await leave(tasks[:1])
        assert not api.leases

    asyncio.run(run())


def test_a_member_that_falls_silent_is_gone_after_its_lifetime():
    async def run():
        api = LeaseApi()
        first = join(api, "one")
        dead = {
            "metadata": {"name": "dead", "labels": {MEMBER_LABEL: "reports"}},
            "spec": {"renewTime": "2000-01-01T00:00:00.000000Z"},
        }
        api.leases["dead"] = dead
        task = asyncio.create_task(first.run())
        await first.wait()
        assert len(first.members) == 2  # by our clock it has just been heard
        await wait_for_members(first, 1)
        for _ in range(2):
            await asyncio.sleep(1.2)
            assert len(first.members) == 1  # and it does not come back
        assert "dead" not in api.leases  # others clean up behind it
        await leave([task])

    asyncio.run(run())


def test_the_lease_tells_more_and_outages_do_no_harm():
    async def run():
        api = LeaseApi()
        member = join(api, "one", lambda: {"lictor.io/scan": "{}"})
        task = asyncio.create_task(member.run())
        await member.wait()
        (lease,) = api.leases.values()
        assert lease["metadata"]["annotations"] == {"lictor.io/scan": "{}"}
        assert lease["spec"]["holderIdentity"] == "one"
        api.broken = True
        await asyncio.sleep(0.1)
        assert member.members
        await leave([task])

    asyncio.run(run())
