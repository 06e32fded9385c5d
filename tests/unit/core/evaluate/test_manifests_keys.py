"""Keys: which signatures they accept, and which texts are no keys."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA512

from lictor.core.crypto.signature import compile_key

CURVE = ec.generate_private_key(ec.SECP256R1())
LARGE = ec.generate_private_key(ec.SECP521R1())
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EDWARDS = ed25519.Ed25519PrivateKey.generate()
MESSAGE = b"message"


def pem(key) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def side_by_side(signature: bytes, size: int) -> bytes:
    return b"".join(number.to_bytes(size) for number in decode_dss_signature(signature))


OF_CURVE = CURVE.sign(MESSAGE, ec.ECDSA(SHA256()))
OF_LARGE = LARGE.sign(MESSAGE, ec.ECDSA(SHA256()))
OF_RSA = RSA.sign(MESSAGE, padding.PKCS1v15(), SHA256())
OF_EDWARDS = EDWARDS.sign(MESSAGE)
WRONG = "invalid signature when validating ASN.1 encoded signature"


def nameless(_) -> str:
    """Keys are new in every run, and names of tests must not be."""
    return "case"


@pytest.mark.parametrize(
    ("key", "signature", "why"),
    [
        (CURVE, OF_CURVE, None),
        (CURVE, side_by_side(OF_CURVE, 32), None),
        (CURVE, OF_LARGE, WRONG),
        (CURVE, CURVE.sign(b"other", ec.ECDSA(SHA256())), WRONG),
        (CURVE, CURVE.sign(MESSAGE, ec.ECDSA(SHA512())), WRONG),
        (CURVE, b"x" * 64, "invalid signature when validating IEEE_P1363 encoded signature"),
        (CURVE, b"\0" * 64, "invalid signature when validating IEEE_P1363 encoded signature"),
        (CURVE, b"", "ecdsa: Invalid IEEE_P1363 encoded bytes"),
        (CURVE, b"x" * 63, "ecdsa: Invalid IEEE_P1363 encoded bytes"),
        (CURVE, b"x" * 134, "ecdsa: Invalid IEEE_P1363 encoded bytes"),
        (LARGE, OF_LARGE, None),
        (LARGE, side_by_side(OF_LARGE, 66), None),
        (RSA, OF_RSA, None),
        (RSA, RSA.sign(MESSAGE, padding.PKCS1v15(), SHA512()), "crypto/rsa: verification error"),
        (RSA, RSA.sign(MESSAGE, padding.PSS(padding.MGF1(SHA256()), 32), SHA256()), "crypto/rsa: verification error"),
        (RSA, b"", "crypto/rsa: verification error"),
        (EDWARDS, OF_EDWARDS, None),
        (EDWARDS, OF_EDWARDS[:-1], "failed to verify signature"),
        (EDWARDS, b"", "failed to verify signature"),
        (EDWARDS, OF_CURVE, "failed to verify signature"),
    ],
    ids=nameless,
)  # fmt: skip
def test_signatures(key, signature, why):
    assert compile_key(pem(key))(signature, MESSAGE) == why


def test_the_first_of_several_keys_counts():
    verify = compile_key(f"words before\n{pem(CURVE)}{pem(RSA)}")
    assert verify(OF_CURVE, MESSAGE) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        pem(CURVE).replace("PUBLIC KEY", "CERTIFICATE"),
        pem(CURVE)[:80],
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(ed448.Ed448PrivateKey.generate()),
        pem(dsa.generate_private_key(1024)),
        "\ud800",
    ],
    ids=nameless,
)
def test_what_is_no_key(text):
    with pytest.raises(ValueError):  # noqa: PT011  (the words are the library's)
        compile_key(text)
