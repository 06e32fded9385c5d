"""The client where the server refuses, hurries it, or breaks off: answers no real one gives on demand."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from fake_api import Answer, Asked, run_api

from lictor.core.errors import ApiError, ConflictError, GoneError, NotFoundError, UnreachableError
from lictor.kubernetes.cache import Cache, Change
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.connection import build_ssl_context, list_socket_options
from lictor.kubernetes.resource import CONFIG_MAP

OK = Answer(body={"kind": "ConfigMap"})


def status(code: int, reason: str = "", message: str = "") -> Answer:
    return Answer(code, {"kind": "Status", "code": code, "reason": reason, "message": message})


def ask(config: ClusterConfig, path: str = "/api", method: str = "GET", times: int = 1, **more):
    async def run():
        client = Client(config)
        try:
            answers = [await client.request(method, path, **more) for _ in range(times)]
            return answers[-1]
        finally:
            await client.close()

    return asyncio.run(run())


def script(*answers: Answer) -> Callable[[Asked], Answer]:
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_waits_when_told_so():
    slow_down = Answer(429, {"reason": "TooManyRequests"}, {"retry-after": "1"})
    with run_api(script(slow_down, OK)) as api:
        started = time.monotonic()
        assert ask(ClusterConfig(api.url)) == OK.body
        assert 0.9 < time.monotonic() - started < 30
        assert len(api.asked) == 2


def test_everyone_waits_together():
    slow_down = Answer(429, {}, {"retry-after": "1"})

    async def run(url: str) -> float:
        client = Client(ClusterConfig(url))
        first = asyncio.create_task(client.request("GET", "/first"))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        await client.request("GET", "/second")
        await first
        await client.close()
        return time.monotonic() - started

    with run_api(script(slow_down, OK)) as api:
        assert asyncio.run(run(api.url)) > 0.4
        assert api.asked[0].path == "/first"


def test_patience_ends():
    with run_api(lambda _: Answer(429, {"message": "busy"}, {"retry-after": "1"})) as api:
        started = time.monotonic()
        with pytest.raises(ApiError, match="busy") as refused:
            ask(ClusterConfig(api.url), timeout=1.5)
        assert time.monotonic() - started < 30
        assert (refused.value.status, refused.value.retry_after) == (429, 1.0)


@pytest.mark.parametrize(
    ("answer", "kind", "code", "message"),
    [
        (status(404, "NotFound", "no such thing"), NotFoundError, 404, "no such thing"),
        (Answer(404, b"404 page not found\n"), NotFoundError, 404, "404 page not found"),
        (status(409, "AlreadyExists", "there"), ConflictError, 409, "there"),
        (status(410, "Expired", "too old"), GoneError, 410, "too old"),
        (status(403, "Forbidden", "you may not"), ApiError, 403, "you may not"),
        (status(500, "InternalError", ""), ApiError, 500, "InternalError"),
        (Answer(502, b"<html>bad gateway"), ApiError, 502, "bad gateway"),
        (Answer(503, b""), ApiError, 503, "no reason given"),
    ],
    ids=["404", "404-text", "409", "410", "403", "500", "502", "503"],
)
def test_refusals(answer, kind, code, message):
    with run_api(lambda _: answer) as api, pytest.raises(kind, match=message) as refused:
        ask(ClusterConfig(api.url))
    assert refused.value.status == code


def test_the_causes_of_a_refusal_are_told():
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}, "odd"]
    body = {"code": 403, "reason": "Forbidden", "message": "no", "details": {"causes": causes}}
    with run_api(lambda _: Answer(403, body)) as api, pytest.raises(ApiError) as refused:
        ask(ClusterConfig(api.url))
    assert refused.value.causes == {"NamespaceTerminating"}


def test_a_refused_token_is_renewed_once():
    tokens: list[bool] = []

    def source(renew: bool) -> str:  # noqa: FBT001
        tokens.append(renew)
        return "new" if renew else "old"

    def answer(asked: Asked) -> Answer:
        good = asked.headers["authorization"] == ["Bearer new"]
        return OK if good else status(401, "Unauthorized", "who?")

    with run_api(answer) as api:
        assert ask(ClusterConfig(api.url, token=source)) == OK.body
    assert tokens == [False, True]
    with run_api(lambda _: status(401, "Unauthorized", "who?")) as api:
        with pytest.raises(ApiError, match=r"who\?"):
            ask(ClusterConfig(api.url, token=source))
        assert len(api.asked) == 2


def test_who_asks():
    config = ClusterConfig(
        "",
        username="u",
        password="p",
        impersonate="jane",
        impersonate_groups=("a", "b"),
        impersonate_extra={"ex/scope": ("1", "2")},
    )
    from msgspec.structs import replace

    with run_api(lambda _: OK) as api:
        ask(replace(config, server=api.url))
    headers = api.asked[0].headers
    assert headers["authorization"] == ["Basic dTpw"]
    assert headers["impersonate-user"] == ["jane"]
    assert headers["impersonate-group"] == ["a", "b"]
    assert headers["impersonate-extra-ex%2fscope"] == ["1", "2"]


@pytest.mark.parametrize("path", ["//evil.example/api", "https://evil.example/", "api", ""])
def test_our_credentials_go_nowhere_else(path):
    with run_api(lambda _: OK) as api, pytest.raises(UnreachableError, match="is not a path"):
        ask(ClusterConfig(api.url, token=lambda _: "secret"), path)


def test_server_below_a_path():
    with run_api(lambda _: OK) as api:
        ask(ClusterConfig(f"{api.url}/k8s/clusters/c-1"), "/api/v1/pods?limit=1")
    assert api.asked[0].path == "/k8s/clusters/c-1/api/v1/pods?limit=1"


def test_nobody_there():
    with pytest.raises(UnreachableError, match="GET /api: connection refused"):
        ask(ClusterConfig("http://127.0.0.1:1"))


@contextmanager
def rude_server(first: bytes) -> Iterator[tuple[str, list[int]]]:
    """Answers each connection's first request and hangs up at its second."""
    listener = socket.create_server(("127.0.0.1", 0))
    served: list[int] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                served.append(1)
                connection.sendall(first)
                connection.recv(65536)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", served
    finally:
        listener.close()


def test_a_kept_connection_that_is_closed_is_no_failure():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    with rude_server(answer) as (url, served):
        assert ask(ClusterConfig(url), times=3) == {}
        assert len(served) == 3
        # What changes something is not sent twice: it may have been done.
        with pytest.raises(UnreachableError):
            ask(ClusterConfig(url), method="DELETE", times=2)


def test_bad_certificates_are_told():
    with pytest.raises(UnreachableError, match="https://x: the certificates to connect with"):
        build_ssl_context(ClusterConfig("https://x", ca="-----BEGIN CERTIFICATE-----\nx"))
    pair = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"
    with pytest.raises(UnreachableError, match="cannot be used"):
        build_ssl_context(ClusterConfig("https://x", certificate=pair, key="x"))
    assert build_ssl_context(ClusterConfig("https://x", verify=False)).verify_mode is ssl.CERT_NONE


def test_the_kernel_asks_silent_peers():
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in list_socket_options()


# --- watches


def item(name: str, version: int, **data: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)},
        "data": data,
    }


def event(kind: str, thing: dict) -> dict:
    return {"type": kind, "object": thing}


class Cluster:
    """Lists what it is told to, and plays one script of events for each watch."""

    def __init__(self, lists: list, watches: list) -> None:
        self.lists, self.watches = lists, watches
        self.since: list[str] = []

    def answer(self, asked: Asked) -> Answer:
        if "watch=true" not in asked.path:
            found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            if isinstance(found, Answer):
                return found
            return Answer(body={"metadata": {"resourceVersion": "10"}, "items": found})
        self.since.append(asked.path.partition("resourceVersion=")[2].partition("&")[0])
        if not self.watches:
            time.sleep(0.5)
            return Answer(lines=[])
        found = self.watches.pop(0)
        return found if isinstance(found, Answer) else Answer(lines=found)


def follow(cluster: Cluster, until: Callable[[Cache], bool], seconds: float = 60):
    changes: list[tuple[str, str]] = []

    def hear(change: Change) -> None:
        changes.append((str(change.type), change.object["metadata"]["name"]))

    async def run() -> Cache:
        with run_api(cluster.answer) as api:
            client = Client(ClusterConfig(api.url))
            cache = Cache(client, CONFIG_MAP)
            cache.listen(hear)
            task = asyncio.create_task(cache.run())
            async with asyncio.timeout(seconds):
                while not until(cache):
                    assert not task.done(), task.exception()
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
            return cache

    return asyncio.run(run()), changes


def test_follows_from_where_it_was():
    cluster = Cluster(
        [[item("a", 5)]],
        [
            [event("ADDED", item("b", 11)), event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})],
            [event("MODIFIED", item("b", 21, x="1"))],
        ],
    )  # fmt: skip
    cache, changes = follow(cluster, lambda c: (c.get("b", "n") or {}).get("data") == {"x": "1"})
    assert cluster.since[:2] == ["10", "20"]
    assert changes == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b")]
    assert cache.get("a", "n") == {"apiVersion": "v1", "kind": "ConfigMap", **item("a", 5)}


@pytest.mark.parametrize(
    "broken",
    [
        [{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}],
        [{"type": "ERROR", "object": {"code": 500, "message": "odd"}}],
        Answer(410, {"code": 410, "message": "too old"}),
    ],
    ids=["event-410", "event-500", "answer-410"],
)
def test_lists_again(broken):
    cluster = Cluster([[item("a", 5), item("b", 6)], [item("a", 5), item("c", 7)]], [broken])
    _, changes = follow(cluster, lambda c: c.get("c", "n") is not None)
    assert changes == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize(
    "broken",
    [
        [b"not json\n"],
        [b"[]\n"],
        [b'{"type": "ADDED", "object"'],
        Answer(500, b""),
    ],
    ids=["nonsense", "no-event", "cut-off", "refused"],
)
def test_goes_on_after_nonsense(broken):
    cluster = Cluster([[item("a", 5)]], [broken, [event("ADDED", item("b", 11))]])
    _, changes = follow(cluster, lambda c: c.get("b", "n") is not None)
    assert changes == [("ADDED", "a"), ("ADDED", "b")]


def test_an_absent_kind_is_empty_and_asked_for_again():
    cluster = Cluster([Answer(404, b"404 page not found"), [item("a", 5)]], [])
    _, changes = follow(cluster, lambda c: c.is_synced and c.get("a", "n") is not None)
    assert changes == [("ADDED", "a")]


def test_pages_that_expire_are_read_anew():
    first = Answer(
        body={"metadata": {"continue": "x", "resourceVersion": "9"}, "items": [item("a", 5)]}
    )
    cluster = Cluster([first, status(410, "Expired"), [item("b", 5)]], [])
    _, changes = follow(cluster, lambda c: c.is_synced)
    assert changes == [("ADDED", "b")]


def test_says_what_is_wrong():
    cluster = Cluster([status(403, "Forbidden", "you may not")], [])
    cache, _ = follow(cluster, lambda c: bool(c.trouble))
    assert (cache.trouble, cache.is_synced) == ("you may not", False)


def test_does_not_race_against_a_server_that_ends_every_watch():
    cluster = Cluster([[item("a", 5)]], [Answer(lines=[]) for _ in range(200)])
    started = time.monotonic()
    follow(cluster, lambda c: time.monotonic() - started > 2.5)
    assert len(cluster.since) < 12


def test_a_listener_that_fails_stops_nobody(caplog):
    cluster = Cluster([[item("a", 5), item("b", 6)]], [])
    heard = []

    async def run() -> None:
        with run_api(cluster.answer) as api:
            client = Client(ClusterConfig(api.url))
            cache = Cache(client, CONFIG_MAP)
            cache.listen(lambda change: 1 / 0)
            cache.listen(heard.append)
            task = asyncio.create_task(cache.run())
            await asyncio.wait_for(cache.wait(), 60)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()

    asyncio.run(run())
    assert len(heard) == 2
    assert "listener failed" in caplog.text
