"""JWS and COSE: the parts in one shape, and what is no such message."""

import json
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime

import cbor2
import pytest

from lictor.core.lang.signed_message import read_cose, read_jws


def _url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _jws(**parts: object) -> bytes:
    envelope = {
        "payload": _url(b"what is said"),
        "protected": _url(b'{"alg": "ES256"}'),
        "header": {"x5c": [b64encode(b"one").decode(), b64encode(b"two").decode()]},
        "signature": _url(b"signature"),
    }
    return json.dumps({**envelope, **parts}).encode()


def _cose(protected: object = None, unprotected: object = None, *, tag: int = 18) -> bytes:
    written = protected if isinstance(protected, bytes) else cbor2.dumps(protected or {1: -7})
    parts = [written, {33: [b"one", b"two"]} if unprotected is None else unprotected]
    return cbor2.dumps(cbor2.CBORTag(tag, [*parts, b"what is said", b"signature"]))


def test_jws_is_taken_apart() -> None:
    envelope = json.loads(_jws())
    message = read_jws(_jws())
    assert message.algorithm == "ES256"
    assert (message.payload, message.signature) == (b"what is said", b"signature")
    assert message.signed == f"{envelope['protected']}.{envelope['payload']}".encode()
    assert message.certificates == (b"one", b"two")


def test_cose_has_the_names_of_jose() -> None:
    protected = {1: -37, 2: [3, "example"], 3: "text/plain", "when": cbor2.CBORTag(1, 0)}
    message = read_cose(_cose(protected))
    assert message.algorithm == "PS256"
    assert message.protected["crit"] == ["cty", "example"]
    assert message.protected["cty"] == "text/plain"
    assert message.protected["when"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert message.certificates == (b"one", b"two")
    expected = ["Signature1", cbor2.dumps(protected), b"", b"what is said"]
    assert cbor2.loads(message.signed) == expected


def test_cose_may_have_one_certificate_without_a_list() -> None:
    assert read_cose(_cose(unprotected={33: b"one"})).certificates == (b"one",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "JSON object"),
        (_jws(signatures=[]), "several signatures"),
        (_jws(payload=None), "payload is missing"),
        (_jws(payload="a b"), "base64url"),
        (_jws(protected=_url(b"[]")), "JSON object"),
        (_jws(header=[]), "header is not an object"),
        (_jws(header={"alg": "ES256"}), "alg is both protected and not"),
        (_jws(header={"x5c": [1]}), "x5c must contain"),
        (_jws(header={"x5c": ["QUFB"] * 11}), "more than 10"),
    ],
)
def test_malformed_jws(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_jws(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not in CBOR"),
        (_cose(tag=98), "no COSE_Sign1"),
        (cbor2.dumps(cbor2.CBORTag(18, [b"", {}, b""])), "four parts"),
        (cbor2.dumps(cbor2.CBORTag(18, [b"", {}, None, b""])), "must be bytes"),
        (b"\xd2\x9f\x40\xa0\x40\x40\xff", "indefinite"),
        (b"\x81" * 20, "nesting depth"),
        (_cose(b"\xa2\x01\x26\x01\x26"), "Duplicate"),
        (_cose({1: -7, "alg": -7}), "duplicate header"),
        (_cose([1]), "headers must be a map"),
        (_cose({1: cbor2.CBORTag(35, "(a+)+$")}), "tag 35"),
        (_cose({1: cbor2.CBORTag(2, b"1")}), "tag 2"),
        (_cose({"when": cbor2.CBORTag(1, "x")}), "tag 1"),
        (_cose({"when": cbor2.CBORTag(1, 10**17)}), "tag 1"),
        (_cose(unprotected={1: -7}), "alg is both protected and not"),
        (_cose(unprotected={b"x": 1}), "neither number nor text"),
        (_cose(unprotected={33: ["x"]}), "x5chain must contain"),
    ],
)
def test_malformed_cose(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_cose(content)
