"""Sessions end, limits hold, and live updates reach those whom they concern."""

import asyncio

import pytest

from lictor.addons.web.live_feed import LiveFeed
from lictor.addons.web.records import ReportedResult, ResultChange, Viewer, VisibleNamespaces
from lictor.addons.web.sign_in import RateLimit, Session, Sessions


class Clock:
    """A time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_session_ends_when_it_is_not_used_and_after_half_a_day():
    clock = Clock()
    sessions = Sessions(clock)
    text = sessions.begin("anna", "token")
    assert sessions.find(text).user == "anna"
    for _ in range(11):
        clock.now += 3500
        assert sessions.find(text)
    clock.now += 3700
    assert sessions.find(text) is None
    again = sessions.begin("anna", "token")
    for _ in range(24):
        clock.now += 1800
        sessions.find(again)
    clock.now += 10
    assert sessions.find(again) is None


@pytest.mark.parametrize("text", ["", "x", "x" * 10_000, "ä\udc80"])
def test_what_is_no_session(text):
    sessions = Sessions()
    sessions.begin("anna", "token")
    assert sessions.find(text) is None
    sessions.end(text)
    assert len(sessions) == 1


def test_sessions_have_bounds():
    sessions = Sessions()
    first = sessions.begin("other", "token")
    many = [sessions.begin("anna", "token") for _ in range(100)]
    assert len(sessions) == 17
    assert sessions.find(first)
    assert sessions.find(many[0]) is None
    assert sessions.find(many[-1])
    for number in range(2000):
        sessions.begin(f"user-{number}", "token")
    assert len(sessions) == 1000


def test_a_session_does_not_show_its_token():
    assert "hush" not in repr(Session("anna", "hush", 0, 0))


def test_rates():
    clock = Clock()
    limit = RateLimit(3, 0.5, most_keys=2, clock=clock)
    assert [limit.take("a") for _ in range(4)] == [True, True, True, False]
    assert limit.take("b")
    clock.now += 2
    assert [limit.take("a") for _ in range(2)] == [True, False]
    limit.give_back("a")
    assert limit.take("a")
    for key in "cde":
        limit.take(key)
    assert len(limit._left) == 2


# --- live updates


class Reports:
    """The part of `Results` that a feed listens to."""

    def listen(self, listener):
        self.tell = listener


def result(place):
    report = f"policyreports.wgpolicyk8s.io/{place}/r" if place else "clusterpolicyreports.g/r"
    return ReportedResult(
        "c", report, 0, "s", "p", "r", "fail", "", "", place, "v1", "Pod", "n", "", "", 0
    )


def viewer(*names, name="anna", **more):
    return Viewer(name, {"c": VisibleNamespaces(names=frozenset(names), **more)})


async def listen(feed, known, renewed="same"):
    """The pieces that a stream gives within a short while."""

    async def renew():
        return known if renewed == "same" else renewed

    pieces = []
    stream = feed.open(known, renew)

    async def read():
        async for piece in stream:
            pieces.append(piece)

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    return task, pieces


@pytest.mark.parametrize(
    ("known", "change", "told"),
    [
        (viewer("red"), ResultChange("c", (result("red"),), ()), True),
        (viewer("red"), ResultChange("c", (), (result("red"),)), True),
        (viewer("red"), ResultChange("c", (result("blue"),), (result("blue"),)), False),
        (viewer("red"), ResultChange("c", (result(""),), ()), False),
        (viewer(cluster_wide=True), ResultChange("c", (result(""),), ()), True),
        (viewer(all_namespaces=True), ResultChange("other", (result("red"),), ()), False),
    ],
)
def test_who_hears_of_a_change(known, change, told):
    async def run():
        reports = Reports()
        feed = LiveFeed(reports)
        task, pieces = await listen(feed, known)
        reports.tell(change)
        await asyncio.sleep(0.02)
        task.cancel()
        # Nothing of what changed is told, only that something did.
        events = [piece for piece in pieces if piece.startswith(b"event")]
        assert events == ([b"event: change\nid: 1\ndata: {}\n\n"] if told else [])

    asyncio.run(run())


def test_a_viewer_who_may_no_longer_look_is_sent_away(monkeypatch):
    monkeypatch.setattr("lictor.addons.web.live_feed._BEAT_SECONDS", 0.01)

    async def run():
        feed = LiveFeed(Reports())
        task, pieces = await listen(feed, viewer("red"), renewed=None)
        await asyncio.wait_for(task, 60)
        assert pieces[-1].startswith(b"event: end")
        assert len(feed) == 0

    asyncio.run(run())


def test_a_page_hears_when_everything_has_been_read(monkeypatch):
    monkeypatch.setattr("lictor.addons.web.live_feed._READING_SECONDS", 0.01)

    async def run():
        read = []
        feed = LiveFeed(Reports(), lambda: bool(read))
        task, pieces = await listen(feed, viewer())
        await asyncio.sleep(0.05)
        assert not any(piece.startswith(b"event") for piece in pieces)
        read.append("all")
        await asyncio.sleep(0.05)
        task.cancel()
        assert pieces[-1].startswith(b"event: change")

    asyncio.run(run())


def test_a_viewer_whose_rights_shrink_hears_less(monkeypatch):
    monkeypatch.setattr("lictor.addons.web.live_feed._BEAT_SECONDS", 0.01)

    async def run():
        reports = Reports()
        task, pieces = await listen(LiveFeed(reports), viewer("red"), renewed=viewer("blue"))
        await asyncio.sleep(0.05)
        reports.tell(ResultChange("c", (result("red"),), ()))
        await asyncio.sleep(0.05)
        task.cancel()
        assert not any(piece.startswith(b"event: change") for piece in pieces)

    asyncio.run(run())


def test_streams_have_bounds(monkeypatch):
    async def run():
        feed = LiveFeed(Reports())
        known = viewer("red")

        async def renew():
            return known

        first = [feed.open(known, renew) for _ in range(12)]
        ends = [asyncio.ensure_future(anext(stream)) for stream in first]
        await asyncio.gather(*ends)
        assert len(feed) == 12
        # The oldest ends for a new one of the same viewer.
        others = [feed.open(known, renew)]
        await anext(others[0])
        assert len(feed) == 12
        assert (await asyncio.wait_for(anext(first[0]), 60)).startswith(b"event: end")
        for number in range(388):
            others.append(feed.open(viewer("red", name=f"user-{number}"), renew))
            await anext(others[-1])
        assert feed.open(viewer("red", name="one more"), renew) is None
        assert len(feed) == 400

    asyncio.run(run())
