"""Cryptographic builtins: hashes, certificates, keys."""

import contextlib
import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lictor.core.crypto.json_web_token import encode_url_safe
from lictor.core.errors import FunctionError, SignatureRefusedError
from lictor.core.lang.rego.operands import (
    BuiltinRun,
    Function,
    Functions,
    take_object,
    take_text,
    take_texts,
    take_whole,
)
from lictor.core.lang.rego.values import RegoValue

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_BEGIN = "-----BEGIN"
_MOST_CERTIFICATES = 100
# Key usages by their names in Go.
_USAGES = {
    "KeyUsageAny": "2.5.29.37.0",
    "KeyUsageServerAuth": "1.3.6.1.5.5.7.3.1",
    "KeyUsageClientAuth": "1.3.6.1.5.5.7.3.2",
    "KeyUsageCodeSigning": "1.3.6.1.5.5.7.3.3",
    "KeyUsageEmailProtection": "1.3.6.1.5.5.7.3.4",
    "KeyUsageIPSECEndSystem": "1.3.6.1.5.5.7.3.5",
    "KeyUsageIPSECTunnel": "1.3.6.1.5.5.7.3.6",
    "KeyUsageIPSECUser": "1.3.6.1.5.5.7.3.7",
    "KeyUsageTimeStamping": "1.3.6.1.5.5.7.3.8",
    "KeyUsageOCSPSigning": "1.3.6.1.5.5.7.3.9",
    "KeyUsageMicrosoftServerGatedCrypto": "1.3.6.1.4.1.311.10.3.3",
    "KeyUsageNetscapeServerGatedCrypto": "2.16.840.1.113730.4.1",
    "KeyUsageMicrosoftCommercialCodeSigning": "1.3.6.1.4.1.311.2.1.22",
    "KeyUsageMicrosoftKernelCodeSigning": "1.3.6.1.4.1.311.61.1.1",
}


def _make_hash(name: str) -> Function:
    def compute(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
        return hashlib.new(
            name, take_text(arguments[0]).encode(), usedforsecurity=False
        ).hexdigest()

    return compute


def _make_mac(name: str) -> Function:
    def compute(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
        message, key = take_text(arguments[0]).encode(), take_text(arguments[1]).encode()
        return hmac.digest(key, message, name).hex()

    return compute


def _is_same_mac(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    left, right = take_text(arguments[0]).encode(), take_text(arguments[1]).encode()
    return hmac.compare_digest(left, right)


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (Base64Error, ValueError) as error:
        raise FunctionError(f"illegal base64 data: {error}") from error


def _read_certificates(text: str) -> "list[x509.Certificate]":
    from lictor.core.crypto.certificate_chain import load_certificate
    from lictor.core.crypto.pem import list_pem_blocks

    content = b""
    if not text.startswith(_BEGIN):
        content = _decode_base64(text)
        text = content.decode(errors="replace")
    try:
        if text.startswith(_BEGIN):
            blocks = list_pem_blocks(text)
            if any(label != "CERTIFICATE" for label, _ in blocks):
                raise FunctionError("a PEM block is not a CERTIFICATE")
            parts = [data for _, data in blocks]
        else:
            parts = _split_der(content)
        return [load_certificate(part) for part in parts[:_MOST_CERTIFICATES]]
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _split_der(content: bytes) -> list[bytes]:
    """Consecutive DER elements."""
    parts: list[bytes] = []
    while content:
        if len(content) < 2:
            raise FunctionError("malformed certificate")
        size, start = content[1], 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(content[2:start])
        if start + size > len(content):
            raise FunctionError("malformed certificate")
        parts.append(content[: start + size])
        content = content[start + size :]
    return parts


def _describe(certificates: "list[x509.Certificate]", *, with_uris: bool) -> list[RegoValue]:
    from lictor.core.crypto.certificate import describe_certificate

    made: list[RegoValue] = []
    for certificate in certificates:
        fields = {**_EXTRA_FIELDS, **describe_certificate(certificate)}
        if with_uris:
            fields["URIStrings"] = _list_uris(certificate)
        made.append(fields)
    return made


# Newer fields of Go's record, which certificates seldom have.
_EXTRA_FIELDS = {"InhibitAnyPolicy": 0, "InhibitAnyPolicyZero": False}


def _list_uris(certificate: "x509.Certificate") -> list[str] | None:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    return names.get_values_for_type(x509.UniformResourceIdentifier) or None


def _parse_certificates(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    return _describe(_read_certificates(take_text(arguments[0])), with_uris=True)


def _verify_certificates(run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    return _verify(run, arguments[0], {}, with_uris=True)


def _verify_with_options(run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    take_text(arguments[0])
    return _verify(run, arguments[0], take_object(arguments[1]), with_uris=False)


def _verify(
    run: BuiltinRun, text: RegoValue, options: dict[str, RegoValue], *, with_uris: bool
) -> list[RegoValue]:
    """Whether the last certificate leads to the first, and the chain."""
    from lictor.core.crypto.certificate_chain import Anchors, find_chain

    try:
        certificates = _read_certificates(take_text(text))
    except FunctionError:
        return [False, []]
    usages, moment, name = _read_options(run, options)
    if len(certificates) < 2:
        return [False, []]
    leaf, anchors = certificates[-1], Anchors((certificates[0],), tuple(certificates[1:-1]))
    for usage in usages:
        try:
            _check_leaf(leaf, usage, name)
            chain = find_chain(leaf, anchors, moment, usage)
        except SignatureRefusedError:
            continue
        return [True, _describe(list(chain), with_uris=with_uris)]
    return [False, []]


def _read_options(
    run: BuiltinRun, options: dict[str, RegoValue]
) -> tuple[list[str], datetime, str]:
    unknown = set(options) - {"DNSName", "CurrentTime", "MaxConstraintComparisons", "KeyUsages"}
    if unknown:
        raise FunctionError("invalid key option")
    usages = take_texts(options.get("KeyUsages", ["KeyUsageServerAuth"])) or ["KeyUsageServerAuth"]
    if not all(usage in _USAGES for usage in usages):
        raise FunctionError("invalid entries for 'KeyUsages' found")
    if "MaxConstraintComparisons" in options:
        take_whole(options["MaxConstraintComparisons"])
    nanoseconds = take_whole(options.get("CurrentTime", run.now))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return [_USAGES[each] for each in usages], moment, take_text(options.get("DNSName", ""))


def _check_leaf(leaf: "x509.Certificate", usage: str, name: str) -> None:
    from cryptography import x509

    from lictor.core.crypto.certificate_chain import find_extension

    any_usage = _USAGES["KeyUsageAny"]
    extended = find_extension(leaf, x509.ExtendedKeyUsage)
    allowed = {each.dotted_string for each in extended} if extended is not None else {any_usage}
    if usage != any_usage and not {usage, any_usage} & allowed:
        raise SignatureRefusedError("the certificate is for another purpose")
    if not name:
        return
    alternatives = find_extension(leaf, x509.SubjectAlternativeName)
    names = alternatives.get_values_for_type(x509.DNSName) if alternatives is not None else []
    if not any(_fits_name(pattern.lower(), name.lower().rstrip(".")) for pattern in names):
        raise SignatureRefusedError("the certificate is for another name")


def _fits_name(pattern: str, name: str) -> bool:
    if pattern.startswith("*."):
        first, _, rest = name.partition(".")
        return bool(first) and rest == pattern[2:]
    return pattern == name


def _parse_request(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    from lictor.core.crypto.certificate import describe_request
    from lictor.core.crypto.pem import list_pem_blocks

    text = take_text(arguments[0])
    content = text.encode()
    if not text.startswith("-----BEGIN CERTIFICATE REQUEST-----"):
        content = _decode_base64(text)
    try:
        if content.startswith(b"-----BEGIN"):
            label, content = list_pem_blocks(content.decode())[0]
            if label != "CERTIFICATE REQUEST":
                raise FunctionError("invalid PEM-encoded certificate signing request")
        return describe_request(x509.load_der_x509_csr(content))
    except (ValueError, IndexError, UnsupportedAlgorithm) as error:
        raise FunctionError(f"not a certificate signing request: {error}") from error


def read_private_keys(text: str) -> "list[PrivateKeyTypes]":
    """The private keys in PEM blocks; other blocks are ignored."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    from lictor.core.crypto.pem import list_pem_blocks

    with contextlib.suppress(FunctionError):
        # PEM is not base64.
        text = _decode_base64(text).decode(errors="replace")
    labels = ("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY")
    try:
        blocks = list_pem_blocks(text) if _BEGIN in text else []
        return [load_der_private_key(data, None) for label, data in blocks if label in labels]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FunctionError(f"a private key cannot be read: {error}") from error


def encode_number(number: int, size: int = 0) -> str:
    """A number as in JSON Web Keys."""
    return encode_url_safe(number.to_bytes(size or max((number.bit_length() + 7) // 8, 1)))


def write_jwk(key: "PrivateKeyTypes") -> dict[str, RegoValue]:
    """A private key as JSON Web Key."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if isinstance(key, RSAPrivateKey):
        numbers = key.private_numbers()
        public = numbers.public_numbers
        values = {
            "n": public.n, "e": public.e, "d": numbers.d, "p": numbers.p, "q": numbers.q,
            "dp": numbers.dmp1, "dq": numbers.dmq1, "qi": numbers.iqmp,
        }  # fmt: skip
        return {"kty": "RSA", **{name: encode_number(value) for name, value in values.items()}}
    if isinstance(key, EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        size = (key.curve.key_size + 7) // 8
        private = key.private_numbers().private_value
        names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        values = {"x": point.x, "y": point.y, "d": private}
        written = {name: encode_number(value, size) for name, value in values.items()}
        return {"kty": "EC", "crv": names.get(key.curve.name, key.curve.name), **written}
    if isinstance(key, Ed25519PrivateKey):
        parts = {"x": key.public_key().public_bytes_raw(), "d": key.private_bytes_raw()}
        coded = {name: encode_url_safe(part) for name, part in parts.items()}
        return {"kty": "OKP", "crv": "Ed25519", **coded}
    raise FunctionError("this type of key has no JSON form")


def _parse_rsa_key(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    text = take_text(arguments[0])
    if not text:
        raise FunctionError("input PEM data was empty")
    if not text.startswith(_BEGIN):
        text = _decode_base64(text).decode(errors="replace")
    keys = read_private_keys(text)
    return write_jwk(keys[0]) if keys else None


def _parse_private_keys(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    text = take_text(arguments[0])
    if not text:
        return None
    return [_describe_private(key) for key in read_private_keys(text)]


def _describe_private(key: "PrivateKeyTypes") -> RegoValue:
    """A private key as Go encodes its record in JSON."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if isinstance(key, RSAPrivateKey):
        rsa = key.private_numbers()
        inside = {"Dp": rsa.dmp1, "Dq": rsa.dmq1, "Qinv": rsa.iqmp, "CRTValues": []}
        public = {"N": rsa.public_numbers.n, "E": rsa.public_numbers.e}
        return {**public, "D": rsa.d, "Primes": [rsa.p, rsa.q], "Precomputed": inside}
    if isinstance(key, EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        private = key.private_numbers().private_value
        return {"Curve": {}, "X": point.x, "Y": point.y, "D": private}
    if isinstance(key, Ed25519PrivateKey):
        content = key.private_bytes_raw() + key.public_key().public_bytes_raw()
        return b64encode(content).decode()
    raise FunctionError("this type of key cannot be shown")


def _parse_pair(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    """A certificate and its key, as in Go's TLS."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    certificates = _read_certificates(take_text(arguments[0]))
    keys = read_private_keys(take_text(arguments[1]))
    if not certificates or not keys:
        raise FunctionError("expected a certificate and a private key")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certificates[0].public_key().public_bytes(*form) != keys[0].public_key().public_bytes(*form):
        raise FunctionError("private key does not match public key")
    return {
        "Certificate": [
            b64encode(each.public_bytes(Encoding.DER)).decode() for each in certificates
        ],
        "PrivateKey": _describe_private(keys[0]),
        "SupportedSignatureAlgorithms": None,
        "OCSPStaple": None,
        "SignedCertificateTimestamps": None,
        "Leaf": _describe(certificates[:1], with_uris=False)[0],
    }


HASH_BUILTINS: Functions = {
    "crypto.md5": _make_hash("md5"),
    "crypto.sha1": _make_hash("sha1"),
    "crypto.sha256": _make_hash("sha256"),
    "crypto.hmac.md5": _make_mac("md5"),
    "crypto.hmac.sha1": _make_mac("sha1"),
    "crypto.hmac.sha256": _make_mac("sha256"),
    "crypto.hmac.sha512": _make_mac("sha512"),
    "crypto.hmac.equal": _is_same_mac,
    "crypto.x509.parse_certificates": _parse_certificates,
    "crypto.x509.parse_and_verify_certificates": _verify_certificates,
    "crypto.x509.parse_and_verify_certificates_with_options": _verify_with_options,
    "crypto.x509.parse_certificate_request": _parse_request,
    "crypto.x509.parse_rsa_private_key": _parse_rsa_key,
    "crypto.x509.parse_keypair": _parse_pair,
    "crypto.parse_private_keys": _parse_private_keys,
}
