"""Calls of policies to services: what comes back, and where none may go."""

import asyncio
import socket
import time
from pathlib import Path

import orjson
import pytest
from fake_api import Answer, Asked, FakeApi, run_api

from lictor.core.errors import LookupFailedError, UsageError
from lictor.core.lang.networks import list_meanings
from lictor.core.ports import ApiCall, HttpAnswer, HttpLimits
from lictor.kubernetes.flags import Flags
from lictor.lookups.service_calls import ServiceCaller, read_http_limits

OPEN = HttpLimits(blocked=("192.0.2.0/24",))


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KYVERNO_SCOPED_TOKEN_PATH", str(tmp_path / "token"))


def call(given: ApiCall, limits: HttpLimits = OPEN, most_bytes=1000, seconds=5.0):
    async def ask():
        caller = ServiceCaller(limits, most_bytes=most_bytes, seconds=seconds)
        try:
            return await caller.call(given)
        finally:
            await caller.close()

    return asyncio.run(ask())


def echo(asked: Asked) -> Answer:
    if asked.path == "/missing":
        return Answer(404, b"no such page")
    if asked.path == "/text":
        return Answer(body=b"plain")
    if asked.path == "/large":
        return Answer(body=b'"' + b"x" * 2000 + b'"')
    if asked.path == "/slow":
        time.sleep(0.6)
    headers = {name: asked.headers.get(name) for name in ("authorization", "content-type", "x")}
    return Answer(
        body={
            "method": asked.method,
            "body": asked.body.decode(),
            "headers": headers,
            "host": asked.headers["host"],
        }
    )


@pytest.fixture
def api():
    with run_api(echo) as api:
        yield api


def test_get(api: FakeApi):
    answer = call(ApiCall(service_url=f"{api.url}/x", headers={"X": "1", "Authorization": "mine"}))
    assert answer == {
        "method": "GET",
        "body": "",
        "headers": {"authorization": ["mine"], "content-type": None, "x": ["1"]},
        "host": [api.url.removeprefix("http://")],
    }


@pytest.mark.parametrize(
    ("data", "guarded", "sent"),
    [({"a": 1}, False, '{"a":1}'), (None, False, "{}"), ([1], True, "[1]"), (None, True, "null")],
)
def test_post(api: FakeApi, data, guarded, sent):
    given = ApiCall(service_url=api.url, method="POST", data=data, guarded=guarded)
    answer = call(given)
    body = answer.body if isinstance(answer, HttpAnswer) else answer
    assert (body["method"], body["body"]) == ("POST", sent)
    assert body["headers"]["content-type"] == ["application/json"]


def test_token_of_its_own(api: FakeApi, tmp_path: Path):
    (tmp_path / "token").write_text("scoped\n")
    answer = call(ApiCall(service_url=api.url))
    assert answer["headers"]["authorization"] == ["Bearer scoped"]
    # Expressions never had one.
    answer = call(ApiCall(service_url=api.url, guarded=True))
    assert answer.body["headers"]["authorization"] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ApiCall(service_url="/missing"), "^HTTP 404 Not Found$"),
        (ApiCall(service_url="/text"), "returned no JSON"),
        (ApiCall(service_url="/large"), "response length must be less than max allowed response length of 1000"),
        (ApiCall(service_url="/large", guarded=True), "response length must be less"),
        (ApiCall(service_url="/slow"), "did not answer within 0.3 s"),
        (ApiCall(service_url="/x", method="PUT"), "invalid request type PUT"),
    ],
)  # fmt: skip
def test_failures(api: FakeApi, given: ApiCall, message):
    from msgspec.structs import replace

    seconds = 0.3 if given.service_url == "/slow" else 10.0
    with pytest.raises(LookupFailedError, match=message):
        call(replace(given, service_url=api.url + given.service_url), seconds=seconds)


def test_no_limit_of_size(api: FakeApi):
    assert len(call(ApiCall(service_url=f"{api.url}/large"), most_bytes=0)) == 2000


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example/x", "unsupported protocol scheme"),
        ("nonsense", "unsupported protocol scheme"),
        ("http://[::1", "invalid URL"),
        ("http://127.0.0.1:1/", "ConnectError"),
        ("http://no-such-host.invalid/", "ConnectError"),
    ],
)
def test_urls_that_lead_nowhere(url, message):
    with pytest.raises(LookupFailedError, match=message):
        call(ApiCall(service_url=url))


def test_bad_bundle():
    with pytest.raises(LookupFailedError, match="failed to parse PEM CA bundle"):
        call(ApiCall(service_url="https://127.0.0.1:1/", ca_bundle="nonsense"))


def test_guarded_answers_have_a_status(api: FakeApi):
    assert call(ApiCall(service_url=f"{api.url}/missing", guarded=True)) == HttpAnswer(404, None)
    assert call(ApiCall(service_url=f"{api.url}/text", guarded=True)) == HttpAnswer(200, None)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "127.1", "2130706433", "0x7f.1"],
)  # fmt: skip
def test_nothing_inside_is_called(api: FakeApi, host):
    url = f"http://{host}:{api.url.rpartition(':')[2]}/x"
    with pytest.raises(LookupFailedError, match=r"blocked|failed to resolve"):
        call(ApiCall(service_url=url, guarded=True), HttpLimits())
    assert api.asked == []


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "metadata.google.internal", "METADATA.google.internal.", "10.1.2.3", "100.64.0.1", "[fd00::1]"]
)  # fmt: skip
def test_usual_prey(host):
    with pytest.raises(LookupFailedError, match="blocked"):
        call(ApiCall(service_url=f"http://{host}/", guarded=True), HttpLimits())


def fake_names(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> None:
    def resolve(host, port, *rest, **more):
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_with_one_address_inside_is_blocked(monkeypatch):
    fake_names(monkeypatch, [["198.51.100.1", "10.0.0.1"]])
    with pytest.raises(LookupFailedError, match=r"resolved IP 10\.0\.0\.1 falls in blocked range"):
        call(ApiCall(service_url="http://evil.example/", guarded=True), HttpLimits())


def test_a_name_is_resolved_once(api: FakeApi, monkeypatch):
    """The second answer of a name server may be another: it is never asked for."""
    fake_names(monkeypatch, [["127.0.0.1"], ["192.0.2.66"]])
    port = api.url.rpartition(":")[2]
    answer = call(ApiCall(service_url=f"http://good.example:{port}/x", guarded=True))
    assert answer.body["host"] == [f"good.example:{port}"]


def redirecting(target: str, status: int = 302):
    def answer(asked: Asked) -> Answer:
        if asked.path == "/start":
            return Answer(status, b"", {"location": target})
        if asked.path == "/loop":
            return Answer(302, b"", {"location": "/loop"})
        return echo(asked)

    return answer


@pytest.mark.parametrize(
    ("method", "status", "expected"),
    [("GET", 302, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("POST", 307, "POST"), ("POST", 308, "POST")],
)  # fmt: skip
def test_redirects(method, status, expected):
    with run_api(redirecting("/end", status)) as api:
        given = ApiCall(
            service_url=f"{api.url}/start",
            method=method,
            data={"a": 1},
            headers={"authorization": "mine"},
        )
        answer = call(given)
    assert answer["method"] == expected
    assert answer["body"] == ('{"a":1}' if expected == "POST" else "")
    assert answer["headers"]["authorization"] == ["mine"]


def test_secrets_do_not_follow_to_another_host():
    with run_api(echo) as other:
        target = other.url.replace("127.0.0.1", "localhost")
        with run_api(redirecting(f"{target}/end")) as api:
            given = ApiCall(
                service_url=f"{api.url}/start", headers={"authorization": "mine", "x": "1"}
            )
            answer = call(given)
    assert (answer["headers"]["authorization"], answer["headers"]["x"]) == (None, ["1"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("http://192.0.2.1/", "blocked"),
        ("file:///etc/passwd", "a redirect to 'file' is not followed"),
        ("/loop", "stopped after 10 redirects"),
    ],
)
def test_redirects_are_guarded_too(target, message):
    with run_api(redirecting(target)) as api, pytest.raises(LookupFailedError, match=message):
        call(ApiCall(service_url=f"{api.url}/start", guarded=True))


def test_allowed_places(api: FakeApi):
    limits = HttpLimits(blocked=("192.0.2.0/24",), allowed=(f"{api.url}/v1",))
    assert call(ApiCall(service_url=f"{api.url}/v1/x", guarded=True), limits).status == 200
    for path in ("/v2", "/v10", "/v1/../v2", "/v1/%2e%2e/v2"):
        with pytest.raises(LookupFailedError, match="no matching allowlist entry"):
            call(ApiCall(service_url=f"{api.url}{path}", guarded=True), limits)
    with run_api(redirecting(f"{api.url}/v2")) as start:
        limits = HttpLimits(blocked=("192.0.2.0/24",), allowed=(f"{api.url}/v1", start.url))
        with pytest.raises(LookupFailedError, match="no matching allowlist entry"):
            call(ApiCall(service_url=f"{start.url}/start", guarded=True), limits)


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("64:ff9b::10.0.0.1", "10.0.0.1"),
        ("2002:0a00:0001::", "10.0.0.1"),
    ],
)
def test_addresses_in_other_clothes(address, meant):
    assert meant in list_meanings(address)


def test_limits_of_the_flags():
    assert read_http_limits(Flags()) == HttpLimits()
    flags = Flags(
        http_blocklist="10.0.0.0/8, evil.example",
        http_allowlist="https://a.example/v1, http://b",
        allow_http_in_namespaced_policies=True,
    )
    expected = HttpLimits(
        blocked=("10.0.0.0/8", "evil.example"),
        allowed=("https://a.example/v1", "http://b"),
        allows_namespaced=True,
    )
    assert read_http_limits(flags) == expected
    with pytest.raises(UsageError, match="--httpBlocklist: invalid CIDR"):
        read_http_limits(Flags(http_blocklist="10.0.0.0/99"))
    with pytest.raises(UsageError, match="--httpAllowlist: invalid URL"):
        read_http_limits(Flags(http_allowlist="a.example"))
    with pytest.raises(UsageError, match="must include scheme and host"):
        read_http_limits(Flags(http_allowlist="/v1"))


def test_body_is_json(api: FakeApi):
    call(ApiCall(service_url=api.url, method="POST", data={"ü": [1, None]}))
    assert orjson.loads(api.asked[0].body) == {"ü": [1, None]}
