"""Whose token it is, and which reports its user may see: what is asked, how often, and when not."""

import asyncio

import pytest

from lictor.addons.web.access import (
    OwnRights,
    ReportRights,
    ReviewedRights,
    ReviewedUser,
    TokenReviews,
    read_certificate_user,
    translate_user,
)
from lictor.addons.web.records import VisibleNamespaces
from lictor.core.errors import ApiError, NotFoundError, UnreachableError

ANNA = ReviewedUser("anna", groups=("team-a", "system:authenticated"))


class Clock:
    """A time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class ApiServer:
    """Answers reviews as an API server does: the port that clients have."""

    def __init__(self, *allowed, groups=("wgpolicyk8s.io",), tokens=()):
        # `verb group/resource namespace` of what is allowed, whoever asks.
        self.allowed = set(allowed)
        self.groups = groups
        self.tokens = dict(tokens)
        self.asked = []
        self.is_away = False
        self.pause = 0.0

    async def request(self, _method, path):
        self._check()
        if path.removeprefix("/apis/") not in self.groups:
            raise NotFoundError("no such group", status=404)

    async def create(self, resource, body):
        self._check()
        await asyncio.sleep(self.pause)
        spec = body["spec"]
        self.asked.append(spec)
        if resource.kind == "TokenReview":
            user = self.tokens.get(spec["token"])
            return {"status": {"authenticated": True, "user": user} if user else {"error": "no"}}
        what = spec["resourceAttributes"]
        key = f"{what['group']}/{what['resource']} {what.get('namespace', '')}".strip()
        return {"status": {"allowed": key in self.allowed}}

    def _check(self):
        if self.is_away:
            raise UnreachableError("no answer")


REPORTS, CLUSTER_REPORTS = "wgpolicyk8s.io/policyreports", "wgpolicyk8s.io/clusterpolicyreports"


@pytest.mark.parametrize(
    ("allowed", "groups", "visible"),
    [
        ((), ("wgpolicyk8s.io",), VisibleNamespaces()),
        ((REPORTS,), ("wgpolicyk8s.io",), VisibleNamespaces(all_namespaces=True)),
        ((CLUSTER_REPORTS,), ("wgpolicyk8s.io",), VisibleNamespaces(cluster_wide=True)),
        (
            (f"{REPORTS} red", f"{REPORTS} gone"),
            ("wgpolicyk8s.io",),
            VisibleNamespaces(names=frozenset(("red",))),
        ),
        # Both kinds of reports are shown together, so that both must be allowed.
        (
            (f"{REPORTS} red", f"{REPORTS} blue", "openreports.io/reports blue"),
            ("wgpolicyk8s.io", "openreports.io"),
            VisibleNamespaces(names=frozenset(("blue",))),
        ),
        ((REPORTS, CLUSTER_REPORTS), ("wgpolicyk8s.io", "openreports.io"), VisibleNamespaces()),
        # Without reports there is nothing to see, and nothing that could be allowed by silence.
        ((REPORTS, CLUSTER_REPORTS), (), VisibleNamespaces()),
    ],
)
def test_what_somebody_may_see(allowed, groups, visible):
    server = ApiServer(*allowed, groups=groups)
    rights = ReportRights(server, lambda: ("red", "blue"))
    assert asyncio.run(rights.find(ANNA)) == (visible, True)


def test_the_whole_user_is_asked_about():
    server = ApiServer()
    user = ReviewedUser("u", "7", ("g",), (("scopes", ("a", "b")),))
    asyncio.run(ReportRights(server, tuple).find(user))
    asked = {name: server.asked[0][name] for name in ("user", "uid", "groups", "extra")}
    assert asked == {"user": "u", "uid": "7", "groups": ["g"], "extra": {"scopes": ["a", "b"]}}


def test_rights_are_asked_for_again():
    clock, server = Clock(), ApiServer(f"{REPORTS} red")
    rights = ReportRights(server, lambda: ("red",), clock)

    async def look():
        return (await rights.find(ANNA))[0].names

    async def run():
        assert await look() == {"red"}
        server.allowed.clear()
        number = len(server.asked)
        assert await look() == {"red"}
        assert len(server.asked) == number
        clock.now += 31
        assert await look() == frozenset()

    asyncio.run(run())


def test_a_new_namespace_is_asked_for_at_once():
    server, names = ApiServer(f"{REPORTS} red", f"{REPORTS} new"), ["red"]
    rights = ReportRights(server, lambda: tuple(names), Clock())

    async def run():
        assert (await rights.find(ANNA))[0].names == {"red"}
        names.append("new")
        assert (await rights.find(ANNA))[0].names == {"red", "new"}

    asyncio.run(run())


def test_answers_never_count_for_long():
    clock, server = Clock(), ApiServer("wgpolicyk8s.io/policyreports red")

    async def run():
        rights = ReportRights(server, lambda: ["red", *map(str, range(7000))], clock)
        assert (await rights.find(ANNA))[0].includes("red")
        server.allowed.clear()
        clock.now += 601
        return (await rights.find(ANNA))[0].includes("red")

    assert not asyncio.run(run())


def test_who_cannot_be_asked_about_sees_nothing(monkeypatch):
    clock, server = Clock(), ApiServer(REPORTS)
    rights = ReportRights(server, lambda: ("red",), clock)

    async def run():
        assert (await rights.find(ANNA))[0].all_namespaces
        server.is_away = True
        clock.now += 31
        with pytest.raises(ApiError):
            await rights.find(ANNA)

    asyncio.run(run())


def test_many_namespaces_are_shown_as_they_are_known(monkeypatch):
    monkeypatch.setattr("lictor.addons.web.access._PATIENCE", 0.05)
    names = [f"n{number}" for number in range(100)]
    server = ApiServer(*(f"{REPORTS} {name}" for name in names))
    rights = ReportRights(server, lambda: names)

    async def run():
        server.pause = 0.02
        visible, is_whole = await rights.find(ANNA)
        assert not is_whole
        assert len(visible.names) < 100
        server.pause = 0
        await asyncio.sleep(0.1)
        assert (await rights.find(ANNA)) == (VisibleNamespaces(names=frozenset(names)), True)
        # Each was asked for once, for whoever waited.
        assert len(server.asked) == 100 + 2

    asyncio.run(run())


def test_questions_at_the_same_time_are_one():
    server = ApiServer(REPORTS)
    server.pause = 0.01
    rights = ReportRights(server, tuple)

    async def run():
        await asyncio.gather(*(rights.find(ANNA) for _ in range(20)))

    asyncio.run(run())
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("good", "anna"),
        ("bad", None),
        ("", None),
        ("nameless", None),
        ("good\nx", None),
        ("gööd", None),
        ("x" * 20_000, None),
    ],
)
def test_tokens(token, name):
    users = {"good": {"username": "anna", "groups": ["team-a"]}, "nameless": {"groups": ["g"]}}
    user = asyncio.run(TokenReviews(ApiServer(tokens=users)).review(token))
    assert (user.name if user else None) == name


def test_a_token_that_was_taken_back_counts_for_a_short_while():
    clock, server = Clock(), ApiServer(tokens={"good": {"username": "anna"}})
    reviews = TokenReviews(server, clock)

    async def run():
        assert not reviews.is_known("good")
        assert await reviews.review("good")
        assert reviews.is_known("good")
        server.tokens.clear()
        assert await reviews.review("good")
        clock.now += 31
        assert await reviews.review("good") is None
        assert not reviews.is_known("good")
        server.is_away = True
        clock.now += 31
        with pytest.raises(ApiError):
            await reviews.review("good")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        (
            ((("organizationName", "team-a"),), (("commonName", "anna"),)),
            ReviewedUser("anna", groups=("team-a", "system:authenticated")),
        ),
        (((("organizationName", "system:masters"),),), None),
        (((("commonName", "anna"),), (("commonName", "admin"),)), None),
        (((("commonName", ""),),), None),
        (((("commonName", "a\nb"),),), None),
        ((), None),
    ],
)
def test_certificates(subject, user):
    assert read_certificate_user({"subject": subject}) == user
    assert read_certificate_user(None) is None


def test_users_of_another_cluster():
    groups = ("team-a", "system:masters", "system:authenticated")
    assert translate_user(ReviewedUser("anna", "uid", groups)) == ReviewedUser(
        "anna", groups=("team-a", "system:authenticated")
    )
    assert translate_user(ReviewedUser("system:serviceaccount:a:b")) is None
    assert translate_user(ReviewedUser("system:admin")) is None


def test_several_clusters():
    east, west = ApiServer(REPORTS, CLUSTER_REPORTS), ApiServer(f"{REPORTS} red")
    rights = {
        "east": ReportRights(east, tuple),
        "west": ReportRights(west, lambda: ("red", "blue")),
    }

    async def run():
        viewer = await ReviewedRights(rights).find(ANNA)
        assert viewer.may_see("east", "any")
        assert viewer.may_see("west", "red")
        assert not viewer.may_see("west", "blue")
        account = await ReviewedRights(rights).find(ReviewedUser("system:serviceaccount:a:b"))
        assert set(account.namespaces) == {"east"}
        west.is_away = True
        stranger = await ReviewedRights(rights).find(ReviewedUser("berta"))
        assert (set(stranger.namespaces), stranger.unsettled) == ({"east"}, ("west",))

    asyncio.run(run())


def test_one_cluster_that_does_not_answer_is_not_an_empty_page():
    server = ApiServer(REPORTS)
    server.is_away = True
    with pytest.raises(ApiError):
        asyncio.run(ReviewedRights({"one": ReportRights(server, tuple)}).find(ANNA))


def test_on_ones_own_machine_everything_that_could_be_read_is_shown():
    viewer = asyncio.run(OwnRights(lambda: ("a", "b")).find(ReviewedUser("")))
    assert all(viewer.may_see(cluster, place) for cluster in "ab" for place in ("", "red"))
    assert not viewer.may_see("c", "")
