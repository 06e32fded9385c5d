"""Exceptions are found by the policies that they name, and read only where one is there."""

import asyncio
import copy
from typing import Any

import orjson

from lictor.core.families.registry import registry
from lictor.core.model.metadata import PolicyRecord
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import Resource, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy, read_policy
from lictor.policies.stored_exceptions import StoredExceptions

Object = dict[str, Any]
FLAGS = Flags(enable_policy_exception=True, exception_namespace="*")


def make_classic(name: str, *policies: str, version: str = "1") -> Object:
    named = [{"policyName": policy, "ruleNames": ["*"]} for policy in policies]
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version},
        "spec": {
            "exceptions": named,
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        },
    }


def make_cel(name: str, *policies: str) -> Object:
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
        "spec": {"policyRefs": [{"name": each, "kind": "ValidatingPolicy"} for each in policies]},
    }


def make_policy(group: str, kind: str, name: str, namespace: str = "") -> StoredPolicy:
    document = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {},
    }
    resource = find_resource(registry().get(group, kind))
    return read_policy(resource, document, {}, always_ignore=False)


CLUSTER_POLICY = make_policy("kyverno.io", "ClusterPolicy", "a")
POLICY = make_policy("kyverno.io", "Policy", "a", "team")
VALIDATING = make_policy("policies.kyverno.io", "ValidatingPolicy", "a")
NAMESPACED = make_policy("policies.kyverno.io", "NamespacedValidatingPolicy", "a", "team")


def store(exceptions: StoredExceptions, *documents: Object) -> None:
    """What a watch would do."""
    for document in documents:
        group = document["apiVersion"].partition("/")[0]
        (cache,) = (each for each in exceptions.caches if each.resource.group == group)
        cache._put(cache.keep(copy.deepcopy(document)))


def open_store(*documents: Object) -> StoredExceptions:
    exceptions = StoredExceptions(None, FLAGS)
    store(exceptions, *documents)
    return exceptions


def list_names(found: tuple[PolicyRecord, ...]) -> list[str]:
    return [record.metadata.name for record in found]


def test_exceptions_are_found_by_the_policies_that_they_name() -> None:
    exceptions = open_store(
        make_classic("plain", "other", "a"),
        make_classic("of team", "team/a"),
        make_classic("elsewhere", "b"),
        make_cel("plain", "a"),
        make_cel("cel elsewhere", "b"),
    )
    assert list_names(exceptions.find(CLUSTER_POLICY)) == ["plain"]
    assert list_names(exceptions.find(POLICY)) == ["of team"]
    assert list_names(exceptions.find(VALIDATING)) == ["plain"]
    assert list_names(exceptions.find(NAMESPACED)) == ["plain"]
    assert sorted(list_names(exceptions.find_named(POLICY))) == ["of team", "plain", "plain"]
    family = registry().get("policies.kyverno.io", "PolicyException").family
    assert list_names(tuple(exceptions.list_all({family}))) == ["cel elsewhere", "plain"]


def test_they_come_in_the_order_of_their_names() -> None:
    exceptions = open_store(*(make_classic(name, "a") for name in ("c", "a", "b")))
    assert list_names(exceptions.find(CLUSTER_POLICY)) == ["a", "b", "c"]


def test_documents_are_what_came() -> None:
    document = make_classic("plain", "a")
    managed = copy.deepcopy(document)
    managed["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert open_store(managed).find_documents(CLUSTER_POLICY) == (document,)


def test_one_that_cannot_be_read_excepts_nothing() -> None:
    broken = make_classic("broken", "a")
    broken["spec"]["exceptions"] = "a"
    exceptions = open_store(broken, make_classic("fine", "a"))
    assert list_names(exceptions.find(CLUSTER_POLICY)) == ["fine"]


def test_only_what_has_changed_is_read_again() -> None:
    exceptions = open_store(*(make_classic(name, "b") for name in "xyz"))
    asyncio.run(exceptions.prepare())
    before, revision = dict(exceptions._entries), exceptions.revision
    assert not exceptions._records, "no policy is there that they name"
    store(exceptions, make_classic("y", "a", version="2"))
    assert exceptions.revision != revision
    (found,) = exceptions.find(CLUSTER_POLICY)
    assert found.metadata.name == "y"
    assert exceptions.find(CLUSTER_POLICY)[0] is found
    again = [place[2] for place, entry in exceptions._entries.items() if entry is not before[place]]
    assert again == ["y"]


def test_what_is_gone_is_not_found() -> None:
    exceptions = open_store(make_classic("x", "a"), make_classic("y", "a"))
    assert list_names(exceptions.find(CLUSTER_POLICY)) == ["x", "y"]
    cache: Cache = next(each for each in exceptions.caches if len(each))
    cache._replace_all([cache.keep(make_classic("y", "a"))])
    assert list_names(exceptions.find(CLUSTER_POLICY)) == ["y"]


def test_without_the_flag_there_are_none() -> None:
    exceptions = StoredExceptions(None, Flags(exception_namespace=""))
    assert exceptions.caches == ()
    assert exceptions.find(CLUSTER_POLICY) == ()


def test_an_exception_takes_little_more_room_than_its_text() -> None:
    document = make_classic("x", "a")
    exceptions = open_store(document)
    (item,) = (item for cache in exceptions.caches for item in cache.list())
    assert orjson.loads(item["packed"]) == document
    assert item["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion"}


class CountingClient:
    """Says how many classic exceptions exist."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = 0
        self.is_asked = asyncio.Event()

    async def count(self, resource: Resource, namespace: str = "") -> int:
        self.asked += 1
        self.is_asked.set()
        return self.number if resource.group == "kyverno.io" else 0


def test_exceptions_that_no_watch_has_reported_yet_are_waited_for() -> None:
    async def main() -> None:
        client = CountingClient(2)
        exceptions = StoredExceptions(client, FLAGS)
        store(exceptions, make_classic("old", "a"))
        callers = [asyncio.create_task(exceptions.catch_up()) for _ in range(5)]
        await client.is_asked.wait()
        store(exceptions, make_classic("new", "a"))
        assert all(await asyncio.gather(*callers))
        # The first caller asks about both kinds; the others share what is asked next at the latest.
        assert client.asked <= 4
        assert list_names(exceptions.find(CLUSTER_POLICY)) == ["new", "old"]
        assert not await exceptions.catch_up()

    asyncio.run(main())
