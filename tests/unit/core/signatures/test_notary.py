"""Signatures of notation: what counts, and everything that must not."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import timedelta
from functools import cache

import cbor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID
from notation import (
    COSE,
    JWS,
    NOW,
    SIGNED,
    Issued,
    envelope_of,
    headers_of,
    issue,
    payload_of,
    usage_of,
)

from lictor.core.errors import SignatureRefusedError
from lictor.core.signatures.notary import verify_envelope
from lictor.core.signatures.records import (
    FoundEnvelope,
    SignedImage,
    TrustedNotary,
    VerifiedSignature,
)

IMAGE = SignedImage("localhost:5005/app", "sha256:" + "a" * 64)
OTHER = "sha256:" + "b" * 64
PAYLOAD = payload_of(IMAGE.digest)
FORMATS = pytest.mark.parametrize("media_type", [JWS, COSE])

ROOT = issue("root", authority=True)
MIDDLE = issue("middle", ROOT, authority=True)
SIGNER = issue("signer", ROOT)
DEEP = issue("deep", MIDDLE)
STRANGER = issue("stranger", issue("root", authority=True))


def _verify(
    media_type: str, content: bytes, trusted: Issued = ROOT, **options: str
) -> VerifiedSignature:
    found = FoundEnvelope("sha256:0", media_type, content)
    return verify_envelope(found, IMAGE, TrustedNotary(trusted.pem, **options), NOW)


def _refuse(
    media_type: str, content: bytes, reason: str, trusted: Issued = ROOT, **options: str
) -> None:
    with pytest.raises(SignatureRefusedError, match=reason):
        _verify(media_type, content, trusted, **options)


# --- what counts


@cache
def _key(name: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, int(name[3:]))
    return ec.generate_private_key(getattr(ec, name)())


@FORMATS
@pytest.mark.parametrize("key", ["SECP256R1", "SECP384R1", "SECP521R1", "rsa2048", "rsa3072"])
def test_each_kind_of_key_counts(media_type: str, key: str) -> None:
    signer = issue("signer", ROOT, key=_key(key))
    verified = _verify(media_type, envelope_of(media_type, signer, PAYLOAD))
    assert verified.digest == IMAGE.digest
    assert verified.signer.subject == "CN=signer"
    assert verified.signer.issuer == "CN=root"


@FORMATS
@pytest.mark.parametrize("trusted", [ROOT, MIDDLE, DEEP], ids=["root", "middle", "signer"])
def test_any_certificate_of_the_chain_may_be_trusted(media_type: str, trusted: Issued) -> None:
    _verify(media_type, envelope_of(media_type, DEEP, PAYLOAD), trusted)


@FORMATS
def test_signer_may_be_its_own_root(media_type: str) -> None:
    alone = issue("alone")
    _verify(media_type, envelope_of(media_type, alone, PAYLOAD), alone)
    _refuse(media_type, envelope_of(media_type, alone, PAYLOAD), "does not lead to a trusted")


@FORMATS
def test_signed_annotations_are_told(media_type: str) -> None:
    content = envelope_of(media_type, SIGNER, payload_of(IMAGE.digest, {"env": "prod"}))
    assert _verify(media_type, content).annotations == {"env": "prod"}


@FORMATS
def test_signature_counts_until_it_expires(media_type: str) -> None:
    def headers(hours: int) -> dict:
        critical = ["io.cncf.notary.signingScheme", "io.cncf.notary.expiry"]
        return headers_of(SIGNER, crit=critical, __expiry=NOW + timedelta(hours=hours))

    _verify(media_type, envelope_of(media_type, SIGNER, PAYLOAD, headers=headers(1)))
    late = envelope_of(media_type, SIGNER, PAYLOAD, headers=headers(-1))
    _refuse(media_type, late, "has expired")


def test_several_trusted_certificates_in_one_text() -> None:
    found = FoundEnvelope("sha256:0", JWS, envelope_of(JWS, SIGNER, PAYLOAD))
    both = TrustedNotary(STRANGER.above.pem + ROOT.pem)
    assert verify_envelope(found, IMAGE, both, NOW).signer.subject == "CN=signer"


# --- what was changed after signing


def _change_jws(content: bytes, **parts: object) -> bytes:
    return json.dumps({**json.loads(content), **parts}).encode()


def _change_cose(content: bytes, position: int, part: object) -> bytes:
    parts = list(cbor2.loads(content).value)
    parts[position] = part
    return cbor2.dumps(cbor2.CBORTag(18, parts))


def _url(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value, default=str).encode()).rstrip(b"=").decode()


SIGNED_JWS = envelope_of(JWS, SIGNER, PAYLOAD)
SIGNED_COSE = envelope_of(COSE, SIGNER, PAYLOAD)
OTHER_HEADERS = {**headers_of(SIGNER), "more": 1}
CHANGED: dict[str, tuple[str, bytes]] = {
    "payload": (JWS, _change_jws(SIGNED_JWS, payload=_url({"targetArtifact": {"digest": OTHER}}))),
    "header": (JWS, _change_jws(SIGNED_JWS, protected=_url(OTHER_HEADERS))),
    "signature": (JWS, _change_jws(SIGNED_JWS, signature="A" * 86)),
    "no signature": (JWS, _change_jws(SIGNED_JWS, signature="")),
    "signature of zeros": (COSE, _change_cose(SIGNED_COSE, 3, bytes(64))),
    "cose payload": (COSE, _change_cose(SIGNED_COSE, 2, payload_of(OTHER))),
    "cose signature": (COSE, _change_cose(SIGNED_COSE, 3, b"\1" * 64)),
    "another's key": (JWS, envelope_of(JWS, SIGNER, PAYLOAD, key=STRANGER.key)),
    "another's key in cose": (COSE, envelope_of(COSE, SIGNER, PAYLOAD, key=STRANGER.key)),
}


@pytest.mark.parametrize("change", CHANGED)
def test_changed_envelope_is_refused(change: str) -> None:
    _refuse(*CHANGED[change], "does not match its content")


@FORMATS
def test_signature_of_another_image_is_refused(media_type: str) -> None:
    _refuse(media_type, envelope_of(media_type, SIGNER, payload_of(OTHER)), f"is for {OTHER}")


# --- algorithms


def _secret_jws() -> bytes:
    """The certificate, which everybody has, as a shared secret."""
    protected = _url({**headers_of(SIGNER, __signingTime=SIGNED.isoformat()), "alg": "HS256"})
    body = json.loads(SIGNED_JWS)["payload"]
    mac = hmac.HMAC(SIGNER.pem.encode(), hashes.SHA256())
    mac.update(f"{protected}.{body}".encode())
    code = urlsafe_b64encode(mac.finalize()).rstrip(b"=").decode()
    return _change_jws(SIGNED_JWS, protected=protected, signature=code)


def _unsigned(media_type: str, algorithm: object) -> bytes:
    headers = headers_of(SIGNER, alg=algorithm)
    return envelope_of(media_type, SIGNER, PAYLOAD, headers=headers)


RSA_SIGNER = issue("rsa", ROOT, key=_key("rsa2048"))
ALGORITHMS: dict[str, tuple[str, bytes]] = {
    "none": (JWS, _change_jws(_unsigned(JWS, "none"), signature="")),
    "secret": (JWS, _secret_jws()),
    "longer hash": (JWS, _unsigned(JWS, "ES384")),
    "rsa for a curve": (JWS, _unsigned(JWS, "PS256")),
    "not told": (JWS, _unsigned(JWS, None)),
    "a number": (JWS, _unsigned(JWS, 7)),
    "cose longer hash": (COSE, _unsigned(COSE, "ES384")),
    "cose secret": (COSE, _unsigned(COSE, 5)),
    "cose text": (COSE, _unsigned(COSE, "none")),
    "older padding": (
        JWS,
        envelope_of(JWS, RSA_SIGNER, PAYLOAD, headers=headers_of(RSA_SIGNER, alg="RS256")),
    ),
}


@pytest.mark.parametrize("case", ALGORITHMS)
def test_only_the_algorithm_of_the_key_counts(case: str) -> None:
    _refuse(*ALGORITHMS[case], "the algorithm is")


@FORMATS
def test_unprotected_algorithm_does_not_count(media_type: str) -> None:
    content = envelope_of(
        media_type,
        SIGNER,
        PAYLOAD,
        headers=headers_of(SIGNER, alg=None),
        unprotected={"alg": "ES256"},
    )
    _refuse(media_type, content, "the algorithm is missing")


@FORMATS
@pytest.mark.parametrize("key", ["rsa1024", "SECP224R1", "SECP256K1"])
def test_weak_keys_are_refused(media_type: str, key: str) -> None:
    signer = issue("weak", ROOT, key=_key(key))
    headers = headers_of(SIGNER, alg="PS256" if key.startswith("rsa") else "ES256")
    content = envelope_of(media_type, signer, PAYLOAD, headers=headers, key=SIGNER.key)
    _refuse(media_type, content, "must be RSA with 2048")


# --- headers


HEADERS: dict[str, tuple[dict, str]] = {
    "unknown critical": (
        {"crit": ["io.cncf.notary.signingScheme", "example.com/new"], "example.com/new": 1},
        "critical header 'example.com/new' is unknown",
    ),
    "no critical": ({"crit": None}, "critical headers is missing"),
    "critical is no list": ({"crit": "io.cncf.notary.signingScheme"}, "missing or malformed"),
    "scheme not critical": ({"crit": []}, "must be critical"),
    "expiry not critical": ({"__expiry": NOW + timedelta(days=1)}, "must be critical"),
    "critical not there": (
        {"crit": ["io.cncf.notary.signingScheme", "io.cncf.notary.expiry"]},
        "is missing",
    ),
    "another content": ({"cty": "application/json"}, "content type"),
    "no content type": ({"cty": None}, "content type"),
    "other scheme": ({"__signingScheme": "notary.x509.signingAuthority"}, "signing scheme is"),
    "plug-in": ({"__verificationPlugin": "com.example"}, "plug-in"),
    "no time": ({"__signingTime": None}, "not a time"),
    "rubbish for time": ({"__signingTime": "yesterday"}, "not a time"),
    "time without zone": ({"__signingTime": "2026-05-31T12:00:00"}, "not a time"),
    "expires before it was signed": (
        {
            "crit": ["io.cncf.notary.signingScheme", "io.cncf.notary.expiry"],
            "__expiry": SIGNED - timedelta(days=1),
        },
        "has expired",
    ),
}


@FORMATS
@pytest.mark.parametrize("case", HEADERS)
def test_headers_out_of_order_are_refused(media_type: str, case: str) -> None:
    changes, reason = HEADERS[case]
    headers = headers_of(SIGNER, **changes)
    _refuse(media_type, envelope_of(media_type, SIGNER, PAYLOAD, headers=headers), reason)


# --- certificates


def _expired(when: timedelta) -> tuple:
    return (NOW - timedelta(days=60), NOW + when)


FLAT_ROOT = issue("flat", authority=True, path_length=0)
CIPHERS = usage_of("digital_signature", "key_encipherment")
ISSUES_AND_SIGNS = usage_of("digital_signature", "key_cert_sign")
OCSP = x509.AuthorityInformationAccess(
    [
        x509.AccessDescription(
            AuthorityInformationAccessOID.OCSP,
            x509.UniformResourceIdentifier("http://ocsp.example.com"),
        )
    ]
)
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
CHAINS: dict[str, tuple[Callable[[], Issued], str]] = {
    "stranger's root of the same name": (lambda: STRANGER, "does not lead to a trusted"),
    "expired": (lambda: issue("old", ROOT, valid=_expired(-timedelta(hours=1))), "has expired now"),
    "expired when signed": (
        lambda: issue("old", ROOT, valid=_expired(-timedelta(days=9))),
        "has expired at the signing time",
    ),
    "not valid yet": (
        lambda: issue("new", ROOT, valid=(NOW - timedelta(hours=1), NOW + timedelta(days=1))),
        "not valid yet",
    ),
    "expired authority": (
        lambda: issue(
            "signer",
            issue("old", ROOT, authority=True, valid=_expired(-timedelta(hours=1))),
        ),
        "has expired now",
    ),
    "authority as signer": (
        lambda: issue("both", ROOT, authority=True, usage=ISSUES_AND_SIGNS),
        "is that of an authority",
    ),
    "signer as authority": (lambda: issue("leaf", SIGNER), "may not issue certificates"),
    "chain too long": (
        lambda: issue("leaf", issue("middle", FLAT_ROOT, authority=True)),
        "so long a chain",
    ),
    "for ciphers": (lambda: issue("leaf", ROOT, usage=CIPHERS), "key encipherment"),
    "not for signatures": (
        lambda: issue("leaf", ROOT, usage=usage_of("content_commitment")),
        "key usage",
    ),
    "usage not critical": (lambda: issue("leaf", ROOT, critical_usage=False), "critical"),
    "for servers": (
        lambda: issue("leaf", ROOT, purposes=[ExtendedKeyUsageOID.SERVER_AUTH]),
        "signing code alone",
    ),
    "for any purpose": (
        lambda: issue(
            "leaf",
            ROOT,
            purposes=[
                ExtendedKeyUsageOID.CODE_SIGNING,
                ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
            ],
        ),
        "signing code alone",
    ),
    "may be revoked": (lambda: issue("leaf", ROOT, extensions=[(OCSP, False)]), "revoked"),
    "unknown extension": (lambda: issue("leaf", ROOT, extensions=[(UNKNOWN, True)]), "critical"),
}


@FORMATS
@pytest.mark.parametrize("case", CHAINS)
def test_unfit_certificates_are_refused(media_type: str, case: str) -> None:
    make, reason = CHAINS[case]
    signer = make()
    trusted = FLAT_ROOT if case == "chain too long" else ROOT
    _refuse(media_type, envelope_of(media_type, signer, PAYLOAD), reason, trusted)


def test_purpose_may_be_left_open() -> None:
    _verify(JWS, envelope_of(JWS, issue("leaf", ROOT, purposes=()), PAYLOAD))


LEAF, MIDDLE_DER, ROOT_DER = DEEP.chain
ORDERS: dict[str, tuple[list[bytes], str]] = {
    "root before the middle": ([LEAF, ROOT_DER, MIDDLE_DER], "not issued by"),
    "middle left out": ([LEAF, ROOT_DER], "not issued by"),
    "root left out": ([LEAF, MIDDLE_DER], "no root"),
    "root twice": ([LEAF, MIDDLE_DER, ROOT_DER, ROOT_DER], "in the middle"),
    "signer twice": ([LEAF, LEAF, MIDDLE_DER, ROOT_DER], "not issued by"),
    "root first": ([ROOT_DER, MIDDLE_DER, LEAF], "does not match its content"),
    "none": ([], "without certificates"),
    "rubbish": ([LEAF, b"rubbish"], "cannot be read"),
    "too many": ([LEAF] * 11, "more than 10"),
    "trusted root added to a stranger's": ([*STRANGER.chain, ROOT_DER], "in the middle|not issued"),
}


@FORMATS
@pytest.mark.parametrize("case", ORDERS)
def test_chain_out_of_order_is_refused(media_type: str, case: str) -> None:
    chain, reason = ORDERS[case]
    signer = STRANGER if case.startswith("trusted root") else DEEP
    _refuse(media_type, envelope_of(media_type, signer, PAYLOAD, chain=chain), reason)


@pytest.mark.parametrize(
    "text", ["", "rubbish", "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"]
)
def test_nothing_trusted_means_nothing_counts(text: str) -> None:
    found = FoundEnvelope("sha256:0", JWS, SIGNED_JWS)
    with pytest.raises(SignatureRefusedError, match="trusted certificates cannot be read"):
        verify_envelope(found, IMAGE, TrustedNotary(text), NOW)


# --- malformed envelopes


X5C = b64encode(LEAF).decode()
MALFORMED: dict[str, tuple[str, bytes]] = {
    "empty": (JWS, b""),
    "not JSON": (JWS, b"{"),
    "a list": (JWS, b"[]"),
    "deep": (JWS, b"[" * 100_000),
    "general form": (JWS, _change_jws(SIGNED_JWS, signatures=[])),
    "no payload": (JWS, _change_jws(SIGNED_JWS, payload=None)),
    "not base64url": (JWS, _change_jws(SIGNED_JWS, protected="a b")),
    "header is text": (JWS, _change_jws(SIGNED_JWS, header="x")),
    "protected twice": (JWS, _change_jws(SIGNED_JWS, header={"x5c": [X5C], "alg": "ES256"})),
    "x5c of numbers": (JWS, _change_jws(SIGNED_JWS, header={"x5c": [1]})),
    "x5c of rubbish": (JWS, _change_jws(SIGNED_JWS, header={"x5c": ["%%"]})),
    "payload without target": (JWS, envelope_of(JWS, SIGNER, b"{}")),
    "payload not JSON": (JWS, envelope_of(JWS, SIGNER, b"x")),
    "payload a list": (COSE, envelope_of(COSE, SIGNER, b"[]")),
    "annotations a list": (
        JWS,
        envelope_of(
            JWS,
            SIGNER,
            json.dumps({"targetArtifact": {"digest": IMAGE.digest, "annotations": [1]}}).encode(),
        ),
    ),
    "too large": (JWS, b" " * (1024 * 1024) + SIGNED_JWS),
    "other media type": ("application/json", SIGNED_JWS),
    "jws as cose": (COSE, SIGNED_JWS),
    "cose as jws": (JWS, SIGNED_COSE),
    "cose empty": (COSE, b""),
    "cose cut": (COSE, SIGNED_COSE[:-10]),
    "cose untagged": (COSE, cbor2.dumps(list(cbor2.loads(SIGNED_COSE).value))),
    "cose with several signers": (COSE, cbor2.dumps(cbor2.CBORTag(98, [b"", {}, b"", []]))),
    "cose of three parts": (COSE, cbor2.dumps(cbor2.CBORTag(18, [b"", {}, b""]))),
    "cose payload apart": (COSE, _change_cose(SIGNED_COSE, 2, None)),
    "cose headers no map": (COSE, _change_cose(SIGNED_COSE, 0, cbor2.dumps([1]))),
    "cose header twice": (COSE, _change_cose(SIGNED_COSE, 0, b"\xa2\x01\x26\x01\x26")),
    "cose regular expression": (COSE, cbor2.dumps(cbor2.CBORTag(35, "(a+)+$"))),
    "cose deep": (COSE, b"\x81" * 10_000),
    "cose endless": (COSE, b"\xd2\x9f\x40\xa0\x40\x40\xff"),
    "cose time out of range": (
        COSE,
        _change_cose(SIGNED_COSE, 0, cbor2.dumps({1: cbor2.CBORTag(1, 10**17)})),
    ),
    "cose x5chain of text": (COSE, _change_cose(SIGNED_COSE, 1, {33: ["x"]})),
    "cose label is bytes": (COSE, _change_cose(SIGNED_COSE, 1, {b"x": 1})),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_envelope_is_refused(case: str) -> None:
    _refuse(*MALFORMED[case], ".")


@FORMATS
def test_cut_envelopes_are_refused(media_type: str) -> None:
    whole = envelope_of(media_type, SIGNER, PAYLOAD)
    for length in range(0, len(whole) - 1, 37):
        _refuse(media_type, whole[:length], ".")
