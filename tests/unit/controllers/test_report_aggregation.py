"""EphemeralReports become parts of reports, once, by the replica that owns the object."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from small_api import SmallApi

from lictor.controllers.report_writer import ReportWriter
from lictor.controllers.reports.aggregation import Aggregator
from lictor.core.errors import ApiError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.report.resource_report import ReportSubject, build_ephemeral
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.resource import Resource

POD = ReportSubject("v1", "Pod", "shop", "web", "u-1")
PODS = Resource("", "v1", "pods", "Pod")


class Rights:
    def is_scanned(self, entry):
        return False

    def is_alive(self, entry):
        return True


class Api(SmallApi):
    """Pages, and deletes as the real client does."""

    async def list_pages(self, resource, *_, **__):
        yield {"metadata": {"resourceVersion": "1"}, "items": await self.list(resource)}

    async def watch(self, *_, **__):
        await asyncio.Event().wait()
        yield

    async def delete(self, resource, name, namespace="", **_):
        return self.objects.pop((resource.plural, namespace, name), None) is not None


def make_entry(rule, result="pass"):
    return {"source": "kyverno", "policy": "p", "rule": rule, "result": result}


def send(api, name, subject, *entries, age=0.0):
    body = build_ephemeral(subject, entries)
    created = datetime.now(UTC) - timedelta(seconds=age)
    body["metadata"] |= {"name": name, "creationTimestamp": created.isoformat()}
    api.seed(kinds.EPHEMERAL_REPORT, body)


def add_pod(api, uid="u-1"):
    metadata = {"name": "web", "namespace": "shop", "uid": uid}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    api.objects["pods", "shop", "web"] = body


def aggregate(api, owns=lambda _: True):
    async def run():
        cache = Cache(api, kinds.EPHEMERAL_REPORT)
        task = asyncio.create_task(cache.run())
        await cache.wait()
        writer = ReportWriter(api, Rights(), openreports=False)
        loop = Aggregator(api, (cache,), writer, owns=owns, names=builtin_names)
        try:
            await loop.reconcile()
        finally:
            task.cancel()

    asyncio.run(run())


def list_left(api):
    return sorted(name for plural, _, name in api.objects if plural == "ephemeralreports")


def read_results(api):
    report = api.objects.get(("policyreports", "shop", "u-1"))
    return [(e["rule"], e["result"]) for e in report["results"]] if report else None


def test_all_that_was_sent_about_an_object_becomes_one_report():
    api = Api()
    add_pod(api)
    send(api, "z-first", POD, make_entry("a"), make_entry("b"))
    send(api, "a-second", POD, make_entry("a", "fail"))
    aggregate(api)
    # The later result stands, whatever the names of the reports are.
    assert read_results(api) == [("a", "fail"), ("b", "pass")]
    assert list_left(api) == []
    assert [write for write in api.writes if write[1] == "policyreports"] == [
        ("create", "policyreports", "shop", "u-1")
    ]


@pytest.mark.parametrize(
    ("there", "age", "left"),
    [
        pytest.param(None, 0, ["one"], id="not-yet"),
        pytest.param(None, 100, [], id="never"),
        pytest.param("u-other", 100, [], id="another-of-its-name"),
    ],
)
def test_objects_that_are_not_there(there, age, left):
    api = Api()
    if there:
        add_pod(api, there)
    send(api, "one", POD, make_entry("a"), age=age)
    aggregate(api)
    assert list_left(api) == left
    assert read_results(api) is None


def test_what_another_replica_owns_stays():
    api = Api()
    add_pod(api)
    send(api, "one", POD, make_entry("a"))
    aggregate(api, owns=lambda uid: uid != "u-1")
    assert list_left(api) == ["one"]


@pytest.mark.parametrize(("mine", "left"), [(True, []), (False, ["one"])])
def test_what_was_sent_before_there_was_a_uid_goes_to_the_owner_of_the_object(mine, left):
    api = Api()
    add_pod(api)
    send(api, "one", ReportSubject("v1", "Pod", "shop", "web", ""), make_entry("a"))
    aggregate(api, owns=lambda uid: mine if uid == "u-1" else not mine)
    assert list_left(api) == left


def test_a_refused_report_does_not_lie_there_for_ever():
    class Terminating(Api):
        async def create(self, resource, body, namespace=""):
            raise ApiError("being terminated", status=403)

    api = Terminating()
    add_pod(api)
    send(api, "one", POD, make_entry("a"))
    aggregate(api)
    assert list_left(api) == []


def test_an_outage_loses_nothing():
    class Away(Api):
        async def create(self, resource, body, namespace=""):
            raise ApiError("away", status=503)

    api = Away()
    add_pod(api)
    send(api, "one", POD, make_entry("a"))
    with pytest.raises(ApiError, match="away"):
        aggregate(api)
    assert list_left(api) == ["one"]
