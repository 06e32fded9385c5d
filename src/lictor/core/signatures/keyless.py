"""Verifies who made a signature, by certificates, transparency logs and timestamps.

Nothing stored with a signature is trusted: a certificate is accepted if it leads to a trusted
authority at the time of signing, and that time comes from a trusted log or timestamp authority.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from lictor.core.crypto.certificate_chain import (
    CODE_SIGNING,
    Anchors,
    build_chain,
    check_validity,
    read_certificates,
)
from lictor.core.crypto.log_key import PublicKey, encode_public_key, fingerprint, load_public_key
from lictor.core.crypto.timestamp import check_timestamp
from lictor.core.crypto.transparency_log import check_logged_certificate
from lictor.core.errors import EvaluationError, SignatureRefusedError
from lictor.core.signatures.fulcio import check_extensions, check_identity, read_identity
from lictor.core.signatures.log_entries import SigningKey, check_entry
from lictor.core.signatures.records import (
    FoundSignature,
    LogTrust,
    Signer,
    TrustedCertificate,
    TrustedIdentity,
)
from lictor.core.signatures.trust_root import TrustRoot

# Slow import, and few policies have keys: imported on demand.
if TYPE_CHECKING:
    from cryptography import x509

_MOST_ENTRIES = 16
_MOST_TIMESTAMPS = 16
_MOST_CHAIN = 16


def _read_clock() -> datetime:
    return datetime.now(UTC)


def identify_signer(
    found: FoundSignature,
    attestor: TrustedIdentity | TrustedCertificate,
    root: TrustRoot,
    *,
    now: Callable[[], datetime] = _read_clock,
) -> tuple[PublicKey, Signer]:
    """The key of the trusted signer, and who that is; raises SignatureRefusedError otherwise.

    The signature itself is not verified: the caller must do so, with the returned key. `root` is
    the result of `trust_root.gather_trust` for the attestor.
    """
    certificate = _find_certificate(found, attestor)
    key = _read_key(certificate)
    material = SigningKey(
        encode_public_key(key), _encode(certificate) if found.certificate else b""
    )
    proven = _prove_times(found, attestor.log, root, material)
    # An old signature without proof of its time is as valid as its certificate is today.
    for time in proven or (now(),):
        _check_certificate(certificate, found, attestor, root, time)
    identity = read_identity(certificate)
    subject = next(iter(identity.subjects), "")
    if isinstance(attestor, TrustedIdentity):
        subject = check_identity(identity, attestor)
        check_extensions(identity, attestor.extensions)
    return key, Signer(
        key=fingerprint(key).hex(),
        issuer=identity.issuer,
        subject=subject,
        extensions=identity.extensions,
        signed_at=min(proven, default=None),
    )


def check_logged(
    found: FoundSignature, log: LogTrust, root: TrustRoot, key: PublicKey
) -> datetime | None:
    """When a log recorded a signature by this key; None without a proven time or a required log."""
    if log.ignore_log:
        return None
    return min(_list_log_times(found, root, SigningKey(encode_public_key(key))), default=None)


# --- the certificate


def _find_certificate(
    found: FoundSignature, attestor: TrustedIdentity | TrustedCertificate
) -> "x509.Certificate":
    """The attestor's certificate, if it names one; otherwise that of the signature."""
    if isinstance(attestor, TrustedCertificate):
        if attestor.certificate:
            return _read_pinned(attestor.certificate)
        if not attestor.chain:
            raise EvaluationError("the attestor names neither a certificate nor a chain")
    if not found.certificate:
        raise SignatureRefusedError("the signature comes without a certificate")
    try:
        return read_certificates(found.certificate.decode())[0]
    except ValueError as error:
        raise SignatureRefusedError(
            f"the certificate of the signature cannot be read: {error}"
        ) from error


@lru_cache(maxsize=64)
def _read_pinned(text: str) -> "x509.Certificate":
    try:
        return read_certificates(text)[0]
    except ValueError as error:
        raise EvaluationError(f"the attestor's certificate cannot be read: {error}") from error


def _read_key(certificate: "x509.Certificate") -> PublicKey:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = certificate.public_key()
    try:
        return load_public_key(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    except ValueError as error:
        raise SignatureRefusedError(f"the certificate's key is not taken: {error}") from error


def _encode(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _check_certificate(
    certificate: "x509.Certificate",
    found: FoundSignature,
    attestor: TrustedIdentity | TrustedCertificate,
    root: TrustRoot,
    time: datetime,
) -> None:
    """Check that it is trusted at that time, and was logged when it was issued."""
    if isinstance(attestor, TrustedCertificate) and not attestor.chain:
        check_validity(certificate, time)
        return
    chain = _build_chain(certificate, found, root, time)
    if not attestor.log.ignore_certificate_log:
        check_logged_certificate(certificate, chain[min(1, len(chain) - 1)], root.certificate_logs)


def _build_chain(
    certificate: "x509.Certificate", found: FoundSignature, root: TrustRoot, time: datetime
) -> "tuple[x509.Certificate, ...]":
    sent = tuple(_list_sent(found))
    reasons = [f"no certificate authority is trusted for {time.isoformat()}"]
    for authority in root.authorities:
        if not authority.period.contains(time):
            continue
        anchors = Anchors(authority.anchors.roots, authority.anchors.intermediates + sent)
        try:
            return build_chain(certificate, anchors, time, CODE_SIGNING)
        except SignatureRefusedError as error:
            reasons.insert(0, str(error))
    raise SignatureRefusedError(reasons[0])


def _list_sent(found: FoundSignature) -> "Iterator[x509.Certificate]":
    """Certificates that came with the signature. They prove nothing, but may lead to a root."""
    for text in found.chain[:_MOST_CHAIN]:
        try:
            yield from read_certificates(text.decode())[:_MOST_CHAIN]
        except ValueError as error:
            raise SignatureRefusedError(
                f"the certificates that came with the signature cannot be read: {error}"
            ) from error


# --- the time


def _prove_times(
    found: FoundSignature, log: LogTrust, root: TrustRoot, key: SigningKey
) -> tuple[datetime, ...]:
    """The times of signing proven by a trusted log or authority: all must be valid."""
    times = list(_list_stamped_times(found, log, root))
    if not log.ignore_log:
        times += _list_log_times(found, root, key, tuple(times))
    if not times and found.is_bundle:
        # Bundles are verified years later: their time must always be proven.
        raise SignatureRefusedError(
            "there is no trusted proof of the signing time: neither a transparency log nor a "
            "time stamp"
        )
    return tuple(times)


def _list_stamped_times(
    found: FoundSignature, log: LogTrust, root: TrustRoot
) -> Iterator[datetime]:
    # Old signatures are stamped by the authority that the policy names, or not at all.
    if not (log.timestamp_chain or found.is_bundle):
        return
    for stamp in found.timestamps[:_MOST_TIMESTAMPS]:
        try:
            yield check_timestamp(
                stamp, found.envelope or found.signature, root.timestamp_authorities
            )
        except SignatureRefusedError:
            # A timestamp of an unknown authority is ignored, unless the policy names the authority.
            if log.timestamp_chain:
                raise


def _list_log_times(
    found: FoundSignature, root: TrustRoot, key: SigningKey, stamped: tuple[datetime, ...] = ()
) -> list[datetime]:
    """The times from trusted logs; raises SignatureRefusedError if none has this signature."""
    times, reasons = list[datetime | None](), ["the signature is in no transparency log"]
    for entry in found.log_entries[:_MOST_ENTRIES]:
        try:
            times.append(check_entry(entry, found, key, root.logs, stamped))
        except SignatureRefusedError as error:
            reasons.insert(0, str(error))
    if not times:
        raise SignatureRefusedError(reasons[0])
    return [time for time in times if time is not None]
