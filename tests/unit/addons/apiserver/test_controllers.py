"""What the server does by itself: garbage, namespaces, aggregated roles."""

import asyncio

import pytest
from embedded_site import CONFIG_MAPS, Answer, Site, config_map, run_on_site

from lictor.core.errors import UsageError
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.work_queue import WorkQueue

NAMESPACES = "/api/v1/namespaces"


def is_gone(answer: Answer) -> bool:
    return answer.status == 404


def is_there(answer: Answer) -> bool:
    return answer.status == 200


async def own(
    site: Site, name: str, *owners: JsonObject, blocks: bool = True, **more: Json
) -> JsonObject:
    """A ConfigMap that belongs to others."""
    document = config_map(name)
    document["metadata"] |= more
    document["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    return await site.create(CONFIG_MAPS, document)


async def names(site: Site) -> set[str]:
    listed = (await site.get(CONFIG_MAPS)).json["items"]
    return {each["metadata"]["name"] for each in listed} - {"kube-root-ca.crt"}


# --- garbage


def test_dependents_go_after_their_owner() -> None:
    async def work(site: Site) -> None:
        owner = await site.create(CONFIG_MAPS, config_map("owner"))
        child = await own(site, "child", owner)
        await own(site, "grandchild", child)
        await site.delete(f"{CONFIG_MAPS}/owner")
        await site.until(f"{CONFIG_MAPS}/grandchild", is_gone)
        assert await names(site) == set()

    run_on_site(work)


def test_dependents_go_before_their_owner() -> None:
    async def work(site: Site) -> None:
        owner = await site.create(CONFIG_MAPS, config_map("owner"))
        await own(site, "held", owner, finalizers=["example.com/wait"])
        await own(site, "free", owner)
        deleted = await site.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
        assert deleted.json["metadata"]["finalizers"] == ["foregroundDeletion"]
        await site.until(f"{CONFIG_MAPS}/free", is_gone)
        await asyncio.sleep(0.1)
        assert await names(site) == {"owner", "held"}
        await site.patch(f"{CONFIG_MAPS}/held", {"metadata": {"finalizers": None}})
        await site.until(f"{CONFIG_MAPS}/owner", is_gone)
        assert await names(site) == set()

    run_on_site(work)


def test_those_who_do_not_block_are_not_waited_for() -> None:
    async def work(site: Site) -> None:
        owner = await site.create(CONFIG_MAPS, config_map("owner"))
        await own(site, "held", owner, blocks=False, finalizers=["example.com/wait"])
        await site.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
        await site.until(f"{CONFIG_MAPS}/owner", is_gone)
        held = (await site.get(f"{CONFIG_MAPS}/held")).json
        assert held["metadata"]["deletionTimestamp"]

    run_on_site(work)


def test_orphans_stay_and_forget() -> None:
    async def work(site: Site) -> None:
        owner = await site.create(CONFIG_MAPS, config_map("owner"))
        await own(site, "child", owner)
        await site.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Orphan"})
        await site.until(f"{CONFIG_MAPS}/owner", is_gone)
        child = (await site.get(f"{CONFIG_MAPS}/child")).json
        assert "ownerReferences" not in child["metadata"]

    run_on_site(work)


def test_one_owner_is_enough_to_stay() -> None:
    async def work(site: Site) -> None:
        first = await site.create(CONFIG_MAPS, config_map("first"))
        second = await site.create(CONFIG_MAPS, config_map("second"))
        await own(site, "child", first, second)
        await site.delete(f"{CONFIG_MAPS}/first")

        def has_one(answer: Answer) -> bool:
            return len(answer.json["metadata"].get("ownerReferences", ())) == 1

        await site.until(f"{CONFIG_MAPS}/child", has_one)
        await site.delete(f"{CONFIG_MAPS}/second")
        await site.until(f"{CONFIG_MAPS}/child", is_gone)

    run_on_site(work)


def test_an_owner_that_never_was_is_gone() -> None:
    async def work(site: Site) -> None:
        owner = await site.create(CONFIG_MAPS, config_map("owner"))
        await own(site, "stranger", {"metadata": {"name": "owner", "uid": "other"}})
        await site.until(f"{CONFIG_MAPS}/stranger", is_gone)
        # A kind that nobody knows may come yet.
        document = config_map("patient")
        reference = {"apiVersion": "example.com/v1", "kind": "Car", "name": "c", "uid": "u"}
        document["metadata"]["ownerReferences"] = [reference]
        await site.create(CONFIG_MAPS, document)
        # Owners in another namespace are none.
        other = "/api/v1/namespaces/kube-public/configmaps"
        document = config_map("far")
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        document["metadata"]["ownerReferences"] = [reference]
        await site.create(other, document)
        await site.until(f"{other}/far", is_gone)
        assert await names(site) == {"owner", "patient"}

    run_on_site(work)


# --- namespaces


def test_each_namespace_has_its_account_and_gets_it_back() -> None:
    async def work(site: Site) -> None:
        await site.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        )
        account = f"{NAMESPACES}/n/serviceaccounts/default"
        first = (await site.until(account, is_there)).json["metadata"]["uid"]
        await site.until(f"{NAMESPACES}/n/configmaps/kube-root-ca.crt", is_there)
        await site.delete(account)
        again = await site.until(account, is_there)
        assert again.json["metadata"]["uid"] != first

    run_on_site(work)


def test_a_namespace_goes_with_all_that_is_in_it() -> None:
    async def work(site: Site) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        created = await site.create(NAMESPACES, space)
        assert created["spec"]["finalizers"] == ["kubernetes"]
        held = config_map("held")
        held["metadata"]["finalizers"] = ["example.com/wait"]
        path = f"{NAMESPACES}/n/configmaps"
        await site.create(path, held)
        await site.create(path, config_map("free"))
        deleted = await site.delete(f"{NAMESPACES}/n")
        assert deleted.json["status"]["phase"] == "Terminating"
        await site.until(f"{path}/free", is_gone)
        refused = await site.ask("POST", path, config_map("late"))
        assert refused.status == 403
        assert "is being terminated" in refused.message

        def tells(answer: Answer) -> bool:
            conditions = answer.json.get("status", {}).get("conditions", ())
            return any(each["type"] == "NamespaceContentRemaining" for each in conditions)

        await site.until(f"{NAMESPACES}/n", tells)
        await site.patch(f"{path}/held", {"metadata": {"finalizers": None}})
        await site.until(f"{NAMESPACES}/n", is_gone)
        assert (await site.get(path)).json["items"] == []

    run_on_site(work)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_stay(name: str) -> None:
    async def work(site: Site) -> None:
        answer = await site.delete(f"{NAMESPACES}/{name}")
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")

    run_on_site(work)


def test_what_every_cluster_has() -> None:
    async def work(site: Site) -> None:
        spaces = (await site.get(NAMESPACES)).json["items"]
        found = [each["metadata"]["name"] for each in spaces]
        assert found == ["default", "kube-node-lease", "kube-public", "kube-system"]
        service = (await site.get(f"{NAMESPACES}/default/services/kubernetes")).json
        assert service["spec"]["clusterIP"] == "10.96.0.1"
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        assert (await site.get(f"{roles}/cluster-admin")).status == 200

        def has_rules(answer: Answer) -> bool:
            return bool(answer.json.get("rules"))

        await site.until(f"{roles}/view", has_rules)

    run_on_site(work)


# --- rounds


def test_a_queue_tries_again_what_fails(caplog: pytest.LogCaptureFixture) -> None:
    looked: list[str] = []

    async def look(task: str) -> bool:
        looked.append(task)
        if task == "wrong" and looked.count(task) == 1:
            raise UsageError("no")
        if task == "broken" and looked.count(task) == 1:
            raise TypeError("oops")
        return task != "slow" or looked.count(task) == 3

    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue("things", look)
        for task in ("fine", "fine", "wrong", "broken", "slow"):
            queue.add(task)
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(0.6)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    counts = {task: looked.count(task) for task in ("fine", "wrong", "broken", "slow")}
    assert counts == {"fine": 1, "wrong": 2, "broken": 2, "slow": 3}
    assert "reconcile failed, retrying" in caplog.text


def test_a_queue_repeats_what_changed_meanwhile() -> None:
    looked: list[str] = []

    async def run() -> None:
        queue: WorkQueue[str]
        again = asyncio.Event()

        async def look(task: str) -> bool:
            looked.append(task)
            if len(looked) == 1:
                queue.add(task)
                queue.add(task)
                await asyncio.sleep(0.01)
            else:
                again.set()
            return True

        queue = WorkQueue("things", look)
        queue.add("x")
        running = asyncio.create_task(queue.run())
        async with asyncio.timeout(60):
            await again.wait()
        await asyncio.sleep(0.1)
        running.cancel()

    asyncio.run(run())
    assert looked == ["x", "x"]
