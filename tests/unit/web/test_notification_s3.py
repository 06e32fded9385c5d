"""Objects in S3: the signature as Amazon publishes it, checked by a computation of its own."""

import asyncio
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlsplit

import orjson
import pytest
from notification_server import Got, Reply, make_result, run_target, script

from lictor.errors import LookupFailedError, UndeliveredError
from lictor.registry.cloud_providers import AmazonKeys, CloudRequest, sign
from lictor.web.notifications.messages import NotificationBatch
from lictor.web.notifications.secrets import SecretReader
from lictor.web.notifications.sending import RequestSender
from lictor.web.notifications.settings import NotificationTarget, S3Target, SecretSource
from lictor.web.notifications.targets import AmazonKeySource, TargetSender, locate_object

# The keys of Amazon's published examples.
IDENTIFIER, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY = hashlib.sha256(b"").hexdigest()
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def compute_signature(got: Got, secret: str) -> str:
    """Signature Version 4 of a request as it came, step by step as the documentation has it."""
    scheme, _, rest = got.headers["authorization"].partition(" ")
    assert scheme == "AWS4-HMAC-SHA256"
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    _, date, region, service, ending = fields["Credential"].split("/")
    target = urlsplit(got.target) if got.target.startswith("http") else urlsplit(f"//h{got.target}")

    def uri_encode(text: str, safe: str) -> str:
        return "".join(
            chr(byte) if chr(byte) in UNRESERVED + safe else f"%{byte:02X}"
            for byte in text.encode()
        )

    # Task 1: a canonical request.
    query = sorted(
        (uri_encode(unquote(name), ""), uri_encode(unquote(value), ""))
        for name, _, value in (pair.partition("=") for pair in target.query.split("&") if pair)
    )
    signed = fields["SignedHeaders"].split(";")
    lines = [got.method, uri_encode(unquote(target.path), "/")]
    lines.append("&".join(f"{name}={value}" for name, value in query))
    lines += [f"{name}:{' '.join(got.headers[name].split())}" for name in signed]
    lines += ["", ";".join(signed), got.headers["x-amz-content-sha256"]]
    summary = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    # Task 2: a string to sign.
    scope = f"{date}/{region}/{service}/{ending}"
    text = "\n".join([scheme, got.headers["x-amz-date"], scope, summary])
    # Task 3: a key derived for the day, the region and the service.
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, ending):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_signature(got: Got, secret: str = SECRET) -> None:
    """As a server would: the signature, the time, the content and what must be signed."""
    authorization = got.headers["authorization"]
    assert authorization.endswith(f"Signature={compute_signature(got, secret)}")
    assert got.headers["x-amz-content-sha256"] == hashlib.sha256(got.body).hexdigest()
    signed = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "x-amz-date", "x-amz-content-sha256"} <= set(signed)
    assert all(name in signed for name in got.headers if name.startswith("x-amz-"))
    moment = datetime.strptime(got.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=15)


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signature"),
    [
        pytest.param(
            "GET", "/test.txt", {"range": "bytes=0-9"}, b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", id="GET Object",
        ),
        pytest.param(
            "PUT", "/test%24file.text",
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", id="PUT Object",
        ),
        pytest.param(
            "GET", "/?lifecycle", {}, b"",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543", id="GET Lifecycle",
        ),
        pytest.param(
            "GET", "/?prefix=J&max-keys=2", {}, b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", id="List Objects",
        ),
    ],
)  # fmt: skip
def test_amazons_published_examples(
    method: str, target: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    digest = hashlib.sha256(body).hexdigest()
    request = CloudRequest(
        method,
        f"https://examplebucket.s3.amazonaws.com{target}",
        {**headers, "x-amz-content-sha256": digest},
        body,
    )
    moment = datetime(2013, 5, 24, tzinfo=UTC)
    signed = sign(request, AmazonKeys(IDENTIFIER, SECRET), "us-east-1", "s3", moment)
    assert signed.headers["authorization"].endswith(f"Signature={signature}")
    # The computation that servers are checked with below agrees with the examples too.
    assert compute_signature(Got(method, target, dict(signed.headers), body), SECRET) == signature


def keys_in(folder) -> dict[str, SecretSource]:
    (folder / "id").write_text(f"{IDENTIFIER}\n")
    (folder / "secret").write_text(f"{SECRET}\n")
    return {
        "access_key_id_from": SecretSource(file=str(folder / "id")),
        "secret_access_key_from": SecretSource(file=str(folder / "secret")),
    }


def put(target: S3Target, environment: dict[str, str] | None = None, **more) -> None:
    whole = NotificationTarget("archive", s3=target)
    sender = TargetSender(whole, RequestSender(environment or {}), SecretReader(None, ""), **more)
    batch = NotificationBatch((make_result("a"), make_result("b")), NOW)
    asyncio.run(sender(batch))


@pytest.mark.parametrize("prefix", ["", "lictor/", "über/a b+c=d/~x'(1)!*$&,;@/"])
def test_path_style_at_a_server_of_ones_own(tmp_path, prefix: str) -> None:
    with run_target() as server:
        put(
            S3Target(
                "reports", "eu-central-1", server.url, prefix=prefix,
                server_side_encryption="aws:kms", kms_key_id="key-1", **keys_in(tmp_path),
            )
        )  # fmt: skip
        (got,) = server.got
    check_signature(got)
    assert got.method == "PUT"
    path = unquote(got.target)
    assert path.startswith(f"/reports/{prefix}2026/01/02/20260102T030405Z-")
    assert path.endswith(".jsonl")
    assert "/eu-central-1/s3/aws4_request" in got.headers["authorization"]
    assert got.headers["x-amz-server-side-encryption"] == "aws:kms"
    names = [orjson.loads(line)["data"]["resource"]["name"] for line in got.body.splitlines()]
    assert names == ["a", "b"]


def test_virtual_host_style_and_a_session_through_a_proxy(tmp_path) -> None:
    (tmp_path / "session").write_text("session-token")
    with run_target() as server:
        target = S3Target(
            "reports",
            "us-east-1",
            "http://s3.store.test",
            path_style=False,
            session_token_from=SecretSource(file=str(tmp_path / "session")),
            **keys_in(tmp_path),
        )
        put(target, {"http_proxy": f"http://user:pass@127.0.0.1:{server.port}"})
        (got,) = server.got
    check_signature(got)
    assert got.target.startswith("http://reports.s3.store.test/2026/01/02/")
    assert got.headers["host"] == "reports.s3.store.test"
    assert got.headers["x-amz-security-token"] == "session-token"
    assert got.headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("target", "url"),
    [
        (S3Target("reports", "eu-west-1"), "https://reports.s3.eu-west-1.amazonaws.com/a"),
        (S3Target("reports", "cn-north-1"), "https://reports.s3.cn-north-1.amazonaws.com.cn/a"),
        (S3Target("my.reports", "eu-west-1"), "https://s3.eu-west-1.amazonaws.com/my.reports/a"),
        (S3Target("reports", "x", "https://m:9000"), "https://m:9000/reports/a"),
        (S3Target("reports", "x", "https://m:9000/", path_style=False), "https://reports.m:9000/a"),
        (S3Target("reports", "eu-west-1", path_style=True),
         "https://s3.eu-west-1.amazonaws.com/reports/a"),
    ],
)  # fmt: skip
def test_where_objects_are(target: S3Target, url: str) -> None:
    assert locate_object(target, "a") == url


def test_the_same_batch_is_the_same_object(tmp_path) -> None:
    with run_target() as server:
        target = S3Target("reports", "us-east-1", server.url, **keys_in(tmp_path))
        put(target)
        put(target)
        first, second = server.got
    assert (first.target, first.body) == (second.target, second.body)


def test_the_identity_of_the_pod_serves_where_no_secret_is_named() -> None:
    asked: list[str] = []

    def ask(region: str) -> AmazonKeys:
        asked.append(region)
        return AmazonKeys(IDENTIFIER, SECRET, "from-the-pod")

    source = AmazonKeySource({}, ask)
    with run_target() as server:
        for _ in range(2):
            put(S3Target("reports", "eu-west-1", server.url), amazon=source)
        for got in server.got:
            check_signature(got)
    assert asked == ["eu-west-1"]
    assert got.headers["x-amz-security-token"] == "from-the-pod"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("AWS_ROLE_ARN"), "accessKeyIdFrom and secretAccessKeyFrom, or give the Pod"),
        (LookupFailedError("sts answered 403"), "no keys for S3: sts answered 403"),
    ],
)
def test_no_keys_at_all(error: Exception, message: str) -> None:
    def ask(_: str) -> AmazonKeys:
        raise error

    with run_target() as server:
        with pytest.raises(UndeliveredError, match=message):
            put(S3Target("reports", "us-east-1", server.url), amazon=AmazonKeySource({}, ask))
        assert server.got == []


def test_what_s3_says_is_told_and_nothing_secret(tmp_path) -> None:
    refusal = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{SECRET}</Message></Error>"
    with run_target(script(Reply(403, refusal.encode()))) as server:
        target = S3Target("reports", "us-east-1", server.url, **keys_in(tmp_path))
        with pytest.raises(UndeliveredError) as refused:
            put(target)
    assert str(refused.value) == "127.0.0.1 answered 403 Forbidden (SignatureDoesNotMatch)"
    assert not refused.value.is_final
