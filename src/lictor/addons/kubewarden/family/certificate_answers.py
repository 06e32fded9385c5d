"""Is a certificate trusted? Answers for policies, as JSON."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from lictor.addons.kubewarden.family.host_requests import CertificateRequest, EncodedCertificate
from lictor.core.crypto.certificate_chain import (
    Anchors,
    build_chain,
    check_issued_by,
    find_extension,
    load_certificate,
    read_certificates,
)
from lictor.core.crypto.pem import list_pem_blocks
from lictor.core.errors import HostCallError, SignatureRefusedError

# Loading the library takes a while, and few policies look at certificates.
if TYPE_CHECKING:
    from cryptography import x509

_MOST_CERTIFICATES = 16
# In Kubewarden's words, which policies may look at.
_EXPIRED = "Certificate is being used after its expiration date"
_NOT_YET = "Certificate is being used before its validity date"
_NO_CHAIN = "Certificate is not trusted by the provided cert chain"
_AUTHORITY = "Certificate not trusted: CaUsedAsEndEntity"


def answer_trust(question: CertificateRequest, now: datetime) -> bytes:
    """Whether the certificate leads to the last of its chain, or to a public authority."""
    certificate = _read(question.cert)
    time = now if question.not_after is None else _read_time(question.not_after)
    anchors = _read_anchors(question.cert_chain)
    reason = _find_reason(certificate, anchors, time)
    return orjson.dumps({"trusted": not reason, "reason": reason})


def _find_reason(certificate: "x509.Certificate", anchors: Anchors, time: datetime) -> str:
    """Why it is not trusted; empty where it is."""
    from cryptography import x509

    if certificate.not_valid_after_utc < time:
        return _EXPIRED
    if certificate.not_valid_before_utc > time:
        return _NOT_YET
    basic = find_extension(certificate, x509.BasicConstraints)
    if basic is not None and basic.ca:
        return _AUTHORITY
    try:
        # The root itself is not enough: a certificate must be issued by it.
        if len(build_chain(certificate, anchors, time, "")) == 1:
            check_issued_by(certificate, certificate)
    except SignatureRefusedError:
        return _NO_CHAIN
    return ""


def _read_anchors(chain: list[EncodedCertificate] | None) -> Anchors:
    """The last is trusted, the others help to it. An empty chain leads nowhere."""
    if chain is None:
        return Anchors(_read_public_roots())
    if len(chain) > _MOST_CERTIFICATES:
        raise HostCallError(f"a chain of more than {_MOST_CERTIFICATES} certificates")
    certificates = tuple(map(_read, chain))
    return Anchors(certificates[-1:], certificates[:-1])


@lru_cache(maxsize=1)
def _read_public_roots() -> "tuple[x509.Certificate, ...]":
    """The authorities that browsers trust, as Mozilla lists them."""
    import warnings

    import certifi

    with warnings.catch_warnings():
        # One of them is older than the rule that serial numbers are above zero.
        warnings.simplefilter("ignore")
        return tuple(load_certificate(data) for _, data in list_pem_blocks(certifi.contents()))


def _read(encoded: EncodedCertificate) -> "x509.Certificate":
    try:
        data = bytes(encoded.data)
        if encoded.encoding == "Der":
            return load_certificate(data)
        if encoded.encoding == "Pem":
            return read_certificates(data.decode())[0]
    except ValueError as error:
        raise HostCallError(f"Certificate data is not valid: {error}") from error
    raise HostCallError(f"unknown encoding {encoded.encoding[:100]!r}: Pem and Der are known")


def _read_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    # With a time and a zone, or it could mean anything.
    if time is None or time.tzinfo is None or "T" not in text.upper():
        raise HostCallError("Timestamp not_after is not in RFC3339 format")
    return time.astimezone(UTC)
