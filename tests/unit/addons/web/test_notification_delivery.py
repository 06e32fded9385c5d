"""Requests to targets, and what happens where they fail, over real connections on loopback."""

import asyncio
import logging
import ssl
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from notification_server import Got, Reply, TargetServer, make_result, run_target, script

from lictor.addons.web.notifications.delivery import MOST_WAITING, TargetQueue
from lictor.addons.web.notifications.messages import NotificationBatch
from lictor.addons.web.notifications.secrets import SecretReader
from lictor.addons.web.notifications.sending import (
    OutgoingRequest,
    RequestSender,
    TargetPace,
    TargetSender,
)
from lictor.addons.web.notifications.settings import (
    ChatTarget,
    NotificationTarget,
    SecretKeyReference,
    SecretSource,
    WebhookTarget,
)
from lictor.core.errors import UndeliveredError
from lictor.core.raw import Json

FAST = TargetPace(batch_size=1, per_minute=10_000, wait=0.0)
MANY = TargetPace(batch_size=100, per_minute=10_000, wait=0.0)


def webhook(server: TargetServer, mode: Json = "structured", **more: Json) -> NotificationTarget:
    return NotificationTarget("hook", webhook=WebhookTarget(f"{server.url}/in", mode=mode, **more))


def send(target: NotificationTarget, *names: str, environment: Json = None) -> None:
    sender = TargetSender(target, RequestSender(environment or {}), SecretReader(None, ""))
    results = tuple(make_result(name) for name in names or ("web",))
    asyncio.run(sender(NotificationBatch(results, datetime.now(UTC))))


@asynccontextmanager
async def queue_for(target: NotificationTarget, pace: TargetPace = FAST):
    sender = TargetSender(target, RequestSender({}), SecretReader(None, ""))
    queue = TargetQueue(target.name, "webhook", pace, sender)
    running = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def drain(queue: TargetQueue, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while list(queue.waiting):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def names_of(server: TargetServer) -> list[str]:
    return [got.json["data"]["resource"]["name"] for got in server.got]


# --- what goes out


def test_a_webhook_gets_one_structured_event(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer abc\n")
    with run_target() as server:
        source = {"Authorization": SecretSource(file=str(tmp_path / "token"))}
        send(webhook(server, headers={"X-Team": "a"}, headers_from=source))
        (got,) = server.got
    assert (got.method, got.target) == ("POST", "/in")
    assert got.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert got.headers["authorization"] == "Bearer abc"
    assert got.headers["x-team"] == "a"
    assert got.json["specversion"] == "1.0"


def test_a_webhook_can_take_many_at_once() -> None:
    with run_target() as server:
        send(webhook(server, "batched"), "a", "b")
        (got,) = server.got
    assert got.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert [event["subject"] for event in got.json] == ["team-a/Pod/a", "team-a/Pod/b"]


def test_chats_are_reached_by_addresses_from_secrets(tmp_path: Path) -> None:
    with run_target() as server:
        (tmp_path / "url").write_text(f"{server.url}/services/T0/B0/key?sig=1\n")
        source = SecretSource(file=str(tmp_path / "url"))
        send(NotificationTarget("chat", slack=ChatTarget(source)))
        send(NotificationTarget("chat", teams=ChatTarget(source)))
        slack, teams = server.got
    assert slack.target == teams.target == "/services/T0/B0/key?sig=1"
    assert slack.json["blocks"][0]["type"] == "header"
    assert teams.json["attachments"][0]["content"]["type"] == "AdaptiveCard"


def make_authority(folder: Path) -> tuple[str, ssl.SSLContext]:
    """A certificate for 127.0.0.1 and hooks.test that nobody knows, and a server's TLS with it."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "targets")])
    now = datetime.now(UTC)
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("hooks.test")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "ca.pem").write_bytes(text)
    (folder / "pair.pem").write_bytes(private + text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    return str(folder / "ca.pem"), context


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority, context = make_authority(tmp_path)
    with run_target(context=context) as server:
        hook = WebhookTarget(f"{server.url}/in")
        send(
            NotificationTarget(
                "hook", webhook=hook, certificate_authority_from=SecretSource(file=authority)
            )
        )
        with pytest.raises(UndeliveredError, match=r"no safe connection to 127\.0\.0\.1: self"):
            send(NotificationTarget("hook", webhook=hook))
        assert len(server.got) == 1


def test_tls_through_a_proxy(tmp_path: Path) -> None:
    authority, context = make_authority(tmp_path)
    asked: list[bytes] = []

    async def run(port: int) -> None:
        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(4096):
                    writer.write(data)
            except ConnectionError:
                pass
            writer.close()

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        address = proxy.sockets[0].getsockname()[1]
        hook = WebhookTarget("https://hooks.test/services/secret")
        target = NotificationTarget(
            "hook", webhook=hook, certificate_authority_from=SecretSource(file=authority)
        )
        sender = RequestSender({"HTTPS_PROXY": f"http://127.0.0.1:{address}"})
        try:
            await TargetSender(target, sender, SecretReader(None, ""))(
                NotificationBatch((make_result(),), datetime.now(UTC))
            )
        finally:
            proxy.close()

    with run_target(context=context) as server:
        asyncio.run(run(server.port))
        (got,) = server.got
    assert got.target == "/services/secret"
    # The proxy learns the host, and nothing of what is sent there.
    assert asked[0].startswith(b"CONNECT hooks.test:443 HTTP/1.1\r\n")
    assert b"secret" not in asked[0]


# --- what does not arrive


@pytest.mark.parametrize(
    ("reply", "message", "final"),
    [
        (Reply(500), "answered 500 Internal Server Error", False),
        (Reply(429, headers={"retry-after": "7"}), "answered 429 Too Many Requests", False),
        (Reply(404, b"no_service"), "answered 404 Not Found (no_service)", False),
        (Reply(401), "answered 401 Unauthorized", False),
        (Reply(400, b"invalid_payload"), "answered 400 Bad Request (invalid_payload)", True),
        (Reply(413), "answered 413", True),
        (Reply(799), "answered 799", False),
        (Reply(400, b"secret-word in the answer"), "answered 400 Bad Request", True),
    ],
)
def test_answers_that_are_no_success(reply: Reply, message: str, final: Json) -> None:
    with run_target(script(reply)) as server, pytest.raises(UndeliveredError) as refused:
        send(webhook(server))
    assert str(refused.value).startswith(f"127.0.0.1 {message}")
    assert "secret-word" not in str(refused.value)
    assert refused.value.is_final is final
    assert refused.value.retry_after == float(reply.headers.get("retry-after", 0))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with run_target() as elsewhere:
        reply = Reply(status, headers={"location": f"{elsewhere.url}/steal"})
        with run_target(script(reply)) as server:
            with pytest.raises(UndeliveredError, match="a redirect, which is not followed"):
                send(webhook(server))
            assert len(server.got) == 1
        assert elsewhere.got == []


def test_nobody_is_there() -> None:
    with run_target() as server:
        target = webhook(server)
    with pytest.raises(UndeliveredError, match=r"no connection to 127\.0\.0\.1: "):
        send(target)


def test_an_endless_answer_is_not_read() -> None:
    endless = script(Reply(200, b"x" * 1_000_000))
    with run_target(endless) as server, pytest.raises(UndeliveredError, match="did not answer as"):
        send(webhook(server))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\xff\xfe", "holds no text"),
        (b"x" * 300_000, "is too large"),
        (b"hooks.slack.com/services/T0/B0/key", "the address must begin with https://"),
        (b"https://me:key@hooks.slack.com/", "the address must hold no user or password"),
        (b"https://hooks.slack.com/key\r\nx: y", "the address must be printable"),
    ],
)
def test_secrets_that_are_of_no_use(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    target = ChatTarget(SecretSource(file=str(tmp_path / "url")))
    with pytest.raises(UndeliveredError, match=message) as refused:
        send(NotificationTarget("chat", slack=target))
    assert "key" not in str(refused.value)


def test_a_secret_with_a_line_end_never_becomes_a_header(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("key\r\nx-admin: yes")
    source = {"Authorization": SecretSource(file=str(tmp_path / "token"))}
    with run_target() as server:
        with pytest.raises(UndeliveredError) as refused:
            send(webhook(server, headers_from=source))
        assert server.got == []
    assert "key" not in str(refused.value)


def test_without_a_cluster_there_are_no_secrets() -> None:
    reader = SecretReader(None, "lictor")
    source = SecretSource(SecretKeyReference("chat", "url"))
    with pytest.raises(UndeliveredError, match="key url of Secret lictor/chat cannot be read"):
        asyncio.run(reader.read(source))


def test_what_holds_secrets_does_not_show_them() -> None:
    request = OutgoingRequest("https://a/key", {"authorization": "key"}, b"")
    assert "key" not in repr(request)


# --- queues


def test_a_failure_is_tried_again_until_it_arrives_and_only_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(server: TargetServer) -> None:
        async with queue_for(webhook(server)) as queue:
            queue.offer(1, make_result("a"))
            queue.offer(2, make_result("b"))
            await server.wait_for(4)
            await drain(queue)
            await asyncio.sleep(0.1)

    caplog.set_level(logging.INFO)
    with run_target(script(Reply(503), Reply(503), Reply(200))) as server:
        asyncio.run(run(server))
    assert names_of(server) == ["a", "a", "a", "b"]
    # Each pause is between half of 1, 2, 4... seconds and all of it.
    first, second, third, _ = (got.at for got in server.got)
    assert second - first > 0.45
    assert third - second > 0.95
    # Each reason once, and the end of it.
    words = [record.getMessage() for record in caplog.records if "lictor" in record.name]
    assert words == ["notifications do not arrive", "notifications arrive again"]


@pytest.mark.parametrize("reply", [Reply(403, b"key-1234"), Reply(302), Reply(500, b"key-1234")])
def test_no_secret_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reply: Reply
) -> None:
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        source = SecretSource(file=str(tmp_path / "url"))
        target = NotificationTarget("chat", slack=ChatTarget(source))
        async with queue_for(target) as queue:
            queue.offer(1, make_result())
            await server.wait_for(1)
            await asyncio.sleep(0.1)

    with run_target(script(reply)) as server:
        (tmp_path / "url").write_text(f"{server.url}/services/key-1234")
        asyncio.run(run())
        assert server.got[0].target == "/services/key-1234"
    assert "notifications do not arrive" in caplog.text
    said = [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
    assert not any("key-1234" in line or "/services" in line for line in said)


def test_retry_after_is_heeded() -> None:
    async def run(server: TargetServer) -> None:
        async with queue_for(webhook(server)) as queue:
            queue.offer(1, make_result())
            await server.wait_for(2)

    reply = Reply(429, headers={"retry-after": "2"})
    with run_target(script(reply, Reply())) as server:
        asyncio.run(run(server))
    first, second = (got.at for got in server.got)
    assert second - first > 1.8


def test_a_dead_target_harms_nobody() -> None:
    async def run(good: TargetServer, silent: TargetServer) -> None:
        async with queue_for(webhook(silent)) as behind, queue_for(webhook(good)) as queue:
            for key in range(30):
                behind.offer(key, make_result(str(key)))
                queue.offer(key, make_result(str(key)))
            await drain(queue)
            # Each of them takes a second.
            assert len(list(behind.waiting)) > 10

    with run_target(lambda _: Reply(after=1.0)) as silent, run_target() as good:
        # The end waits for the one request that has begun, and for no other.
        asyncio.run(run(good, silent))
        assert len(good.got) == 30
        assert len(silent.got) <= 2


def test_one_that_is_refused_does_not_take_the_others_with_it() -> None:
    def answer(got: Got) -> Reply:
        bad = any(event["data"]["resource"]["name"] == "7" for event in got.json)
        return Reply(400 if bad else 200)

    async def run(server: TargetServer) -> None:
        async with queue_for(webhook(server, "batched"), MANY) as queue:
            for key in range(20):
                queue.offer(key, make_result(str(key)))
            await drain(queue)

    with run_target(answer) as server:
        asyncio.run(run(server))
        taken = [
            event["data"]["resource"]["name"]
            for got in server.got
            if answer(got).status == 200
            for event in got.json
        ]
    assert sorted(taken, key=int) == [str(key) for key in range(20) if key != 7]


def test_no_more_requests_than_allowed() -> None:
    async def run(server: TargetServer) -> None:
        pace = TargetPace(batch_size=1, per_minute=60, wait=0.0)
        async with queue_for(webhook(server), pace) as queue:
            for key in range(50):
                queue.offer(key, make_result(str(key)))
            await asyncio.sleep(1.5)

    with run_target() as server:
        asyncio.run(run(server))
        # A burst of a tenth of a minute's, and one each second.
        assert 6 <= len(server.got) <= 8


def test_what_comes_together_goes_together() -> None:
    async def run(server: TargetServer) -> None:
        pace = TargetPace(batch_size=100, per_minute=600, wait=2.0)
        async with queue_for(webhook(server, "batched"), pace) as queue:
            for key in range(20):
                queue.offer(key, make_result(str(key)))
                await asyncio.sleep(0.005)
            await drain(queue)

    with run_target() as server:
        asyncio.run(run(server))
    assert [len(got.json) for got in server.got] == [20]


def test_the_queue_is_bounded_and_says_what_it_left_out() -> None:
    sent: list[NotificationBatch] = []

    async def take(batch: NotificationBatch) -> None:
        sent.append(batch)

    async def run() -> None:
        queue = TargetQueue("full", "slack", TargetPace(6_000, 600, 0.0), take)
        result = make_result()
        for key in range(MOST_WAITING + 5):
            queue.offer(key, result)
        running = asyncio.create_task(queue.run())
        await drain(queue)
        running.cancel()

    asyncio.run(run())
    assert [(len(batch.results), batch.left_out) for batch in sent] == [(6_000, 5), (4_000, 0)]


def test_a_request_that_has_begun_is_ended_at_the_end() -> None:
    async def run(server: TargetServer) -> list[int]:
        async with queue_for(webhook(server)) as queue:
            queue.offer(1, make_result("a"))
            queue.offer(2, make_result("b"))
            await asyncio.sleep(0.2)
        return list(queue.waiting)

    with run_target(lambda _: Reply(after=0.5)) as server:
        # The first one was on its way and arrived; the second waits for whoever comes next.
        assert asyncio.run(run(server)) == [2]
        assert names_of(server) == ["a"]


def test_metrics_of_a_target() -> None:
    from prometheus_client import REGISTRY

    def read(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(
            f"lictor_notifications_{name}", {"target": "counted", "kind": "webhook", **labels}
        )

    async def run(server: TargetServer) -> None:
        target = NotificationTarget("counted", webhook=WebhookTarget(server.url))
        async with queue_for(target) as queue:
            assert read("sent_total") == 0
            queue.offer(1, make_result("a"))
            assert read("waiting") == 1
            queue.offer(2, make_result("b"))
            await drain(queue)

    with run_target(script(Reply(400), Reply())) as server:
        asyncio.run(run(server))
    assert read("sent_total") == 1
    assert read("failed_total") == 1
    assert read("dropped_total", reason="refused") == 1
    assert read("dropped_total", reason="full") == 0
    assert read("waiting") == 0
    assert abs((read("last_success_timestamp_seconds") or 0) - time.time()) < 60
