"""The waiting room of admission's results: joined, bounded, never dropped."""

import asyncio

import pytest

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.report.resource_report import ReportSubject
from lictor.kubernetes import ephemeral_reports as module
from lictor.kubernetes.ephemeral_reports import EphemeralReports, read_form
from lictor.kubernetes.flags import Flags


class Api:
    """Takes reports, and says how many there are."""

    def __init__(self, there=0):
        self.there = there
        self.bodies = []
        self.failures = []

    async def request(self, method, path, params):
        count = self.there if "clusterephemeral" not in path else 0
        rest = {"remainingItemCount": count - 1} if count > 1 else {}
        return {"metadata": rest, "items": [{}] if count else []}

    async def create(self, resource, body, namespace=""):
        if self.failures:
            raise self.failures.pop(0)
        self.there += 1
        self.bodies.append(body)
        return body


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_PERIOD", 0.01)
    monkeypatch.setattr(module, "_PAUSE", 0.01)


def make_subject(number):
    return ReportSubject("v1", "Pod", "shop", f"pod-{number}", f"u-{number}")


def make_entry(rule, result="pass"):
    return {"source": "kyverno", "policy": "p", "rule": rule, "result": result}


def test_results_about_one_object_are_joined():
    async def run():
        api = Api()
        room = EphemeralReports(api, limit=10)
        await room.add(make_subject(1), "pods", [make_entry("a"), make_entry("b")])
        await room.add(make_subject(1), "pods", [make_entry("a", "fail")])
        await room.drain()
        (body,) = api.bodies
        assert [(e["rule"], e["result"]) for e in body["spec"]["results"]] == [
            ("a", "fail"),
            ("b", "pass"),
        ]
        assert body["spec"]["summary"]["fail"] == 1
        assert body["metadata"]["labels"]["audit.kyverno.io/resource.uid"] == "u-1"

    asyncio.run(run())


def test_a_full_room_lets_whoever_brings_more_wait():
    async def run():
        api = Api()
        room = EphemeralReports(api, limit=2)
        for number in (1, 2):
            await room.add(make_subject(number), "pods", [make_entry("a")])
        third = asyncio.create_task(room.add(make_subject(3), "pods", [make_entry("a")]))
        await asyncio.sleep(0.05)
        assert not third.done()
        assert len(room) == 2
        await room.drain()
        await asyncio.wait_for(third, 60)
        assert len(api.bodies) == 2

    asyncio.run(run())


def test_a_full_cluster_is_waited_for():
    async def run():
        api = Api(there=5)
        room = EphemeralReports(api, limit=5)
        await room.add(make_subject(1), "pods", [make_entry("a")])
        task = asyncio.create_task(room.run())
        await asyncio.sleep(0.1)
        assert api.bodies == []
        api.there = 0
        await asyncio.sleep(0.1)
        assert len(api.bodies) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "sent"),
    [
        pytest.param(ApiError("away", status=503), 1, id="tried-again"),
        pytest.param(ApiError("away", status=0), 1, id="unreachable"),
        pytest.param(NotFoundError("namespace", status=404), 0, id="namespace-gone"),
        pytest.param(ApiError("terminating", status=403), 0, id="namespace-going"),
    ],
)
def test_failures(failure, sent):
    async def run():
        api = Api()
        api.failures = [failure]
        room = EphemeralReports(api, limit=5)
        task = asyncio.create_task(room.run())
        await room.add(make_subject(1), "pods", [make_entry("a")])
        await asyncio.sleep(0.15)
        assert len(api.bodies) == sent
        assert len(room) == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_what_waits_is_sent_at_the_end():
    async def run():
        api = Api()
        room = EphemeralReports(api, limit=50)
        task = asyncio.create_task(room.run())
        await asyncio.sleep(0)
        for number in range(20):
            await room.add(make_subject(number), "pods", [make_entry("a")])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(api.bodies) == 20

    asyncio.run(run())


def test_flags_choose_what_is_reported():
    form = read_form(Flags(allowed_results="fail, error", enable_reporting="validate"))
    assert form.statuses == {"fail", "error"}
    assert form.rules == {"validate"}
