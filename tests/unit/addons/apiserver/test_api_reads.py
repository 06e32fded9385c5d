"""Lists, pages, selectors, forms and watches through HTTP."""

import asyncio
from urllib.parse import quote

import pytest
from embedded_site import CONFIG_MAPS, Answer, Site, config_map, run_on_site

from lictor.addons.apiserver import store, watches
from lictor.core.raw import JsonObject

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def names(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.text
    return [each["metadata"]["name"] for each in answer.json["items"]]


def labelled(name: str, **labels: str) -> JsonObject:
    document = config_map(name)
    document["metadata"]["labels"] = {"set": "mine", **labels}
    return document


MINE = f"{CONFIG_MAPS}?labelSelector=set%3Dmine"


async def fill(site: Site, *names: str) -> None:
    for name in names:
        await site.create(CONFIG_MAPS, labelled(name))


def test_lists_come_in_pages_of_one_moment() -> None:
    async def work(site: Site) -> None:
        await fill(site, *"abcdefg")
        first = await site.get(f"{CONFIG_MAPS}?limit=3")
        assert names(first) == ["a", "b", "c"]
        described = first.json["metadata"]
        # kube-root-ca.crt is there too, or will be.
        assert described["remainingItemCount"] >= 4
        await site.delete(f"{CONFIG_MAPS}/e")
        await fill(site, "ddd")
        rest = await site.get(f"{CONFIG_MAPS}?limit=500&continue={described['continue']}")
        found = names(rest)
        assert found[:4] == ["d", "e", "f", "g"]
        assert rest.json["metadata"]["resourceVersion"] == described["resourceVersion"]
        assert "continue" not in rest.json["metadata"]
        bad = await site.get(f"{CONFIG_MAPS}?limit=3&continue=nonsense")
        assert (bad.status, bad.message) == (
            400,
            "invalid continue token: continue key is not valid",
        )

    run_on_site(work)


def test_pages_that_are_too_old_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MEMORY", 4)

    async def work(site: Site) -> None:
        await fill(site, *"abc")
        token = (await site.get(f"{MINE}&limit=1")).json["metadata"]["continue"]
        await fill(site, *[f"x{number}" for number in range(20)])
        answer = await site.get(f"{MINE}&limit=1&continue={token}")
        assert (answer.status, answer.json["reason"]) == (410, "Expired")

    run_on_site(work)


SELECTORS = [
    ("labelSelector", "tier=web", ["a", "b"]),
    ("labelSelector", "tier==web,env!=prod", ["b"]),
    ("labelSelector", "tier in (web, db)", ["a", "b", "c"]),
    ("labelSelector", "tier notin (web)", ["c", "d"]),
    ("labelSelector", "tier", ["a", "b", "c"]),
    ("labelSelector", "!tier", ["d"]),
    ("labelSelector", "size>5", ["c"]),
    ("labelSelector", "size<10,size>2", ["b"]),
    ("labelSelector", "example.com/x=1", ["d"]),
    ("labelSelector", "tier=", []),
    ("fieldSelector", "metadata.name=b", ["b"]),
    ("fieldSelector", "metadata.name!=b", ["a", "c", "d"]),
    ("fieldSelector", "metadata.namespace=default,metadata.name==c", ["c"]),
    ("labelSelector", "a b", 400),
    ("labelSelector", "a in (b", 400),
    ("labelSelector", "a=b!", 400),
    ("labelSelector", "a>x", 400),
    ("fieldSelector", "spec.x=1", 400),
    ("fieldSelector", "nonsense", 400),
]


def test_selectors() -> None:
    found = []

    async def work(site: Site) -> None:
        await site.create(CONFIG_MAPS, labelled("a", tier="web", env="prod"))
        await site.create(CONFIG_MAPS, labelled("b", tier="web", size="3"))
        await site.create(CONFIG_MAPS, labelled("c", tier="db", size="10"))
        await site.create(CONFIG_MAPS, labelled("d", **{"example.com/x": "1"}))
        for parameter, text, _ in SELECTORS:
            # What every namespace has is none of our business.
            more = (
                "&fieldSelector=metadata.name!%3Dkube-root-ca.crt"
                if parameter[0] == "l"
                else "&labelSelector=set"
            )
            answer = await site.get(f"{CONFIG_MAPS}?{parameter}={quote(text)}{more}")
            found.append(
                (parameter, text, names(answer) if answer.status == 200 else answer.status)
            )

    run_on_site(work)
    assert found == SELECTORS


def test_forms() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        table = (await site.get(MINE, accept=TABLE)).json
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Data", "Age"]
        [row] = table["rows"]
        assert row["cells"][:2] == ["a", 0]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        whole = (await site.get(f"{MINE}&includeObject=Object", accept=TABLE)).json
        assert whole["rows"][0]["object"]["kind"] == "ConfigMap"
        partial = (await site.get(MINE, accept=METADATA)).json
        assert partial["kind"] == "PartialObjectMetadataList"
        assert set(partial["items"][0]) == {"kind", "apiVersion", "metadata"}
        single = (await site.get(f"{CONFIG_MAPS}/a", accept=TABLE)).json
        assert len(single["rows"]) == 1

    run_on_site(work)


def test_items_do_not_name_their_kind() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        found = (await site.get(MINE)).json
        assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
        assert [set(each) for each in found["items"]] == [{"metadata"}]

    run_on_site(work)


def test_a_list_of_all_namespaces() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        other = "/api/v1/namespaces/kube-public/configmaps"
        await site.create(other, labelled("b"))
        assert names(await site.get("/api/v1/configmaps?labelSelector=set")) == ["a", "b"]
        assert (await site.get("/api/v1/configmaps/a")).status == 404

    run_on_site(work)


# --- watches


def told(events: list[JsonObject]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def until_watched(site: Site, count: int) -> None:
    async with asyncio.timeout(60):
        while len(site.server.watches) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_watch_tells_what_is_there_and_what_happens() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        watching = asyncio.create_task(site.watch(f"{MINE}&watch=1", 4))
        await until_watched(site, 1)
        await fill(site, "b")
        await site.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
        await site.delete(f"{CONFIG_MAPS}/a")
        events = await watching
        assert told(events) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))

    run_on_site(work)


def test_a_watch_goes_on_from_a_version() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a", "b")
        version = (await site.get(f"{CONFIG_MAPS}/a")).json["metadata"]["resourceVersion"]
        events = await site.watch(f"{MINE}&watch=1&resourceVersion={version}", 1)
        assert told(events) == [("ADDED", "b")]
        # Version 0 means any: all that is there is told.
        assert told(await site.watch(f"{MINE}&watch=1&resourceVersion=0", 2)) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]
        future = await site.get(f"{CONFIG_MAPS}?watch=1&resourceVersion=99999999")
        assert future.status == 504
        assert (await site.get(f"{CONFIG_MAPS}?watch=1&resourceVersion=x")).status == 400

    run_on_site(work)


def test_a_version_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MEMORY", 4)

    async def work(site: Site) -> None:
        await fill(site, *[f"x{number}" for number in range(20)])
        [event] = await site.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion=1", 1)
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")

    run_on_site(work)


def test_a_watch_of_a_selection() -> None:
    """An object that leaves the selection is gone, for those who look at nothing else."""

    async def work(site: Site) -> None:
        path = f"{CONFIG_MAPS}?watch=1&labelSelector=on%3Dyes"
        watching = asyncio.create_task(site.watch(path, 4))
        await until_watched(site, 1)
        await site.create(CONFIG_MAPS, labelled("a", on="no"))
        for value in ("yes", "no", "yes"):
            await site.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": value}}})
        await site.delete(f"{CONFIG_MAPS}/a")
        assert told(await watching) == [
            ("ADDED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("DELETED", "a"),
        ]

    run_on_site(work)


def test_the_end_of_what_was_there_is_told() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        path = f"{MINE}&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        events = await site.watch(path, 2)
        assert told(events) == [("ADDED", "a"), ("BOOKMARK", "")]
        assert events[1]["object"]["metadata"]["annotations"] == {
            "k8s.io/initial-events-end": "true"
        }
        assert events[1]["object"]["kind"] == "ConfigMap"

    run_on_site(work)


def test_bookmarks_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_BOOKMARK_SECONDS", 0.3)

    async def work(site: Site) -> None:
        path = f"{MINE}&watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
        events = [event async for event in site.follow(path)]
        assert 3 <= len(events) <= 4
        assert {event["type"] for event in events} == {"BOOKMARK"}
        # Who did not ask gets none.
        assert [event async for event in site.follow(f"{MINE}&watch=1&timeoutSeconds=1")] == []

    run_on_site(work)


def test_watches_in_other_forms() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a")
        port = int(site.server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET {MINE}&watch=1 HTTP/1.1\r\nhost: h\r\nauthorization: Bearer secret\r\naccept: {TABLE}\r\n\r\n"
        writer.write(head.encode())
        text = await reader.readuntil(b'"rows"')
        assert b'"kind":"Table"' in text
        writer.close()

    run_on_site(work)


def test_a_watch_of_one_object() -> None:
    async def work(site: Site) -> None:
        await fill(site, "a", "b")
        path = f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db"
        assert told(await site.watch(path, 1)) == [("ADDED", "b")]
        # By its path an object is read, whatever else is asked for; so does Kubernetes.
        assert (await site.get(f"{CONFIG_MAPS}/b?watch=1")).json["kind"] == "ConfigMap"

    run_on_site(work)


def test_a_client_that_falls_behind_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MEMORY", 16)

    async def work(site: Site) -> None:
        kind = site.server.catalogue.find("", "v1", "configmaps")
        assert kind is not None
        pieces = site.server.watches.open(kind, watches.WatchQuery("default")).pieces()
        await anext(pieces)
        assert len(site.server.watches) == 1
        await fill(site, *[f"x{number}" for number in range(100)])
        rest = [piece async for piece in pieces]
        assert b'"type":"ERROR"' in rest[-1]
        assert b"410" in rest[-1]
        assert len(site.server.watches) == 0

    run_on_site(work)


def test_watches_are_forgotten_when_clients_go() -> None:
    async def work(site: Site) -> None:
        kept = [site.follow(f"{MINE}&watch=1") for _ in range(50)]
        reading = [asyncio.create_task(anext(each)) for each in kept]
        await until_watched(site, 50)
        await fill(site, "a")
        assert {event["type"] for event in await asyncio.gather(*reading)} == {"ADDED"}
        for each in kept:
            await each.aclose()  # type: ignore[attr-defined]
        await until_watched(site, 0)

    run_on_site(work)


def test_events_have_two_views() -> None:
    async def work(site: Site) -> None:
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "note": "hello",
            "reason": "Because",
            "action": "Saying",
            "type": "Normal",
            "reportingController": "me",
            "reportingInstance": "me-1",
        }
        created = await site.create(path, event)
        assert (created["note"], created["regarding"]["name"]) == ("hello", "p")
        kept = (await site.get("/api/v1/namespaces/default/events/e")).json
        assert (kept["apiVersion"], kept["message"], kept["involvedObject"]["name"]) == (
            "v1",
            "hello",
            "p",
        )
        assert kept["reportingComponent"] == "me"
        for where in (
            "/api/v1/events?fieldSelector=involvedObject.name%3D",
            "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3D",
        ):
            assert names(await site.get(f"{where}p")) == ["e"]
            assert names(await site.get(f"{where}q")) == []
        patched = await site.patch(f"{path}/e", {"note": "bye"})
        assert patched.json["note"] == "bye"
        [told_event] = await site.watch("/api/v1/events?watch=1", 1)
        assert told_event["object"]["message"] == "bye"

    run_on_site(work)
