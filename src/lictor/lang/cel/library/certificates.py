"""Kyverno's `x509.decode(pem)`: what stands in a certificate."""

import base64

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.library.texts import with_doubles
from lictor.raw import JsonObject

# Of a certificate, Kyverno tells these; of a request, all.
_TOLD = (
    "Raw", "RawTBSCertificate", "RawSubjectPublicKeyInfo", "RawSubject", "RawIssuer", "Signature",
    "PublicKeyAlgorithm", "PublicKey", "SerialNumber", "Issuer", "NotBefore", "NotAfter",
    "KeyUsage",
    "Extensions", "ExtraExtensions", "ExtKeyUsage", "BasicConstraintsValid", "IsCA", "MaxPathLen",
    "MaxPathLenZero", "AuthorityKeyId", "OCSPServer", "IssuingCertificateURL", "DNSNames",
    "EmailAddresses", "IPAddresses", "PermittedDNSDomainsCritical", "PermittedDNSDomains",
    "ExcludedDNSDomains", "PermittedIPRanges", "ExcludedIPRanges", "PermittedEmailAddresses",
    "ExcludedEmailAddresses", "PermittedURIDomains", "ExcludedURIDomains", "CRLDistributionPoints",
    "PolicyIdentifiers",
)  # fmt: skip


def _decode(text: str) -> JsonObject:
    from lictor.crypto.certificate import decode_certificate  # cryptography is slow to load

    try:
        decoded = decode_certificate(text)
    except ValueError as error:
        raise FunctionError(str(error)) from None
    if "NotBefore" in decoded:
        decoded = {name: decoded.get(name) for name in _TOLD}
        decoded["SerialNumber"] = _read_serial(decoded["Raw"])
    doubled: JsonObject = with_doubles(decoded)
    return doubled


def _read_serial(raw: str) -> int:
    """The lower 64 bits, signed: what Go leaves of a long number."""
    from cryptography.x509 import load_der_x509_certificate

    low = load_der_x509_certificate(base64.b64decode(raw)).serial_number & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low


OVERLOADS = (function("x509.decode", "string -> dyn", _decode),)
