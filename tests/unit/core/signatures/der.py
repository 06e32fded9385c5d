"""Writes DER, for what no library makes: RFC 3161 time stamps and lists of certificate timestamps."""

from datetime import datetime
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

_SHA256 = "2.16.840.1.101.3.4.2.1"
_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
_TIME_STAMP_CONTENT = "1.2.840.113549.1.9.16.1.4"


def element(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes((tag, len(body))) + body
    size = (len(body).bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + len(body).to_bytes(size, "big") + body


def sequence(*parts: bytes) -> bytes:
    return element(0x30, *parts)


def set_of(*parts: bytes) -> bytes:
    return element(0x31, *sorted(parts))


def octets(content: bytes) -> bytes:
    return element(0x04, content)


def integer(value: int) -> bytes:
    return element(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def identifier(dotted: str) -> bytes:
    first, second, *others = (int(part) for part in dotted.split("."))
    return element(0x06, *(_base128(number) for number in (40 * first + second, *others)))


def _base128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def utf8(text: str) -> bytes:
    return element(0x0C, text.encode())


def make_timestamp(
    message: bytes,
    time: datetime,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    *,
    embeds: bool = False,
) -> bytes:
    """A time stamp response for a message; with `embeds` the authority's certificate is in it."""
    imprint = sequence(sequence(identifier(_SHA256)), octets(sha256(message).digest()))
    written = f"{time:%Y%m%d%H%M%SZ}".encode()
    info = sequence(integer(1), identifier("1.2.3.4"), imprint, integer(7), element(0x18, written))
    encoded = certificate.public_bytes(Encoding.DER)
    signer = sequence(certificate.issuer.public_bytes(), integer(certificate.serial_number))
    signing = sequence(sequence(sequence(octets(sha256(encoded).digest()))))
    attributes = (
        _attribute("1.2.840.113549.1.9.3", identifier(_TIME_STAMP_CONTENT)),
        _attribute("1.2.840.113549.1.9.4", octets(sha256(info).digest())),
        _attribute("1.2.840.113549.1.9.16.2.47", signing),
    )
    signature = key.sign(set_of(*attributes), ec.ECDSA(hashes.SHA256()))
    signer_info = sequence(
        integer(1),
        signer,
        sequence(identifier(_SHA256)),
        b"\xa0" + set_of(*attributes)[1:],
        sequence(identifier(_ECDSA_SHA256)),
        octets(signature),
    )
    signed = sequence(
        integer(3),
        set_of(sequence(identifier(_SHA256))),
        sequence(identifier(_TIME_STAMP_CONTENT), element(0xA0, octets(info))),
        element(0xA0, encoded) if embeds else b"",
        set_of(signer_info),
    )
    content = sequence(identifier("1.2.840.113549.1.7.2"), element(0xA0, signed))
    return sequence(sequence(integer(0)), content)


def _attribute(dotted: str, value: bytes) -> bytes:
    return sequence(identifier(dotted), set_of(value))
