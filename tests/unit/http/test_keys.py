"""Keys and certificates, judged by openssl and by a TLS handshake."""

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

from lictor.http import keys
from lictor.http.keys import Algorithm

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTS = ("10.1.2.3", "lictor-svc", "lictor-svc.ns", "lictor-svc.ns.svc")
YEAR, MONTHS = timedelta(days=365), timedelta(days=150)


def make_pair(algorithm, now=NOW):
    authority = keys.make_authority("*.ns.svc", algorithm, now, YEAR)
    return authority, keys.make_serving(authority, HOSTS, algorithm, now, MONTHS)


@pytest.fixture(scope="module", params=list(Algorithm))
def pairs(request):
    return request.param, *make_pair(request.param)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_openssl_agrees(pairs, tmp_path):
    algorithm, authority, serving = pairs
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "leaf.pem").write_text(serving.certificate_pem)
    (tmp_path / "leaf.key").write_text(serving.key_pem)
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.pem"]
    done = subprocess.run(
        [*words, "-verify_hostname", HOSTS[-1], "leaf.pem"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "leaf.pem: OK", done.stderr
    text = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", "leaf.pem"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert {"RSA": "rsaEncryption", "ECDSA": "id-ecPublicKey", "Ed25519": "ED25519"}[
        algorithm
    ] in text
    assert ("Key Encipherment" in text) == (algorithm == Algorithm.RSA)


def test_a_client_that_trusts_the_authority_connects(pairs, tmp_path):
    _, authority, serving = pairs
    (tmp_path / "tls.crt").write_text(serving.certificate_pem)
    (tmp_path / "tls.key").write_text(serving.key_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cadata=authority.certificate_pem)
    near, far = socket.socketpair()

    def serve():
        with server.wrap_socket(far, server_side=True) as line:
            line.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(near, server_hostname=HOSTS[-1]) as line:
        assert line.recv(5) == b"hello"
    thread.join()


def test_what_was_made_can_be_read(pairs):
    algorithm, authority, serving = pairs
    (leaf,) = keys.read_certificates(serving.certificate_pem)
    key = keys.read_key(serving.key_pem)
    assert keys.belongs(key, leaf)
    assert not keys.belongs(key, authority.certificate)
    assert keys.is_issued_by(leaf, authority.certificate)
    assert not keys.is_issued_by(authority.certificate, leaf)
    assert keys.find_algorithm(leaf) == algorithm
    assert keys.list_hosts(leaf) == frozenset(HOSTS)
    assert keys.list_hosts(authority.certificate) == frozenset()
    assert keys.is_valid_at(leaf, NOW)
    assert keys.is_valid_at(leaf, NOW - timedelta(minutes=30)), "clocks differ"
    assert not keys.is_valid_at(leaf, NOW + timedelta(days=151))


def test_authorities_of_one_name_are_not_mistaken_for_each_other():
    first, leaf = make_pair(Algorithm.ECDSA)
    second, _ = make_pair(Algorithm.ECDSA)
    assert first.certificate.subject == second.certificate.subject
    assert not keys.is_issued_by(leaf.certificate, second.certificate)
    bundle = keys.write_certificates((second.certificate, first.certificate))
    assert keys.read_certificates(bundle) == (second.certificate, first.certificate)


def test_an_old_authority_may_have_another_kind_of_key():
    old = keys.make_authority("*.ns.svc", Algorithm.RSA, NOW, YEAR)
    leaf = keys.make_serving(old, HOSTS, Algorithm.ED25519, NOW, MONTHS)
    assert keys.is_issued_by(leaf.certificate, old.certificate)
    assert keys.find_algorithm(leaf.certificate) == Algorithm.ED25519


def test_no_certificate_outlives_its_authority():
    authority = keys.make_authority("*.ns.svc", Algorithm.ECDSA, NOW, timedelta(days=20))
    leaf = keys.make_serving(authority, HOSTS, Algorithm.ECDSA, NOW, MONTHS).certificate
    assert leaf.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_long_name_is_no_obstacle():
    host = f"{'a' * 60}.{'b' * 60}.svc"
    authority = keys.make_authority("*.ns.svc", Algorithm.ECDSA, NOW, YEAR)
    leaf = keys.make_serving(authority, (host,), Algorithm.ECDSA, NOW, MONTHS).certificate
    assert keys.list_hosts(leaf) == {host}


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "\x00" * 99],
)
def test_unreadable_text(text):
    assert keys.read_certificates(text) == ()
    assert keys.read_key(text) is None


def test_readable_ones_are_found_among_unreadable_ones():
    authority = keys.make_authority("x", Algorithm.ECDSA, NOW, YEAR)
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    text = f"# a comment\n{broken}{authority.certificate_pem}"
    assert keys.read_certificates(text) == (authority.certificate,)


def test_keys_are_never_shown():
    authority = keys.make_authority("x", Algorithm.ECDSA, NOW, YEAR)
    assert repr(authority) == "KeyPair(...)"
    assert str([authority]) == "[KeyPair(...)]"
