"""Certificates and requests for them become JSON."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from lictor.core.errors import FunctionError
from lictor.core.lang.jmespath import compile_query

START = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.COMMON_NAME, "example"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Org"),
    ]
)
NAMES = x509.SubjectAlternativeName(
    [x509.DNSName("a.example"), x509.IPAddress(ip_address("10.0.0.1"))]
)
USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=True,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(65537, 2048)


def make_certificate(key):
    builder = x509.CertificateBuilder(
        NAME, NAME, key.public_key(), 7, START, START.replace(year=2034)
    )
    for extension in (NAMES, USAGE, x509.BasicConstraints(ca=True, path_length=0)):
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def decode(text):
    return compile_query("x509_decode(@)")(text)


def test_certificate(key):
    found = decode(make_certificate(key))
    assert found["PublicKey"] == {"N": str(key.public_key().public_numbers().n), "E": 65537}
    assert found["Subject"]["CommonName"] == "example"
    assert found["Issuer"]["Organization"] == ["Org"]
    assert found["Issuer"]["Country"] is None
    assert found["NotBefore"] == "2024-05-06T07:08:09Z"
    assert found["NotAfter"] == "2034-05-06T07:08:09Z"
    assert (found["DNSNames"], found["IPAddresses"]) == (["a.example"], ["10.0.0.1"])
    assert (found["IsCA"], found["MaxPathLen"], found["MaxPathLenZero"]) == (True, 0, True)
    assert (found["KeyUsage"], found["ExtKeyUsage"]) == (1 + 4 + 32, None)
    assert (found["SerialNumber"], found["Version"], found["SignatureAlgorithm"]) == (7, 3, 4)


def test_a_block_without_an_end_is_passed_over(key):
    text = make_certificate(key)
    assert decode(f"-----BEGIN CERTIFICATE-----\nAAAA\n{text}") == decode(text)
    assert decode(f"-----BEGIN X-----\nAAAA\n-----END Y-----\n{text}") == decode(text)


def test_request(key):
    builder = x509.CertificateSigningRequestBuilder(NAME).add_extension(NAMES, critical=False)
    found = decode(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode())
    assert (found["DNSNames"], found["Version"]) == (["a.example"], 0)
    assert found["Attributes"][0]["Type"] == [1, 2, 840, 113549, 1, 9, 14]
    assert found["Subject"]["Organization"] == ["Org"]


def with_version(text, version):
    _, label, body, end, _ = text.split("-----")
    data = b64decode(body)
    # The version is the first number of a certificate: tag, length, and two more around it.
    data = data.replace(b"\xa0\x03\x02\x01\x02", bytes((0xA0, 3, 2, 1, version)), 1)
    return f"-----{label}-----\n{b64encode(data).decode()}\n-----{end}-----\n"


def test_what_is_refused(key):
    with pytest.raises(FunctionError, match="rsa"):
        decode(make_certificate(ec.generate_private_key(ec.SECP256R1())))
    text = make_certificate(key)
    for broken in (
        "",
        "x",
        text.replace("CERTIFICATE", "KEY"),
        text[:200],
        text.replace("M", "N", 1),
        with_version(text, 1),
        "-----BEGIN CERTIFICATE-----\n" * 5000,
        "-----BEGIN " + "-----" * 5000,
    ):
        with pytest.raises(FunctionError):
            decode(broken)
