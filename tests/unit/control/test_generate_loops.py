"""Units put right: what should be there is made, and what should not be there goes."""

import asyncio

import pytest
from generation_site import CLONE, DATA, Desk, make_policy, run, until

from lictor.cluster.cache import Change, ChangeType
from lictor.cluster.resource import CONFIG_MAP, NAMESPACE, SECRET, find_resource
from lictor.errors import EvaluationError, LookupFailedError
from lictor.families.registry import registry
from lictor.model.request import Request

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))


def test_made_once_and_then_left_alone():
    desk = Desk(make_policy(**DATA, synchronize=False))
    desk.add_namespace("a")

    async def work(desk):
        await desk.ask("a")
        assert desk.made("a")["data"] == {"text": "right"}
        desk.api.edit(CONFIG_MAP, "made", "a", data={"text": "mine"})
        await desk.ask("a")
        assert desk.made("a")["data"] == {"text": "mine"}

    run(desk, work)
    assert [write[0] for write in desk.api.writes] == ["create"]


def test_kept_in_step_without_a_write_too_many():
    desk = Desk(make_policy(**DATA))
    desk.add_namespace("a")

    async def work(desk):
        for _ in range(3):
            await desk.generation.reconcile(desk.unit("a"))
        assert [write[0] for write in desk.api.writes] == ["create"]
        desk.api.edit(CONFIG_MAP, "made", "a", data={"text": "wrong"})
        await until(lambda: desk.made("a")["data"] == {"text": "right"})
        await desk.api.delete(CONFIG_MAP, "made", "a")
        await until(lambda: desk.made("a"))
        label = {"metadata": {**desk.made("a")["metadata"], "labels": {}}}
        desk.api.edit(CONFIG_MAP, "made", "a", **label)
        await until(lambda: desk.made("a")["metadata"]["labels"])

    run(desk, work)


def test_two_at_once_make_one():
    desk = Desk(make_policy(**DATA))
    desk.add_namespace("a")

    async def work(desk):
        await asyncio.gather(*(desk.generation.reconcile(desk.unit("a")) for _ in range(5)))

    run(desk, work)
    assert [write[0] for write in desk.api.writes] == ["create"]


@pytest.mark.parametrize(
    ("policy", "stays"),
    [
        pytest.param(make_policy(**DATA), False, id="synchronize"),
        pytest.param(make_policy(**DATA, synchronize=False), True, id="left-alone"),
        pytest.param(
            make_policy(**DATA, operations=["CREATE", "DELETE"]), True, id="deletion-triggers"
        ),
    ],
)
def test_the_trigger_goes(policy, stays):
    desk = Desk(policy)
    uid = desk.add_namespace("a")

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        unit = desk.unit("a")
        await desk.api.delete(NAMESPACE, "a")
        await desk.generation.reconcile(unit)

    run(desk, work)
    assert bool(desk.made("a")) is stays


def test_the_trigger_is_none_any_more():
    desk = Desk(make_policy(**DATA, when="yes"))
    uid = desk.add_namespace("a", on="yes")

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        metadata = {**desk.api.read(NAMESPACE, "a")["metadata"], "labels": {"on": "no"}}
        desk.api.edit(NAMESPACE, "a", metadata=metadata)
        desk.trigger_watch.hear(Change(ChangeType.MODIFIED, {"metadata": metadata}))
        await until(lambda: not desk.made("a"))

    run(desk, work)


@pytest.mark.parametrize(
    ("generate", "stays"),
    [
        pytest.param(DATA, False, id="data"),
        pytest.param({**DATA, "orphanDownstreamOnPolicyDelete": True}, True, id="orphan"),
        pytest.param({**DATA, "synchronize": False}, True, id="left-alone"),
        pytest.param(CLONE, True, id="copy"),
    ],
)
def test_the_policy_goes(generate, stays):
    desk = Desk(make_policy(**generate))
    uid = desk.add_namespace("a")
    desk.api.seed(SECRET, {"metadata": {"name": "source", "namespace": "vault"}, "data": {}})
    kind = "secrets" if "clone" in generate else "configmaps"

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        desk.set()
        await desk.watch.sweep()

    run(desk, work)
    assert bool(desk.made("a", kind=kind)) is stays


def test_nothing_is_watched_for_a_policy_that_is_gone():
    desk = Desk(make_policy(**CLONE))
    uid = desk.add_namespace("a")
    desk.api.seed(SECRET, {"metadata": {"name": "source", "namespace": "vault"}, "data": {}})

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        await desk.watch.sweep()
        desk.downstream.linger = -1.0
        await desk.watch.release([])
        # As long as the policy is there, its copies and their source are.
        assert {each.kind for each in desk.downstream.watched} == {"Secret"}
        desk.set()
        await desk.watch.sweep()
        await desk.watch.release([])
        assert desk.downstream.watched == frozenset()
        assert desk.downstream.units_of(uid) == []
        # Whoever needs them again hears of them again.
        await desk.downstream.follow(SECRET)
        assert desk.downstream.units_of(uid)

    run(desk, work)


def test_a_policy_that_only_seems_to_be_gone_takes_nothing_along():
    desk = Desk(make_policy(**DATA))
    uid = desk.add_namespace("a")
    desk.api.seed(CLUSTER_POLICY, {"metadata": {"name": "policy"}})

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        desk.set()  # our own list of policies is empty for a moment
        await desk.watch.sweep()

    run(desk, work)
    assert desk.made("a")


def test_another_target_lets_the_old_one_go():
    desk = Desk(make_policy(**DATA))
    uid = desk.add_namespace("a")

    async def work(desk):
        await desk.ask("a")
        await until(lambda: desk.downstream.units_of(uid))
        desk.set(make_policy(**DATA, name="other"))
        await desk.generation.reconcile(desk.unit("a"))

    run(desk, work)
    assert desk.made("a", "other")
    labels = desk.made("a")["metadata"]["labels"]
    assert "generate.kyverno.io/policy-name" not in labels


def test_copies_follow_their_source():
    desk = Desk(make_policy(**CLONE))
    desk.add_namespace("a")
    source = {"metadata": {"name": "source", "namespace": "vault"}, "data": {"x": "1"}}
    desk.api.seed(SECRET, source)

    async def work(desk):
        await desk.ask("a")
        await until(
            lambda: desk.downstream.copies_of(
                desk.api.read(SECRET, "source", "vault")["metadata"]["uid"]
            )
        )
        desk.api.edit(SECRET, "source", "vault", data={"x": "2"})
        await until(lambda: desk.made("a", kind="secrets")["data"] == {"x": "2"})
        await desk.api.delete(SECRET, "source", "vault")
        await until(lambda: not desk.made("a", kind="secrets"))
        await asyncio.sleep(0.1)
        assert len(desk.queue) == 0  # nothing is tried for ever

    run(desk, work)


@pytest.mark.parametrize(
    ("old", "is_made"),
    [
        pytest.param(None, False, id="nothing-is-asked"),
        pytest.param({"spec": {"a": 1}}, False, id="only-its-finalizers"),
        pytest.param({"spec": {"a": 2}}, True, id="what-is-wanted-of-it"),
    ],
)
def test_a_trigger_that_never_leaves_is_still_one(old, is_made):
    """Kyverno's CVE-2023-34091: a finalizer keeps an object that is on its way out for ever."""
    desk = Desk(make_policy(**DATA, operations=["CREATE", "UPDATE"]))
    desk.add_namespace("a")
    metadata = {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    now = {**desk.api.read(NAMESPACE, "a"), "metadata": metadata, "spec": {"a": 1}}
    before = None if old is None else {**now, "metadata": {"name": "a"}, **old}

    async def work(desk):
        request = Request.of(now, operation="UPDATE", old=before)
        await desk.generation.reconcile(desk.unit("a"), request)

    run(desk, work)
    assert bool(desk.made("a")) is is_made


def test_a_missing_source_is_told():
    desk = Desk(make_policy(**CLONE))
    desk.add_namespace("a")

    async def work(desk):
        with pytest.raises(EvaluationError, match="not found"):
            await desk.generation.reconcile(desk.unit("a"))

    run(desk, work)
    assert "not found" in desk.done[0].failure


def test_one_that_cannot_be_made_is_told():
    desk = Desk(make_policy(**DATA))
    desk.add_namespace("a")
    desk.api.forbidden.add(("create", "configmaps"))

    async def work(desk):
        with pytest.raises(EvaluationError, match="cannot create"):
            await desk.generation.reconcile(desk.unit("a"))
        desk.namespaces.ending.add("a")
        # Where the namespace is on its way out, nothing is wrong.
        await desk.generation.reconcile(desk.unit("a"))

    run(desk, work)


def test_rights_that_come_later():
    desk = Desk(make_policy(**DATA))
    desk.add_namespace("a")
    desk.api.forbidden |= {("list", "configmaps"), ("watch", "configmaps")}

    async def work(desk):
        with pytest.raises(LookupFailedError, match="cannot list"):
            await desk.generation.reconcile(desk.unit("a"))
        desk.api.forbidden.discard(("list", "configmaps"))
        # To list is enough.
        await desk.generation.reconcile(desk.unit("a"))
        assert desk.made("a")

    run(desk, work)


def test_what_was_made_is_found_again():
    desk = Desk(make_policy(**DATA))
    uid = desk.add_namespace("a")

    async def work(desk):
        await desk.generation.reconcile(desk.unit("a"))
        await desk.downstream.stop()
        assert not desk.downstream.units_of(uid)
        await desk.downstream.discover([CONFIG_MAP, SECRET])
        assert desk.downstream.units_of(uid) == [desk.unit("a")]

    run(desk, work)


async def _is_newer(version):
    desk = Desk()
    policy = make_policy(**DATA)
    policy["metadata"].update(
        uid="p", generation=1, resourceVersion="100", creationTimestamp="2024-01-31T12:00:00Z"
    )
    for listener in desk.store.listeners:
        listener(Change(ChangeType.ADDED, policy))
    # By the time that rules are asked for, the policy has the version of its status.
    policy["metadata"]["resourceVersion"] = "200"
    desk.set(policy)
    (rule,) = desk.book.rules
    trigger = {
        "metadata": {"resourceVersion": version, "creationTimestamp": "2024-01-31T12:00:00Z"}
    }
    return await desk.book.is_newer(rule, trigger)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("99", False, id="there before the policy"),
        pytest.param("101", True, id="between the policy and its status"),
        pytest.param("201", True, id="after its status"),
    ],
)
def test_in_the_second_of_the_policy_versions_decide(version, expected):
    assert asyncio.run(_is_newer(version)) is expected
