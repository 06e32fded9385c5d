"""The serving certificate: shown, changed while connections are open, and left alone when wrong."""

import ssl
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from lictor.http.keys import Algorithm, make_authority, make_serving
from lictor.http.serving_certificate import LiveCertificate, make_temporary, read_secret

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def make_pair(host: str, algorithm: Algorithm) -> tuple[bytes, bytes]:
    authority = make_authority("test", algorithm, NOW, DAY)
    pair = make_serving(authority, (host,), algorithm, NOW, DAY)
    return pair.certificate_pem.encode(), pair.key_pem.encode()


def shake_hands(server: ssl.SSLContext, *, name: str | None = None) -> bytes:
    """The certificate that a client is shown, over memory."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    done = 0
    for _ in range(10):
        for side in (client, serving):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
        if done >= 2:
            break
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def test_certificates_of_all_kinds_follow_each_other() -> None:
    live = LiveCertificate()
    for host, algorithm in (
        ("one", Algorithm.ECDSA),
        ("two", Algorithm.RSA),
        ("three", Algorithm.ED25519),
        ("four", Algorithm.ECDSA),
    ):
        certificate, key = make_pair(host, algorithm)
        assert live.load(certificate, key)
        assert shake_hands(live.context) == ssl.PEM_cert_to_DER_cert(certificate.decode())
        assert shake_hands(live.context, name="lictor-svc.lictor.svc") == (
            ssl.PEM_cert_to_DER_cert(certificate.decode())
        )


def test_the_same_certificate_is_no_news() -> None:
    live = LiveCertificate()
    pair = make_pair("one", Algorithm.ECDSA)
    assert live.load(*pair)
    assert not live.load(*pair)


@pytest.mark.parametrize("key", [b"", b"not a key", make_pair("other", Algorithm.ECDSA)[1]])
def test_an_unusable_pair_leaves_the_old_one(key: bytes) -> None:
    live = LiveCertificate()
    certificate, own_key = make_pair("one", Algorithm.ECDSA)
    live.load(certificate, own_key)
    other, _ = make_pair("two", Algorithm.ECDSA)
    assert not live.load(other, key)
    assert shake_hands(live.context) == ssl.PEM_cert_to_DER_cert(certificate.decode())


def test_old_protocols_are_refused() -> None:
    live = LiveCertificate()
    live.load(*make_temporary(("localhost",)))
    assert live.context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("secret", "found"),
    [
        ({}, None),
        ({"data": None}, None),
        ({"data": {"tls.crt": "", "tls.key": ""}}, None),
        ({"data": {"tls.crt": "####", "tls.key": "####"}}, None),
        ({"data": {"tls.crt": 1, "tls.key": 2}}, None),
        (
            {"data": {"tls.crt": b64encode(b"c").decode(), "tls.key": b64encode(b"k").decode()}},
            (b"c", b"k"),
        ),
    ],
)
def test_secrets(secret: dict[str, object], found: tuple[bytes, bytes] | None) -> None:
    assert read_secret(secret) == found
