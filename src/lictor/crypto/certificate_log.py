"""Was a certificate logged when it was issued? The signed certificate timestamps within it tell."""

from collections.abc import Sequence
from datetime import UTC
from hashlib import sha256
from typing import TYPE_CHECKING

from lictor.crypto.certificate_chain import find_extension
from lictor.crypto.log_key import LogKey, is_signed_by
from lictor.errors import SignatureRefusedError

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509.certificate_transparency import SignedCertificateTimestamp

_MOST_TIMESTAMPS = 16


def check_logged_certificate(
    certificate: "x509.Certificate", issuer: "x509.Certificate", logs: Sequence[LogKey]
) -> None:
    """SignatureRefusedError unless one of the logs promised to hold the certificate."""
    from cryptography import x509

    found = find_extension(certificate, x509.PrecertificateSignedCertificateTimestamps)
    stamps = list(found)[:_MOST_TIMESTAMPS] if found is not None else []
    if not stamps:
        raise SignatureRefusedError(
            "the certificate holds no certificate timestamp (SCT): no log knows that it was issued"
        )
    if not any(_is_promised(stamp, certificate, issuer, logs) for stamp in stamps):
        raise SignatureRefusedError(
            "no certificate timestamp (SCT) in the certificate is by a trusted certificate log"
        )


def _is_promised(
    stamp: "SignedCertificateTimestamp",
    certificate: "x509.Certificate",
    issuer: "x509.Certificate",
    logs: Sequence[LogKey],
) -> bool:
    time = stamp.timestamp.replace(tzinfo=UTC)
    message = _write_signed(stamp, certificate, issuer)
    return any(
        log.identifier == stamp.log_id
        and log.period.contains(time)
        and is_signed_by(log.key, stamp.signature, message)
        for log in logs
    )


def _write_signed(
    stamp: "SignedCertificateTimestamp",
    certificate: "x509.Certificate",
    issuer: "x509.Certificate",
) -> bytes:
    """What a log signs: the certificate as it was before the timestamp came into it (RFC 6962)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = issuer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    before = certificate.tbs_precertificate_bytes
    milliseconds = _count_milliseconds(stamp)
    return b"".join(
        (
            b"\x00\x00",  # version 1, a certificate timestamp
            milliseconds.to_bytes(8, "big"),
            b"\x00\x01",  # about a precertificate
            sha256(key).digest(),
            len(before).to_bytes(3, "big"),
            before,
            len(stamp.extension_bytes).to_bytes(2, "big"),
            stamp.extension_bytes,
        )
    )


def _count_milliseconds(stamp: "SignedCertificateTimestamp") -> int:
    # The library tells a time, always in UTC but without saying so; rounding it would be fatal.
    time = stamp.timestamp.replace(tzinfo=UTC)
    return int(time.replace(microsecond=0).timestamp()) * 1000 + time.microsecond // 1000
