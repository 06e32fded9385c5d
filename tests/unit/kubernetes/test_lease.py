"""Elections on an API that keeps Leases in memory, with real clocks and short periods."""

import asyncio
import copy
import re
import time

import pytest

from lictor.core.errors import ConflictError, NotFoundError, UnreachableError
from lictor.kubernetes.lease import Leadership, choose_identity

PERIOD = 0.05


class LeaseApi:
    """Leases with resource versions; `broken` makes it unreachable for one client."""

    def __init__(self):
        self.leases = {}
        self.version = 0
        self.writes = 0

    def client(self):
        return LeaseClient(self)

    def put(self, name, spec):
        self.version += 1
        metadata = {"name": name, "namespace": "ns", "resourceVersion": str(self.version)}
        self.leases[name] = {"metadata": metadata, "spec": spec}


class LeaseClient:
    def __init__(self, api):
        self.api = api
        self.broken = False
        self.hangs = False

    async def _arrive(self):
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.sleep(3600)
        if self.broken:
            raise UnreachableError("no route")

    async def find(self, resource, name, namespace):
        await self._arrive()
        return copy.deepcopy(self.api.leases.get(name))

    async def create(self, resource, body):
        await self._arrive()
        name = body["metadata"]["name"]
        if name in self.api.leases:
            raise ConflictError("exists", status=409)
        self.api.put(name, body["spec"])
        return copy.deepcopy(self.api.leases[name])

    async def replace(self, resource, body):
        await self._arrive()
        self.api.writes += 1
        name = body["metadata"]["name"]
        if name not in self.api.leases:
            raise NotFoundError("gone", status=404)
        known = self.api.leases[name]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != known:
            raise ConflictError("changed", status=409)
        self.api.put(name, copy.deepcopy(body["spec"]))
        return copy.deepcopy(self.api.leases[name])


class Replica:
    """A process that takes part, and notes when it leads."""

    def __init__(self, api, identity):
        self.client = api.client()
        self.leadership = Leadership(self.client, "lictor", "ns", identity, PERIOD)
        self.leads = False
        self.times = 0
        self.task = asyncio.create_task(self.leadership.run(self._lead))

    async def _lead(self):
        self.leads = True
        self.times += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.leads = False

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(condition, limit=30.0):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit, "did not happen"
        await asyncio.sleep(0.005)
    return time.monotonic() - started


def spec(api):
    return api.leases["lictor"]["spec"]


def test_one_of_three_leads_and_renews():
    async def play():
        api = LeaseApi()
        replicas = [Replica(api, name) for name in ("a", "b", "c")]
        await until(lambda: any(replica.leads for replica in replicas))
        await asyncio.sleep(PERIOD * 10)
        assert sum(replica.leads for replica in replicas) == 1
        leader = next(replica for replica in replicas if replica.leads)
        assert leader.leadership.is_leader
        assert leader.times == 1
        assert all(
            not replica.leadership.is_leader for replica in replicas if replica is not leader
        )
        assert {replica.leadership.leader for replica in replicas} == {leader.leadership.identity}
        for replica in replicas:
            await replica.stop()

    asyncio.run(play())


def test_the_record_is_client_gos():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        first = spec(api)
        assert first["holderIdentity"] == "a"
        assert first["leaseDurationSeconds"] == 1
        assert first["leaseTransitions"] == 0
        micro = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
        assert re.fullmatch(micro, first["acquireTime"])
        assert re.fullmatch(micro, first["renewTime"])
        await until(lambda: spec(api)["renewTime"] != first["renewTime"])
        assert spec(api)["acquireTime"] == first["acquireTime"]
        assert spec(api)["leaseTransitions"] == 0
        await replica.stop()

    asyncio.run(play())


def test_a_graceful_end_hands_over_at_once():
    async def play():
        api = LeaseApi()
        first = Replica(api, "a")
        await until(lambda: first.leads)
        second = Replica(api, "b")
        await asyncio.sleep(PERIOD * 2)
        await first.stop()
        assert not first.leads
        assert spec(api)["holderIdentity"] == ""
        assert await until(lambda: second.leads) < PERIOD * 4
        assert spec(api)["leaseTransitions"] == 1
        await second.stop()

    asyncio.run(play())


def test_a_lease_that_nobody_shall_follow_is_left_to_run_out():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        replica.leadership.release_at_end = False
        await replica.stop()
        assert spec(api)["holderIdentity"] == "a"

    asyncio.run(play())


def test_a_dead_leader_is_followed_when_its_lease_has_run_out():
    async def play():
        api = LeaseApi()
        first = Replica(api, "a")
        await until(lambda: first.leads)
        second = Replica(api, "b")
        await asyncio.sleep(PERIOD * 4)
        first.client.hangs = True  # as if killed: it neither renews nor releases
        took = await until(lambda: second.leads)
        # The lease is one second (the least there is); both delays of looking come on top, and what else the machine does.
        assert took < 5.0
        await until(lambda: not first.leads)
        await second.stop()
        await first.stop()

    asyncio.run(play())


def test_a_clock_that_is_wrong_does_no_harm():
    async def play():
        api = LeaseApi()
        past, future = "2001-01-01T00:00:00.000000Z", "2101-01-01T00:00:00.000000Z"
        for moment in (past, future):
            api.leases.clear()
            written = {
                "holderIdentity": "other",
                "leaseDurationSeconds": 1,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": 3,
            }
            api.put("lictor", written)
            replica = Replica(api, "a")
            took = await until(lambda: replica.leads)  # noqa: B023
            # As long as a lease lasts since it was first seen, whatever its times say.
            assert 0.9 < took < 8
            assert spec(api)["leaseTransitions"] == 4
            await replica.stop()

    asyncio.run(play())


def test_whoever_is_overruled_stops_at_once():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        api.put("lictor", {**spec(api), "holderIdentity": "foo"})
        assert await until(lambda: not replica.leads) < PERIOD * 4
        await until(lambda: replica.leads)
        assert spec(api)["holderIdentity"] == "a"
        assert replica.times == 2
        await replica.stop()

    asyncio.run(play())


def test_a_leader_without_an_api_server_stops_before_its_lease_ends():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        replica.client.broken = True
        assert await until(lambda: not replica.leads) < PERIOD * 8
        replica.client.broken = False
        await until(lambda: replica.leads)
        await replica.stop()

    asyncio.run(play())


def test_a_frozen_process_knows_that_it_may_have_been_replaced():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        assert replica.leadership.is_leader
        time.sleep(PERIOD * 7)  # noqa: ASYNC251  (the whole process stands still)
        assert not replica.leadership.is_leader
        await replica.stop()

    asyncio.run(play())


def test_a_deleted_lease_is_made_again():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        api.leases.clear()
        await until(lambda: "lictor" in api.leases)
        assert replica.leads
        await replica.stop()

    asyncio.run(play())


def test_renewing_takes_one_request():
    async def play():
        api = LeaseApi()
        replica = Replica(api, "a")
        await until(lambda: replica.leads)
        before = api.writes
        await asyncio.sleep(PERIOD * 6.5)
        assert 3 <= api.writes - before <= 7
        await replica.stop()

    asyncio.run(play())


def test_run_ends_with_the_work():
    async def play():
        api = LeaseApi()
        leadership = Leadership(api.client(), "lictor", "ns", "a", PERIOD)

        async def lead():
            await asyncio.sleep(PERIOD)

        await leadership.run(lead)
        assert spec(api)["holderIdentity"] == ""

        async def fail():
            raise RuntimeError("bug")

        with pytest.raises(RuntimeError, match="bug"):
            await leadership.run(fail)
        assert spec(api)["holderIdentity"] == ""

    asyncio.run(play())


def test_identity(monkeypatch):
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.delenv("KYVERNO_POD_NAME", raising=False)
    assert choose_identity() != choose_identity()
    monkeypatch.setenv("POD_NAME", "lictor-0")
    assert choose_identity() == "lictor-0"
