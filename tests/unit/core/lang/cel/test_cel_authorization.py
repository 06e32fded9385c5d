"""Policies on requests to Envoy and to web servers."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import orjson
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from lictor.core.errors import FunctionError, SyntaxFaultError
from lictor.core.evaluate.cel.validate import is_allowed, read_answer
from lictor.core.families.kyverno_cel.authorizing import (
    complete_envoy_request,
    complete_http_request,
)
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.host import HostFunctions
from lictor.core.lang.cel.kyverno import authorization_environment

ENVOY, HTTP = authorization_environment("Envoy"), authorization_environment("HTTP")
NOW = HostFunctions(now=lambda: datetime(2024, 6, 1, tzinfo=UTC))


def answer(text, environment=ENVOY, given=None, world=NOW):
    return read_answer(compile_expression(text, environment)({"object": given or {}}, world))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("envoy.Allowed().Response()", {"status": {"code": 0}, "okResponse": {}}),
        ("envoy.Denied(403).Response()", {"status": {"code": 7}, "deniedResponse": {"status": {"code": 403}}}),
        ("envoy.Denied(401).WithBody('no').Response()", {"status": {"code": 7}, "deniedResponse": {"status": {"code": 401}, "body": "no"}}),
        ("envoy.Allowed().WithHeader('a', 'b').Response()", {"status": {"code": 0}, "okResponse": {"headers": [{"header": {"key": "a", "value": "b"}}]}}),
        ("envoy.Denied(401).WithHeader(envoy.Header('a', '').KeepEmptyValue()).Response()", {"status": {"code": 7}, "deniedResponse": {"status": {"code": 401}, "headers": [{"header": {"key": "a", "value": ""}, "keepEmptyValue": True}]}}),
        ("envoy.Allowed().WithoutHeader('a').WithoutHeader('b').Response()", {"status": {"code": 0}, "okResponse": {"headersToRemove": ["a", "b"]}}),
        ("envoy.Allowed().WithResponseHeader('a', 'b').Response()", {"status": {"code": 0}, "okResponse": {"responseHeadersToAdd": [{"header": {"key": "a", "value": "b"}}]}}),
        ("envoy.Allowed().WithQueryParam(envoy.QueryParam('a', 'b')).WithQueryParam('c', 'd').Response()", {"status": {"code": 0}, "okResponse": {"queryParametersToSet": [{"key": "a", "value": "b"}, {"key": "c", "value": "d"}]}}),
        ("envoy.Allowed().WithoutQueryParam('a').Response()", {"status": {"code": 0}, "okResponse": {"queryParametersToRemove": ["a"]}}),
        ("envoy.Allowed().Response().WithMessage('hi').WithMetadata({'a': 'b'})", {"status": {"code": 0, "message": "hi"}, "okResponse": {}, "dynamicMetadata": {"a": "b"}}),
        ("object.attributes == null ? envoy.Denied(400).Response() : null", None),
    ],
)  # fmt: skip
def test_answers_to_envoy(text, expected):
    assert answer(text, given={"attributes": {}}) == expected
    assert compile_expression(text, ENVOY).result_type == "envoy.service.auth.v3.CheckResponse"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http.Allowed().Response()", {"ok": {}}),
        ("http.Denied('no').Response()", {"denied": {"reason": "no"}}),
        ("object.attributes.Header('content-type')[0] == 'x' ? http.Denied('type').Response() : null", {"denied": {"reason": "type"}}),
        ("object.attributes.QueryParam('q').size() == 2 ? http.Allowed().Response() : null", {"ok": {}}),
        ("object.attributes.QueryParam('none').size() == 0 ? http.Allowed().Response() : null", {"ok": {}}),
        ("object.attributes.path == '' ? http.Allowed().Response() : null", {"ok": {}}),
    ],
)  # fmt: skip
def test_answers_to_web_servers(text, expected):
    given = complete_http_request(
        {"attributes": {"header": {"Content-Type": ["x"]}, "query": {"q": ["1", "2"]}}}
    )
    assert answer(text, HTTP, given) == expected
    assert compile_expression(text, HTTP).result_type == "http.CheckResponse"


def test_what_answers_mean():
    assert is_allowed({"ok": {}})
    assert is_allowed({"status": {"code": 0}})
    assert not is_allowed({"denied": {}})
    assert not is_allowed({"status": {"code": 7}})


@pytest.mark.parametrize(
    "payload", [None, {}, [], {"attributes": None}, {"attributes": {"request": 1}}]
)
def test_missing_parts_read_as_empty(payload):
    request = complete_envoy_request(payload)
    assert compile_expression("object.attributes.request.http.path == ''", ENVOY)(
        {"object": request}
    )
    assert compile_expression("object.attributes.context_extensions == {}", ENVOY)(
        {"object": request}
    )


def test_both_spellings_of_fields_are_read():
    request = complete_envoy_request({"attributes": {"contextExtensions": {"a": "b"}}})
    assert request["attributes"]["context_extensions"] == {"a": "b"}


def test_each_mode_has_its_own_functions():
    for text, environment in (("http.Allowed()", ENVOY), ("envoy.Allowed()", HTTP)):
        with pytest.raises(SyntaxFaultError):
            compile_expression(text, environment)


def pack(data):
    raw = data if isinstance(data, bytes) else orjson.dumps(data)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sign(claims, make_signature, **header):
    signed = f"{pack({'typ': 'JWT', **header})}.{pack(claims)}"
    return f"{signed}.{pack(make_signature(signed.encode()))}"


def sign_with_secret(claims, secret=b"secret", algorithm="HS256"):
    digest = {"HS256": hashlib.sha256, "HS512": hashlib.sha512}[algorithm]
    return sign(claims, lambda signed: hmac.new(secret, signed, digest).digest(), alg=algorithm)


@pytest.mark.parametrize(
    ("claims", "is_valid"),
    [
        ({"role": "admin"}, True),
        ({"exp": 4102444800}, True),
        ({"exp": 1500000000}, False),
        ({"nbf": 4102444800}, False),
        ({"iat": 4102444800}, False),
        ({"nbf": 1500000000, "exp": 4102444800, "iat": 1500000000}, True),
        ({"exp": "soon"}, True),
    ],
)
def test_claims_and_their_time(claims, is_valid):
    expression = compile_expression("jwt.Decode(object, 'secret')", ENVOY)
    token = expression({"object": sign_with_secret(claims)}, NOW)
    assert token == {"Claims": claims, "Valid": is_valid}


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.b.c", "é.é.é", sign_with_secret({"a": 1}, b"other"), sign({"a": 1}, lambda _: b"", alg="none"), f"{pack([])}.{pack({})}.x"],
)  # fmt: skip
def test_tokens_that_nobody_signed_are_refused(token):
    with pytest.raises(FunctionError, match="failed to parse jwt"):
        compile_expression("jwt.Decode(object, 'secret').Valid", ENVOY)({"object": token}, NOW)


def number(value, size=None):
    return pack(value.to_bytes(size or (value.bit_length() + 7) // 8))


def make_keys():
    rsa_key = rsa.generate_private_key(65537, 2048)
    curve_key = ec.generate_private_key(ec.SECP256R1())
    public, point = rsa_key.public_key().public_numbers(), curve_key.public_key().public_numbers()
    published = [
        {"kty": "RSA", "kid": "r", "n": number(public.n), "e": number(public.e)},
        {
            "kty": "EC",
            "kid": "e",
            "crv": "P-256",
            "x": number(point.x, 32),
            "y": number(point.y, 32),
        },
        {"kty": "oct", "kid": "o", "k": pack(b"secret")},
        {"kty": "unknown"},
    ]

    def sign_curve(signed):
        pair = decode_dss_signature(curve_key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b"".join(part.to_bytes(32) for part in pair)

    tokens = {
        "RS256": sign(
            {"a": "r"},
            lambda s: rsa_key.sign(s, padding.PKCS1v15(), hashes.SHA256()),
            alg="RS256",
            kid="r",
        ),
        "ES256": sign({"a": "e"}, sign_curve, alg="ES256", kid="e"),
        "HS512": sign_with_secret({"a": "o"}, algorithm="HS512"),
        "wrong": sign({"a": "w"}, lambda s: b"x" * 64, alg="ES256"),
        "wrong key": sign({"a": "w"}, sign_curve, alg="RS256", kid="r"),
    }
    return {"keys": published}, tokens


def test_published_keys():
    keys, tokens = make_keys()
    world = HostFunctions(
        http=lambda call: (200, keys) if call.url == "https://x/keys" else (404, None), now=NOW.now
    )
    expression = compile_expression(
        "jwt.Decode(object, jwks.Fetch('https://x/keys')).Claims.a", ENVOY
    )
    assert [
        expression({"object": tokens[name]}, world) for name in ("RS256", "ES256", "HS512")
    ] == ["r", "e", "o"]
    for name in ("wrong", "wrong key"):
        with pytest.raises(FunctionError, match="could not verify"):
            expression({"object": tokens[name]}, world)
    with pytest.raises(FunctionError, match="status 404"):
        compile_expression("jwt.Decode(object, jwks.Fetch('https://y'))", ENVOY)(
            {"object": tokens["RS256"]}, world
        )
