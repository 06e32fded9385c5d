"""The page as browsers get it: who must sign in, what everyone gets, and what nobody gets."""

import asyncio
import csv
import gzip
import json
import re

import msgspec
import pytest

from lictor.addons.web.access import OwnRights, ReviewedUser
from lictor.addons.web.app import PageApp
from lictor.addons.web.records import Viewer, VisibleNamespaces
from lictor.addons.web.request_checks import SiteRules
from lictor.addons.web.sign_in import AccessKey, SignIn
from lictor.addons.web.sources.report_files import read_report_files
from lictor.core.errors import UnreachableError
from lictor.http.messages import HttpRequest, StreamedResponse

HOSTILE = "<script>alert(1)</script>"
COOKIE = "lictor-session-1"


def report(namespace, *results):
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {"name": f"report-{namespace}", "namespace": namespace},
        "scope": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "web"},
        "results": list(results),
    }


def entry(policy, **more):
    return {"policy": policy, "rule": "r", "result": "fail", "message": "wrong", **more}


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    file = tmp_path_factory.mktemp("reports") / "reports.json"
    reports = [
        report("red", entry("red-policy", message=HOSTILE), entry("=cmd()", message="-1")),
        report("blue", entry("blue-policy")),
    ]
    file.write_text("\n---\n".join(map(json.dumps, reports)), encoding="utf-8")
    return read_report_files([str(file)])


class Users:
    """Tokens of two teams, and who of them sees what."""

    def __init__(self, state):
        self._cluster = state.list_clusters()[0]
        self.is_away = False

    def is_known(self, _):
        return False

    async def review(self, token):
        if self.is_away:
            raise UnreachableError("no answer")
        return ReviewedUser(token.removeprefix("of-")) if token.startswith("of-") else None

    async def find(self, user):
        names = frozenset((user.name,))
        return Viewer(user.name, {self._cluster: VisibleNamespaces(names=names)})


class Site:
    """One page, as one browser sees it: it keeps a cookie, and sends it."""

    def __init__(self, state, **rules):
        self.users = Users(state)
        self.cookie = b""
        known = SiteRules(frozenset(("localhost",)), **rules)
        self.app = PageApp(state, SignIn(self.users, COOKIE), self.users, known)

    def get(self, path="/", **headers):
        return self.send("GET", path, **headers)

    def send(self, method, path, body=b"", **headers):
        named = {name.replace("_", "-").encode(): [text.encode()] for name, text in headers.items()}
        kept = {b"host": [b"localhost"], **({b"cookie": [self.cookie]} if self.cookie else {})}
        path, _, query = path.partition("?")
        form = b"application/x-www-form-urlencoded"
        call = HttpRequest(
            method, path, query.encode(), form, body, {**kept, **named}, address="10.0.0.1"
        )
        return asyncio.run(self._ask(call))

    async def _ask(self, call):
        reply = await self.app(call)
        for name, value in reply.headers:
            if name == b"set-cookie":
                self.cookie = value.partition(b";")[0]
        if isinstance(reply, StreamedResponse) and b"event-stream" not in reply.content_type:
            return reply, b"".join([piece async for piece in reply.pieces])
        return reply, getattr(reply, "body", b"")

    def sign_in(self, token, **more):
        body = f"token={token}&back={more.pop('back', '/')}".encode()
        return self.send("POST", "/sign-in", body, sec_fetch_site="same-origin", **more)


@pytest.fixture
def site(state):
    return Site(state)


def test_strangers_see_the_form_and_nothing_else(site):
    for path in ("/", "/results", "/results.csv", "/results.json", "/live", "/namespaces?q=red"):
        reply, body = site.get(path)
        assert reply.status == 401, path
        assert b"red-policy" not in body
        assert b'name="token"' in body
    assert site.get("/health/liveness")[0].status == 200


def test_a_token_opens_a_session(site):
    reply, _ = site.sign_in("of-red", back="/results?status=fail")
    assert reply.status == 303
    headers = dict(reply.headers)
    assert headers[b"location"] == b"/results?status=fail"
    assert re.fullmatch(
        rb"lictor-session-1=[\w-]{40,}; Path=/; Secure; HttpOnly; SameSite=Strict",
        headers[b"set-cookie"],
    )
    reply, body = site.get("/results")
    assert reply.status == 200
    assert b"red-policy" in body
    assert b"blue-policy" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/results",
        "/policies",
        "/namespaces",
        "/resources",
        "/print",
        "/results.csv",
        "/results.json",
        "/history",
        "/exceptions",
        "/namespace?namespace=blue",
        "/policy?name=blue-policy",
    ],
)
def test_nothing_of_another_namespace_is_shown(site, path):
    site.sign_in("of-red")
    reply, body = site.get(path)
    assert reply.status in (200, 404)
    assert b"blue-policy" not in body.replace(b"name=blue-policy", b"")


def test_a_token_in_the_header_needs_no_session(site):
    reply, body = site.get("/results", authorization="Bearer of-blue")
    assert (reply.status, site.cookie) == (200, b"")
    assert b"blue-policy" in body
    assert b"red-policy" not in body


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer", "Basic b2YtcmVk", "of-red", ""])
def test_a_header_that_does_not_count_is_not_passed_over(site, header):
    site.sign_in("of-red")
    assert site.get(authorization=header)[0].status == 401


def test_wrong_tokens_are_counted(site):
    assert [site.sign_in("wrong")[0].status for _ in range(25)][-1] == 429
    # Also for those that would count: nobody finds out by trying.
    assert site.sign_in("of-red")[0].status == 429
    assert site.get(authorization="Bearer of-red")[0].status == 429


def test_signing_out_ends_the_session(site):
    site.sign_in("of-red")
    kept = site.cookie
    reply, _ = site.send("POST", "/sign-out", sec_fetch_site="same-origin")
    assert b"Max-Age=0" in dict(reply.headers)[b"set-cookie"]
    site.cookie = kept
    assert site.get()[0].status == 401


def test_other_sites_cannot_sign_anybody_in_or_out(site):
    assert (
        site.send("POST", "/sign-in", b"token=of-red", sec_fetch_site="cross-site")[0].status == 403
    )
    assert site.cookie == b""
    site.sign_in("of-red")
    assert site.send("POST", "/sign-out", origin="https://evil.example")[0].status == 403
    assert site.get()[0].status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_user": "of-red"},
        {"x_remote_user": "of-red", "x_forwarded_email": "of-red"},
        {"x_ssl_client_s_dn": "CN=red", "x_ssl_client_verify": "SUCCESS"},
        {"x_forwarded_client_cert": "Subject=CN=red"},
        {"x_forwarded_authorization": "Bearer of-red"},
        {"impersonate_user": "red"},
    ],
)
def test_headers_of_proxies_sign_nobody_in(site, headers):
    reply, body = site.get("/results", **headers)
    assert reply.status == 401
    assert b"red-policy" not in body


def test_headers_of_proxies_change_neither_the_host_nor_who_is_counted(site):
    forged = {"x_forwarded_host": "localhost", "forwarded": "host=localhost"}
    assert site.get("/", host="evil.example", **forged)[0].status == 421
    sent = {"origin": "https://evil.example", "x_forwarded_host": "evil.example"}
    reply, _ = site.send("POST", "/sign-in", b"token=of-red&back=/", **sent)
    assert reply.status == 403
    for number in range(25):
        reply, _ = site.get("/", authorization="Bearer no", x_forwarded_for=f"10.1.1.{number}")
    assert reply.status == 429
    assert b"evil.example" not in b"".join(value for _, value in reply.headers)


def test_the_page_previews_no_policies(site):
    """One viewer could take all the places of previews; the command `preview` has its own."""
    site.sign_in("of-red")
    assert site.send("POST", "/preview", b"policy=a")[0].status in (403, 404, 405)
    assert site.get("/preview")[0].status == 404


def test_a_link_signs_nobody_in(site):
    for path in ("/?key=of-red", "/results?key=of-red"):
        reply, _ = site.get(path, sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert reply.status == 401
        assert not site.cookie


def test_where_signing_in_leads_to(site):
    for back in ("//evil.example", "https://evil.example", "/%0d%0aset-cookie:%20a=b", "%5Cevil"):
        assert dict(site.sign_in("of-red", back=back)[0].headers)[b"location"] == b"/"


def test_an_api_server_that_does_not_answer_shows_nothing(site):
    site.sign_in("of-red")
    site.users.is_away = True
    reply, body = site.get("/results")
    assert reply.status == 503
    assert b"red-policy" not in body


def test_headers_of_all_answers(site):
    site.sign_in("of-red")
    asked = [
        site.get(path)[0] for path in ("/", "/nowhere", "/results.csv", "/live", "/static/page.js")
    ]
    asked += [Site.get(site, "/", host="evil.example")[0], site.send("PUT", "/")[0]]
    for reply in asked:
        headers = dict(reply.headers)
        policy = headers[b"content-security-policy"]
        assert b"default-src 'none'" in policy
        assert b"frame-ancestors 'none'" in policy
        assert b"unsafe" not in policy
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert headers[b"cache-control"] == (
            b"no-store" if b"etag" not in headers else b"public, max-age=31536000, immutable"
        )


def test_texts_of_reports_never_become_markup(site):
    site.sign_in("of-red")
    for path in ("/", "/results", "/policies", "/results?q=%3Cscript%3E"):
        body = site.get(path)[1].decode()
        assert HOSTILE not in body
        assert not re.search(r"<[^>]* (?:on\w+|style)=", body)


def test_exports(site):
    site.sign_in("of-red")
    reply, body = site.get("/results.csv?status=fail")
    assert dict(reply.headers)[b"content-disposition"].startswith(b"attachment")
    rows = list(csv.DictReader(body.decode().splitlines()))
    assert {row["policy"] for row in rows} == {"red-policy", "'=cmd()"}
    assert {row["message"] for row in rows} == {HOSTILE, "'-1"}
    rows = json.loads(site.get("/results.json?policy=red-policy")[1])
    assert [(row["policy"], row["namespace"], row["message"]) for row in rows] == [
        ("red-policy", "red", HOSTILE)
    ]
    assert json.loads(site.get("/results.json?policy=none")[1]) == []
    assert site.get("/results.csv?within=never")[0].status == 400
    assert site.get("/results.csv?stauts=fail")[0].status == 400


def test_nobody_keeps_others_from_exporting(site):
    async def run():
        call = HttpRequest(
            "GET", "/results.csv", b"", b"", b"",
            {b"host": [b"localhost"], b"authorization": [b"Bearer of-red"]},
        )  # fmt: skip
        other = msgspec.structs.replace(
            call, headers={**call.headers, b"authorization": [b"Bearer of-blue"]}
        )
        slow = await site.app(call)
        await anext(slow.pieces)
        assert (await site.app(call)).status == 503
        assert (await site.app(other)).status == 200
        await slow.pieces.aclose()
        assert (await site.app(call)).status == 200

    asyncio.run(run())


def test_pages_are_compressed_where_browsers_take_it(site):
    site.sign_in("of-red")
    reply, body = site.get("/results", accept_encoding="br, gzip")
    assert dict(reply.headers)[b"content-encoding"] == b"gzip"
    assert b"red-policy" in gzip.decompress(body)


def test_one_viewer_cannot_take_all_of_the_processor(site):
    site.sign_in("of-red")
    assert 429 in {site.get("/nowhere")[0].status for _ in range(80)}
    assert site.get("/results", authorization="Bearer of-blue")[0].status == 200


def test_a_link_on_another_site_leads_here(site):
    """Browsers keep a strict cookie to themselves then: our own page asks once more."""
    reply, _ = site.get("/results?q=a", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert dict(reply.headers)[b"refresh"] == b"0; url=/results?q=a"
    again, _ = site.get("/results?q=a", sec_fetch_site="same-origin", sec_fetch_mode="navigate")
    assert b"refresh" not in dict(again.headers)


def test_a_page_below_a_path(state):
    site = Site(state, base="/lictor")
    reply, _ = site.sign_in("of-red")
    assert dict(reply.headers)[b"location"] == b"/lictor/"
    body = site.get("/lictor/results")[1].decode()
    assert set(re.findall(r'(?:href|src|action)="(/[^"?]*)', body)) >= {
        "/lictor/",
        "/lictor/results",
    }
    assert not re.findall(r'(?:href|src|action)="/(?!lictor/)', body)


# --- on one's own machine


def test_the_printed_address_opens_the_page(state):
    key = AccessKey()
    rules = SiteRules(frozenset(("localhost",)))
    site = Site(state)
    site.app = PageApp(state, SignIn(key, COOKIE), OwnRights(state.list_clusters), rules)
    assert site.get()[0].status == 401
    assert site.get("/?key=wrong")[0].status == 401
    assert site.get("/?key=")[0].status == 401
    reply, _ = site.get(f"/results?key={key.text}")
    # Not in the address any longer, which people copy.
    assert dict(reply.headers)[b"location"] == b"/results"
    body = site.get("/results")[1]
    assert b"red-policy" in body
    assert b"blue-policy" in body
