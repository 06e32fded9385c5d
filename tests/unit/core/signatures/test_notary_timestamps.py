"""Time stamps in notation signatures: a certificate that has expired since, and a trusted clock."""

import json
from base64 import b64encode, urlsafe_b64decode
from datetime import datetime, timedelta

import cbor2
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from der import make_timestamp
from notation import COSE, JWS, NOW, SIGNED, Issued, envelope_of, issue, payload_of

from lictor.core.errors import SignatureRefusedError
from lictor.core.signatures.notary import verify_envelope
from lictor.core.signatures.records import (
    FoundEnvelope,
    SignedImage,
    TrustedNotary,
    VerifiedSignature,
)

IMAGE = SignedImage("localhost:5005/app", "sha256:" + "a" * 64)
FORMATS = pytest.mark.parametrize("media_type", [JWS, COSE])
ROOT = issue("root", authority=True)
CLOCK_ROOT = issue("clock root", authority=True)
# Good when it signed, expired since.
SHORT = issue("short", ROOT, valid=(SIGNED - timedelta(days=1), SIGNED + timedelta(hours=1)))
HEADER = "io.cncf.notary.timestampSignature"
_RESPONSE = 9


def _clock(above: Issued, purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.TIME_STAMPING):
    purposes = x509.ExtendedKeyUsage([purpose])
    return issue("clock", above, purposes=(), extensions=[(purposes, True)])


def _signature_of(media_type: str, content: bytes) -> bytes:
    if media_type == COSE:
        return cbor2.loads(content).value[3]
    return urlsafe_b64decode(json.loads(content)["signature"] + "==")


def _add(media_type: str, content: bytes, token: bytes) -> bytes:
    if media_type == COSE:
        protected, unprotected, payload, signature = cbor2.loads(content).value
        parts = [protected, {**unprotected, HEADER: token}, payload, signature]
        return cbor2.dumps(cbor2.CBORTag(18, parts))
    envelope = json.loads(content)
    envelope["header"][HEADER] = b64encode(token).decode()
    return json.dumps(envelope).encode()


def _stamp(
    media_type: str,
    *,
    clock: Issued,
    time: datetime = SIGNED + timedelta(minutes=1),
    message: bytes | None = None,
) -> bytes:
    """An envelope with a time stamp of its signature, or of something else."""
    content = envelope_of(media_type, SHORT, payload_of(IMAGE.digest))
    stamped = _signature_of(media_type, content) if message is None else message
    response = make_timestamp(stamped, time, clock.key, clock.certificate, embeds=True)
    # A token is what follows the status in a response.
    return _add(media_type, content, response[_RESPONSE:])


def _verify(media_type: str, content: bytes, clocks: str = CLOCK_ROOT.pem) -> VerifiedSignature:
    found = FoundEnvelope("sha256:0", media_type, content)
    return verify_envelope(found, IMAGE, TrustedNotary(ROOT.pem, clocks), NOW)


@FORMATS
def test_certificate_needs_to_be_valid_when_stamped(media_type: str) -> None:
    verified = _verify(media_type, _stamp(media_type, clock=_clock(CLOCK_ROOT)))
    assert verified.signer.signed_at == SIGNED + timedelta(minutes=1)


@FORMATS
def test_time_stamp_counts_only_with_trusted_clocks(media_type: str) -> None:
    with pytest.raises(SignatureRefusedError, match="has expired now"):
        _verify(media_type, _stamp(media_type, clock=_clock(CLOCK_ROOT)), "")


@FORMATS
def test_with_trusted_clocks_a_time_stamp_is_required(media_type: str) -> None:
    lasting = envelope_of(media_type, issue("lasting", ROOT), payload_of(IMAGE.digest))
    with pytest.raises(SignatureRefusedError, match="has no time stamp"):
        _verify(media_type, lasting)


REFUSED = {
    "stranger's clock": {"clock": _clock(issue("clock root", authority=True))},
    "no clock": {"clock": _clock(CLOCK_ROOT, ExtendedKeyUsageOID.CODE_SIGNING)},
    "of another signature": {"clock": _clock(CLOCK_ROOT), "message": b"something else"},
    "after the certificate": {"clock": _clock(CLOCK_ROOT), "time": NOW},
    "before the certificate": {"clock": _clock(CLOCK_ROOT), "time": SIGNED - timedelta(days=5)},
    "before the clock": {"clock": _clock(CLOCK_ROOT), "time": SIGNED - timedelta(days=500)},
}


@FORMATS
@pytest.mark.parametrize("case", REFUSED)
def test_time_stamp_that_is_not_right_is_refused(media_type: str, case: str) -> None:
    with pytest.raises(SignatureRefusedError, match="time stamp"):
        _verify(media_type, _stamp(media_type, **REFUSED[case]))


@FORMATS
@pytest.mark.parametrize("token", [b"", b"rubbish", b"\x30\x80", b"\x30\x00", b"0" * 100_000])
def test_malformed_time_stamp_is_refused(media_type: str, token: bytes) -> None:
    content = envelope_of(media_type, SHORT, payload_of(IMAGE.digest))
    with pytest.raises(SignatureRefusedError, match="time stamp"):
        _verify(media_type, _add(media_type, content, token))
