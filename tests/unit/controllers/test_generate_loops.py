"""Units put right: what should be there is made, and what should not be there goes."""

import asyncio

import pytest
from generation_site import CLONE, DATA, Site, make_policy, run, until

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.families.registry import registry
from lictor.core.model.request import Request
from lictor.kubernetes.cache import Change, ChangeType
from lictor.kubernetes.resource import CONFIG_MAP, NAMESPACE, SECRET, find_resource

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))


def test_made_once_and_then_left_alone():
    site = Site(make_policy(**DATA, synchronize=False))
    site.add_namespace("a")

    async def work(site):
        await site.ask("a")
        assert site.made("a")["data"] == {"text": "right"}
        site.api.edit(CONFIG_MAP, "made", "a", data={"text": "mine"})
        await site.ask("a")
        assert site.made("a")["data"] == {"text": "mine"}

    run(site, work)
    assert [write[0] for write in site.api.writes] == ["create"]


def test_kept_in_step_without_a_write_too_many():
    site = Site(make_policy(**DATA))
    site.add_namespace("a")

    async def work(site):
        for _ in range(3):
            await site.generation.reconcile(site.unit("a"))
        assert [write[0] for write in site.api.writes] == ["create"]
        site.api.edit(CONFIG_MAP, "made", "a", data={"text": "wrong"})
        await until(lambda: site.made("a")["data"] == {"text": "right"})
        await site.api.delete(CONFIG_MAP, "made", "a")
        await until(lambda: site.made("a"))
        label = {"metadata": {**site.made("a")["metadata"], "labels": {}}}
        site.api.edit(CONFIG_MAP, "made", "a", **label)
        await until(lambda: site.made("a")["metadata"]["labels"])

    run(site, work)


def test_two_at_once_make_one():
    site = Site(make_policy(**DATA))
    site.add_namespace("a")

    async def work(site):
        await asyncio.gather(*(site.generation.reconcile(site.unit("a")) for _ in range(5)))

    run(site, work)
    assert [write[0] for write in site.api.writes] == ["create"]


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
    site = Site(policy)
    uid = site.add_namespace("a")

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        unit = site.unit("a")
        await site.api.delete(NAMESPACE, "a")
        await site.generation.reconcile(unit)

    run(site, work)
    assert bool(site.made("a")) is stays


def test_the_trigger_is_none_any_more():
    site = Site(make_policy(**DATA, when="yes"))
    uid = site.add_namespace("a", on="yes")

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        metadata = {**site.api.read(NAMESPACE, "a")["metadata"], "labels": {"on": "no"}}
        site.api.edit(NAMESPACE, "a", metadata=metadata)
        site.trigger_watch.hear(Change(ChangeType.MODIFIED, {"metadata": metadata}))
        await until(lambda: not site.made("a"))

    run(site, work)


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
    site = Site(make_policy(**generate))
    uid = site.add_namespace("a")
    site.api.seed(SECRET, {"metadata": {"name": "source", "namespace": "vault"}, "data": {}})
    kind = "secrets" if "clone" in generate else "configmaps"

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        site.set()
        await site.watch.sweep()

    run(site, work)
    assert bool(site.made("a", kind=kind)) is stays


def test_nothing_is_watched_for_a_policy_that_is_gone():
    site = Site(make_policy(**CLONE))
    uid = site.add_namespace("a")
    site.api.seed(SECRET, {"metadata": {"name": "source", "namespace": "vault"}, "data": {}})

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        await site.watch.sweep()
        site.downstream.linger = -1.0
        await site.watch.release([])
        # As long as the policy is there, its copies and their source are.
        assert {each.kind for each in site.downstream.watched} == {"Secret"}
        site.set()
        await site.watch.sweep()
        await site.watch.release([])
        assert site.downstream.watched == frozenset()
        assert site.downstream.units_of(uid) == []
        # Whoever needs them again hears of them again.
        await site.downstream.follow(SECRET)
        assert site.downstream.units_of(uid)

    run(site, work)


def test_a_policy_that_only_seems_to_be_gone_takes_nothing_along():
    site = Site(make_policy(**DATA))
    uid = site.add_namespace("a")
    site.api.seed(CLUSTER_POLICY, {"metadata": {"name": "policy"}})

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        site.set()  # our own list of policies is empty for a moment
        await site.watch.sweep()

    run(site, work)
    assert site.made("a")


def test_another_target_lets_the_old_one_go():
    site = Site(make_policy(**DATA))
    uid = site.add_namespace("a")

    async def work(site):
        await site.ask("a")
        await until(lambda: site.downstream.units_of(uid))
        site.set(make_policy(**DATA, name="other"))
        await site.generation.reconcile(site.unit("a"))

    run(site, work)
    assert site.made("a", "other")
    labels = site.made("a")["metadata"]["labels"]
    assert "generate.kyverno.io/policy-name" not in labels


def test_copies_follow_their_source():
    site = Site(make_policy(**CLONE))
    site.add_namespace("a")
    source = {"metadata": {"name": "source", "namespace": "vault"}, "data": {"x": "1"}}
    site.api.seed(SECRET, source)

    async def work(site):
        await site.ask("a")
        await until(
            lambda: site.downstream.copies_of(
                site.api.read(SECRET, "source", "vault")["metadata"]["uid"]
            )
        )
        site.api.edit(SECRET, "source", "vault", data={"x": "2"})
        await until(lambda: site.made("a", kind="secrets")["data"] == {"x": "2"})
        await site.api.delete(SECRET, "source", "vault")
        await until(lambda: not site.made("a", kind="secrets"))
        await asyncio.sleep(0.1)
        assert len(site.queue) == 0  # nothing is tried for ever

    run(site, work)


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
    site = Site(make_policy(**DATA, operations=["CREATE", "UPDATE"]))
    site.add_namespace("a")
    metadata = {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    now = {**site.api.read(NAMESPACE, "a"), "metadata": metadata, "spec": {"a": 1}}
    before = None if old is None else {**now, "metadata": {"name": "a"}, **old}

    async def work(site):
        request = Request.of(now, operation="UPDATE", old=before)
        await site.generation.reconcile(site.unit("a"), request)

    run(site, work)
    assert bool(site.made("a")) is is_made


def test_a_missing_source_is_told():
    site = Site(make_policy(**CLONE))
    site.add_namespace("a")

    async def work(site):
        with pytest.raises(EvaluationError, match="not found"):
            await site.generation.reconcile(site.unit("a"))

    run(site, work)
    assert "not found" in site.done[0].failure


def test_one_that_cannot_be_made_is_told():
    site = Site(make_policy(**DATA))
    site.add_namespace("a")
    site.api.forbidden.add(("create", "configmaps"))

    async def work(site):
        with pytest.raises(EvaluationError, match="cannot create"):
            await site.generation.reconcile(site.unit("a"))
        site.namespaces.ending.add("a")
        # Where the namespace is on its way out, nothing is wrong.
        await site.generation.reconcile(site.unit("a"))

    run(site, work)


def test_rights_that_come_later():
    site = Site(make_policy(**DATA))
    site.add_namespace("a")
    site.api.forbidden |= {("list", "configmaps"), ("watch", "configmaps")}

    async def work(site):
        with pytest.raises(LookupFailedError, match="cannot list"):
            await site.generation.reconcile(site.unit("a"))
        site.api.forbidden.discard(("list", "configmaps"))
        # To list is enough.
        await site.generation.reconcile(site.unit("a"))
        assert site.made("a")

    run(site, work)


def test_what_was_made_is_found_again():
    site = Site(make_policy(**DATA))
    uid = site.add_namespace("a")

    async def work(site):
        await site.generation.reconcile(site.unit("a"))
        await site.downstream.stop()
        assert not site.downstream.units_of(uid)
        await site.downstream.discover([CONFIG_MAP, SECRET])
        assert site.downstream.units_of(uid) == [site.unit("a")]

    run(site, work)


async def _is_newer(version):
    site = Site()
    policy = make_policy(**DATA)
    policy["metadata"].update(
        uid="p", generation=1, resourceVersion="100", creationTimestamp="2024-01-31T12:00:00Z"
    )
    for listener in site.store.listeners:
        listener(Change(ChangeType.ADDED, policy))
    # By the time that rules are asked for, the policy has the version of its status.
    policy["metadata"]["resourceVersion"] = "200"
    site.set(policy)
    (rule,) = site.book.rules
    trigger = {
        "metadata": {"resourceVersion": version, "creationTimestamp": "2024-01-31T12:00:00Z"}
    }
    return await site.book.is_newer(rule, trigger)


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


def test_what_a_rule_makes_does_not_trigger_it_again():
    policy = make_policy(**DATA, name="{{request.object.metadata.name}}-y", namespace="default")
    policy["spec"]["rules"][0]["match"]["any"][0]["resources"]["kinds"] = ["Namespace", "Config*"]
    site = Site(policy)
    site.add_namespace("a")

    async def work(site):
        await site.ask("a")
        rule = site.book.find(site.unit("a"))
        made = {"apiVersion": "v1", "kind": "ConfigMap", **site.made("default", "a-y")}
        assert not await site.generation.makes(rule, made)
        assert not await site.generation.is_wanted(rule, made)
        # Labels that any user can copy prove nothing.
        forged = {**made, "metadata": {**made["metadata"], "name": "b"}}
        assert await site.generation.makes(rule, forged)
        assert await site.generation.is_wanted(rule, forged)

    run(site, work)
