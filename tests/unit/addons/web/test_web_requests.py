"""Which requests are answered at all: by name, by the site that sent them, by what they hold."""

import pytest

from lictor.addons.web.request_checks import (
    SiteRules,
    find_refusal,
    is_known_host,
    is_own_path,
    read_cookie,
    read_form,
    read_query,
)
from lictor.http.messages import HttpRequest

RULES = SiteRules(frozenset(("localhost", "lictor.example")))


def call(method="GET", path="/", query=b"", body=b"", kind=b"", **headers):
    named = {name.replace("_", "-").encode(): [value.encode()] for name, value in headers.items()}
    return HttpRequest(method, path, query, kind, body, {b"host": [b"localhost"], **named})


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("localhost:8088", True),
        ("LOCALHOST:8088", True),
        ("lictor.example.", True),
        ("127.0.0.1:8088", True),
        ("10.1.2.3", True),
        ("[::1]:8088", True),
        # What a name server of somebody else says leads to us (DNS rebinding).
        ("evil.example", False),
        ("evil.example:8088", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.example", False),
        ("127.0.0.1@evil.example", False),
        ("evil.example@localhost", False),
        ("localhost:port", False),
        ("localhost/evil.example", False),
        ("localhost#evil", False),
        ("", False),
        (":8088", False),
        ("0x7f000001", False),
    ],
)
def test_names_by_which_the_page_is_known(host, known):
    assert is_known_host(host, RULES.hosts) is known


def test_two_hosts_are_none():
    asked = HttpRequest("GET", "/", b"", b"", b"", {b"host": [b"localhost", b"evil.example"]})
    assert find_refusal(asked, RULES).status == 421
    assert find_refusal(HttpRequest("GET", "/", b"", b"", b""), RULES).status == 421


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (call(), None),
        (call(sec_fetch_site="none"), None),
        (call(sec_fetch_site="same-origin", sec_fetch_mode="cors"), None),
        # A link in a chat leads here.
        (call(sec_fetch_site="cross-site", sec_fetch_mode="navigate"), None),
        (call(sec_fetch_site="cross-site", sec_fetch_mode="no-cors"), 403),
        (call(sec_fetch_site="cross-site", sec_fetch_mode="cors"), 403),
        # Another host of the same domain is another site to us.
        (call(sec_fetch_site="same-site", sec_fetch_mode="no-cors"), 403),
        (call("POST", sec_fetch_site="same-origin", origin="null"), None),
        (call("POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate"), 403),
        (call("POST", sec_fetch_site="same-site", sec_fetch_mode="navigate"), 403),
        (call("POST", origin="http://localhost"), None),
        (call("POST", origin="http://localhost:9999"), 403),
        (call("POST", origin="https://evil.example"), 403),
        (call("POST", origin="null"), 403),
        (call("POST", origin="http://["), 403),
        (call("POST"), 403),
        (call("POST", authorization="Bearer x"), None),
        (call("POST", authorization="Bearer x", cookie="a=b"), 403),
        (call("DELETE"), 405),
        (call("CONNECT"), 405),
        (call("OPTIONS", origin="https://evil.example"), 405),
    ],
)
def test_which_sites_may_send_what(asked, status):
    refusal = find_refusal(asked, RULES)
    assert (refusal.status if refusal else None) == status


@pytest.mark.parametrize(
    ("cookies", "value"),
    [
        ([b"s=abc"], "abc"),
        ([b"other=1; s=abc; more=2"], "abc"),
        ([b"other=1"], ""),
        # Another program on the same machine, or a subdomain, may have planted one: neither counts.
        ([b"s=abc; s=planted"], ""),
        ([b"s=abc", b"s=planted"], ""),
        ([b"xs=abc"], ""),
        ([], ""),
    ],
)
def test_cookies(cookies, value):
    asked = HttpRequest("GET", "/", b"", b"", b"", {b"cookie": cookies})
    assert read_cookie(asked, "s") == value


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/", True),
        ("/results?status=fail&q=%2F", True),
        ("//evil.example", False),
        ("/\\evil.example", False),
        ("https://evil.example", False),
        ("javascript:alert(1)", False),
        ("/a\r\nset-cookie: x=y", False),
        ("/a b", False),
        ("/ä", False),
        ("", False),
    ],
)
def test_where_a_browser_may_be_sent(path, own):
    assert is_own_path(path) is own


def test_queries_and_forms_have_bounds():
    assert read_query(call(query=b"a=1&a=2&b=%C3%A4&c")) == (
        ("a", "1"), ("a", "2"), ("b", "ä"), ("c", ""),
    )  # fmt: skip
    assert read_query(call(query=b"&".join(b"a=%d" % n for n in range(1000)))) is None
    form = b"application/x-www-form-urlencoded"
    assert read_form(call("POST", body=b"token=a%20b", kind=form + b"; charset=utf-8")) == {
        "token": "a b"
    }
    assert read_form(call("POST", body=b"&".join([b"a=1"] * 100), kind=form)) is None
    # Other sites can send these without being asked first.
    assert read_form(call("POST", body=b"token=a", kind=b"text/plain")) is None
    assert read_form(call("POST", body=b"{}", kind=b"application/json")) is None
