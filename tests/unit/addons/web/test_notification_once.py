"""Each violation is told once: over scans, restarts, dead targets and changes of the settings."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from notification_server import HeldResults, HeldState, Reply, TargetServer, make_result, run_target

from lictor.addons.web.notifications import memory
from lictor.addons.web.notifications.memory import (
    FolderStore,
    NotifiedResults,
    identify_result,
    pack_keys,
    unpack_keys,
)
from lictor.addons.web.notifications.notifier import Notifier, build_notifier, run_notifier
from lictor.addons.web.notifications.settings import (
    NotificationFilter,
    NotificationSettings,
    NotificationTarget,
    WebhookTarget,
)
from lictor.addons.web.results import ResultIndex
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import ConflictError
from lictor.core.raw import Json

Run = Callable[[HeldResults], Awaitable[None]]


def hook(server: TargetServer, name: str = "hook", **more: Json) -> NotificationTarget:
    url = f"{server.url}/{name}"
    return NotificationTarget(name, webhook=WebhookTarget(url), max_per_minute=10_000, **more)


def names_of(server: TargetServer, name: str = "hook") -> list[str]:
    return [got.json["data"]["resource"]["name"] for got in server.got if got.target == f"/{name}"]


class Page:
    """Runs of one page after the other, with the same folder."""

    def __init__(self, folder: Path | None, *targets: NotificationTarget, **more: Json) -> None:
        self.store = None if folder is None else FolderStore(folder)
        self.settings = NotificationSettings(targets, **more)

    def run(self, state: Json, do: Json, until: Callable[[], bool] | None = None) -> None:
        """Start, do something, and end once everything was told, or `until` holds."""

        async def run() -> None:
            self.notifier = notifier = build_notifier(state, self.settings, store=self.store)
            running = asyncio.create_task(run_notifier(notifier))
            await wait_for(lambda: notifier.is_leading)
            await do(state.results)
            await wait_for(until or (lambda: is_idle(notifier)))
            # For what should not come.
            await asyncio.sleep(0.05)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        asyncio.run(run())


def is_idle(notifier: Notifier) -> bool:
    return not any(list(queue.waiting) for _, queue in notifier._targets)


async def wait_for(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def nothing(_: HeldResults) -> None:
    return None


def add(*results: Json) -> Run:
    async def do(held: HeldResults) -> None:
        held.change(results)

    return do


def test_a_first_start_does_not_tell_the_past(tmp_path: Path) -> None:
    held = HeldResults([make_result(f"old-{i}") for i in range(20)])
    with run_target() as server:
        page = Page(tmp_path, hook(server))
        page.run(HeldState(held), add(make_result("new")))
        assert names_of(server) == ["new"]


def test_without_a_memory_every_start_is_a_first_one() -> None:
    held = HeldResults([make_result("old")])
    with run_target() as server:
        page = Page(None, hook(server))
        page.run(HeldState(held), add(make_result("new")))
        page.run(HeldState(held), nothing)
        assert names_of(server) == ["new"]


def test_nothing_is_told_before_everything_was_read(tmp_path: Path) -> None:
    held = HeldResults()
    state = HeldState(held)
    state.unread = {"prod"}

    async def do(_: HeldResults) -> None:
        held.change([make_result("old")])
        await asyncio.sleep(0.1)
        state.unread = set()
        await wait_for(lambda: bool(page.notifier._notified.covered))
        held.change([make_result("new")])

    with run_target() as server:
        page = Page(tmp_path, hook(server))
        page.run(state, do)
        assert names_of(server) == ["new"]


def test_what_came_while_nobody_ran_is_told_at_the_next_start(tmp_path: Path) -> None:
    with run_target() as server:
        page = Page(tmp_path, hook(server))
        page.run(HeldState(HeldResults([make_result("old")])), add(make_result("first")))
        rows = [make_result(name) for name in ("old", "first", "meanwhile")]
        page.run(HeldState(HeldResults(rows)), nothing)
        page.run(HeldState(HeldResults(rows)), nothing)
        assert names_of(server) == ["first", "meanwhile"]


def test_a_scan_that_says_the_same_again_tells_nothing(tmp_path: Path) -> None:
    held = HeldResults()
    first = make_result("web")
    later = make_result("web", timestamp=1_700_009_999, position=3, message="in other words")

    async def do(_: HeldResults) -> None:
        held.change([first])
        held.change([later], [first])
        # A second report says it too, and one of them goes.
        held.change([make_result("web", report="other")])
        held.change(removed=[later])
        # A report is made anew.
        held.change(removed=[make_result("web", report="other")])
        await asyncio.sleep(0.05)
        held.change([later])

    with run_target() as server:
        Page(tmp_path, hook(server)).run(HeldState(held), do)
        assert names_of(server) == ["web"]


def test_what_was_gone_for_long_is_told_again(tmp_path: Path) -> None:
    held = HeldResults()

    async def do(_: HeldResults) -> None:
        held.change([make_result("web")])
        held.change(removed=[make_result("web")])

    with run_target() as server:
        page = Page(tmp_path, hook(server), repeat_after="0s")
        page.run(HeldState(held), do)
        # One look later it is forgotten.
        page.run(HeldState(held), nothing)
        page.run(HeldState(held), add(make_result("web")))
        assert names_of(server) == ["web", "web"]


def test_another_status_is_another_result(tmp_path: Path) -> None:
    async def do(held: HeldResults) -> None:
        held.change([make_result("web")])
        held.change([make_result("web", status="pass")], [make_result("web")])
        held.change([make_result("web", status="error")], [make_result("web", status="pass")])

    with run_target() as server:
        Page(tmp_path, hook(server)).run(HeldState(HeldResults()), do)
        assert [got.json["data"]["status"] for got in server.got] == ["fail", "error"]


def test_each_target_gets_its_own_and_a_dead_one_gets_it_after_a_restart(tmp_path: Path) -> None:
    is_dead = True

    def answer(got: Json) -> Reply:
        return Reply(503 if is_dead and got.target == "/dead" else 200)

    with run_target(answer) as server:
        page = Page(tmp_path, hook(server), hook(server, "dead"))
        held = HeldResults()
        result = add(make_result("a"), make_result("b"))
        page.run(HeldState(held), result, lambda: len(names_of(server)) == 2)
        assert names_of(server) == ["a", "b"]
        is_dead = False
        server.got.clear()
        page.run(HeldState(HeldResults([make_result("b"), make_result("a")])), nothing)
        assert names_of(server) == []
        assert sorted(names_of(server, "dead")) == ["a", "b"]
        server.got.clear()
        page.run(HeldState(held), nothing)
        assert server.got == []


def test_a_new_target_or_a_wider_filter_is_not_told_the_past(tmp_path: Path) -> None:
    low = make_result("low", severity="low")
    warning = make_result("warning", status="warn")
    with run_target() as server:
        narrow = hook(server, filter=NotificationFilter(minimum_severity="high"))
        Page(tmp_path, narrow).run(HeldState(HeldResults([low, warning])), nothing)
        wide = hook(server, filter=NotificationFilter(statuses=("fail", "warn")))
        page = Page(tmp_path, wide, hook(server, "other"))
        page.run(HeldState(HeldResults([low, warning])), add(make_result("new", status="warn")))
        assert names_of(server) == ["new"]
        assert names_of(server, "other") == []


def test_a_cluster_that_was_never_looked_at_brings_no_past(tmp_path: Path) -> None:
    with run_target() as server:
        page = Page(tmp_path, hook(server))
        page.run(HeldState(HeldResults()), nothing)
        held = HeldResults([make_result("there", cluster="stage")])
        state = HeldState(held, ("prod", "stage"))
        page.run(state, add(make_result("new", cluster="stage")))
        assert names_of(server) == ["new"]


def test_a_cluster_that_does_not_answer_holds_up_nothing(tmp_path: Path) -> None:
    """Its results are neither gone while it is away nor new when it is back."""
    far = [make_result("far-1", cluster="far"), make_result("far-2", cluster="far")]
    is_dead = True
    with run_target(lambda _: Reply(503 if is_dead else 200)) as server:
        page = Page(tmp_path, hook(server), repeat_after="0s")
        state = HeldState(HeldResults([far[0]]), ("prod", "far"))
        page.run(state, add(far[1]), lambda: len(server.got) == 1)
        is_dead = False
        server.got.clear()
        state = HeldState(HeldResults(), ("prod", "far"))
        state.unread = {"far"}

        async def do(held: HeldResults) -> None:
            held.change([make_result("near")])
            await wait_for(lambda: names_of(server) == ["near"])
            await asyncio.sleep(0.3)
            held.change([*far, make_result("far-3", cluster="far")])

        page.run(state, do)
        # The one that was not sent before the restart, and the one that is new.
        assert names_of(server) == ["near", "far-2", "far-3"]


def test_a_memory_that_cannot_be_read_tells_no_past(tmp_path: Path) -> None:
    with run_target() as server:
        page = Page(tmp_path, hook(server))
        page.run(HeldState(HeldResults()), nothing)
        for path in tmp_path.iterdir():
            path.write_bytes(b"\xc1 no record")
        page.run(HeldState(HeldResults([make_result("old")])), add(make_result("new")))
        page.run(HeldState(HeldResults([make_result("old"), make_result("new")])), nothing)
        assert names_of(server) == ["new"]


def test_a_fault_of_the_notifier_does_not_end_the_page(tmp_path: Path) -> None:
    class Broken(HeldState):
        def is_cluster_ready(self, cluster: str) -> bool:
            raise RuntimeError("broken")

    async def run() -> bool:
        state = Broken(HeldResults())
        notifier = build_notifier(state, NotificationSettings((hook(server),)))
        running = asyncio.create_task(run_notifier(notifier))
        await asyncio.sleep(0.1)
        alive = not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return alive

    with run_target() as server:
        assert asyncio.run(run())


def make_report(name: str, *entries: Json) -> Json:
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {"name": f"report-{name}", "namespace": "team-a"},
        "scope": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"},
        "results": [
            {"policy": "p", "source": "kyverno", "timestamp": {"seconds": 1_700_000_000}, **entry}
            for entry in entries
        ],
    }


def test_reports_as_the_index_tells_of_them(tmp_path: Path) -> None:
    """The index itself: a scan changes times and order, one result is repaired and one is new."""
    fail, other = {"rule": "a", "result": "fail"}, {"rule": "b", "result": "fail"}
    data = PageData(("prod",))
    data.results.put_report("prod", make_report("old", fail))
    data.results.end_first_read("prod")

    async def do(index: ResultIndex) -> None:
        index.put_report("prod", make_report("web", fail))
        index.put_report("prod", make_report("web", {**other, "result": "pass"}, fail))
        later = {**fail, "timestamp": {"seconds": 1_700_005_000}}
        index.put_report("prod", make_report("web", other, later))
        index.drop_report("prod", make_report("web"))
        index.put_report("prod", make_report("web", other))

    with run_target() as server:
        Page(tmp_path, hook(server)).run(data, do)
        notified = [(got.json["subject"], got.json["data"]["rule"]) for got in server.got]
    assert notified == [("team-a/Pod/web", "a"), ("team-a/Pod/web", "b")]


# --- keys and records


def test_what_makes_a_result_the_same() -> None:
    key = identify_result(make_result())
    same: list[Json] = [{"timestamp": 1}, {"position": 9}, {"message": "x"}, {"severity": "low"}]
    assert {identify_result(make_result(**parts)) for parts in same} == {key}
    fields = ("cluster", "source", "policy", "rule", "status", "kind", "namespace", "name", "uid")
    others = {identify_result(make_result(**{field: "other"})) for field in fields}
    assert len(others | {key}) == len(fields) + 1
    # Other tools name no rule: what they say tells results apart, or a number of their own.
    assert identify_result(make_result(rule="", message="a")) != identify_result(
        make_result(rule="", message="b")
    )
    assert identify_result(make_result(properties={"resultID": "1"})) != key


class Records:
    """A store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.written: list[tuple[str, int]] = []
        self.fails = False

    async def read(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def write(self, name: str, data: bytes) -> None:
        if self.fails:
            raise ConflictError("someone else was first")
        self.kept[name] = data
        self.written.append((name, len(data)))


async def reload(store: Records) -> NotifiedResults:
    notified = NotifiedResults(store, 3600)
    await notified.load()
    return notified


def fill(notified: NotifiedResults, keys: Iterable[int]) -> None:
    for key in keys:
        notified.add(key)


def test_keys_are_packed_and_unpacked() -> None:
    keys = {0, 1, 255, 2**40 - 1, identify_result(make_result())}
    assert set(unpack_keys(pack_keys(keys))) == keys
    assert len(pack_keys(keys)) == 5 * len(keys)


def test_a_small_change_is_a_small_record() -> None:
    async def run() -> None:
        store = Records()
        notified = NotifiedResults(store, 3600)
        fill(notified, range(100_000))
        notified.covered = {("prod", "fail")}
        await notified.save({"hook": (5,)})
        assert store.written[0][0] == "snapshot"
        # What a ConfigMap can hold.
        assert store.written[0][1] < 600_000
        store.written.clear()
        notified.add(200_000)
        await notified.save({})
        assert [name for name, size in store.written if size < 200] == ["recent"]
        again = await reload(store)
        assert len(again) == 100_001
        assert 200_000 in again
        assert again.covered == {("prod", "fail")}

    asyncio.run(run())


def test_many_changes_become_a_new_snapshot() -> None:
    async def run() -> None:
        store = Records()
        notified = NotifiedResults(store, 0)
        fill(notified, range(10))
        await notified.save({})
        notified.note_gone(3, 0.0)
        assert notified.forget(1.0)
        await notified.save({"hook": (4,)})
        again = await reload(store)
        assert (3 in again, 4 in again, again.left_over) == (False, True, {"hook": {4}})
        fill(again, range(1000, 4000))
        store.written.clear()
        await again.save({})
        assert [name for name, _ in store.written] == ["snapshot", "recent"]
        assert len(await reload(store)) == 3009

    asyncio.run(run())


def test_a_write_that_fails_loses_nothing() -> None:
    async def run() -> None:
        store = Records()
        notified = NotifiedResults(store, 0)
        fill(notified, range(5000))
        store.fails = True
        with pytest.raises(ConflictError):
            await notified.save({})
        notified.note_gone(1, 0.0)
        notified.forget(1.0)
        store.fails = False
        await notified.save({})
        again = await reload(store)
        assert (len(again), 1 in again) == (4999, False)

    asyncio.run(run())


def test_a_snapshot_without_its_changes_is_read_as_it_is() -> None:
    async def run() -> None:
        store = Records()
        notified = NotifiedResults(store, 0)
        fill(notified, range(10))
        await notified.save({})
        notified.add(77)
        await notified.save({})
        older = store.kept["recent"]
        fill(notified, range(100, 4000))
        await notified.save({})
        # The process ended between the two writes.
        store.kept["recent"] = older
        again = await reload(store)
        assert len(again) == 3911

    asyncio.run(run())


def test_memory_is_bounded() -> None:
    async def run() -> None:
        store = Records()
        notified = NotifiedResults(store, 3600)
        notified.covered = {("prod", "fail")}
        fill(notified, range(memory.MOST_REMEMBERED))
        notified.note_gone(7, time.monotonic())
        notified.add(10**9)
        # What is gone makes room first.
        assert (7 in notified, 10**9 in notified, notified.is_cut) == (False, True, False)
        notified.add(10**9 + 1)
        assert (len(notified), notified.is_cut) == (memory.MOST_REMEMBERED, True)
        await notified.save({})
        assert max(size for _, size in store.written) * 4 / 3 <= 1024 * 1024
        # What is there at the next start counts as told: nothing says which of it is new.
        assert (await reload(store)).covered == set()

    asyncio.run(run())


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    async def run() -> None:
        store = FolderStore(tmp_path / "new")
        assert await store.read("recent") is None
        await store.write("recent", b"a" * 1000)
        await store.write("recent", b"b")
        assert await store.read("recent") == b"b"
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["notifications-recent"]

    asyncio.run(run())
