"""Creates, reads and checks private keys and certificates."""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

# Clocks differ: a new certificate must be valid everywhere.
CLOCK_SKEW = timedelta(hours=1)
_RSA_BITS = 2048
_PEM_END = "-----END CERTIFICATE-----"
_MAX_PEM = 256 * 1024


class Algorithm(StrEnum):
    """The type of keys to create."""

    RSA = "RSA"
    ECDSA = "ECDSA"
    ED25519 = "Ed25519"


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key. Has no text form, which could reach a log."""

    certificate: x509.Certificate
    key: PrivateKey

    def __repr__(self) -> str:
        return "KeyPair(...)"

    @property
    def certificate_pem(self) -> str:
        return write_certificates((self.certificate,))

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def make_authority(name: str, algorithm: Algorithm, now: datetime, lifetime: timedelta) -> KeyPair:
    """A self-signed certificate authority."""
    key = _make_key(algorithm)
    subject = _name(name)
    builder = (
        _begin(key, subject, now, now + lifetime)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key, is_authority=True), critical=True)
    )
    return KeyPair(builder.sign(key, _digest(key)), key)


def make_serving(
    authority: KeyPair,
    hosts: Sequence[str],
    algorithm: Algorithm,
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    """A server certificate for names and addresses; it never outlives its authority."""
    key = _make_key(algorithm)
    issuer = authority.certificate
    until = min(now + lifetime, issuer.not_valid_after_utc)
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    # A subject is limited to 64 characters; the alternative names count.
    builder = (
        _begin(key, _name(hosts[-1][:64]), now, until)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(key, is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(_authority_key(issuer), critical=False)
    )
    return KeyPair(builder.sign(authority.key, _digest(authority.key)), key)


def make_client(
    authority: KeyPair, user: str, groups: Sequence[str], now: datetime, lifetime: timedelta
) -> KeyPair:
    """A client certificate for a user of an API server, in these groups."""
    key = _make_key(Algorithm.ECDSA)
    issuer = authority.certificate
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    builder = (
        _begin(key, x509.Name(subject), now, min(now + lifetime, issuer.not_valid_after_utc))
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(key, is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(_authority_key(issuer), critical=False)
    )
    return KeyPair(builder.sign(authority.key, _digest(authority.key)), key)


def read_certificates(pem: str) -> tuple[x509.Certificate, ...]:
    """The certificates in a PEM text, in order; unreadable ones are skipped."""
    found = []
    for part in pem[:_MAX_PEM].split(_PEM_END)[:-1]:
        try:
            found.append(x509.load_pem_x509_certificate(f"{part}{_PEM_END}\n".encode()))
        except ValueError:
            continue
    return tuple(found)


def read_key(pem: str) -> PrivateKey | None:
    """A private key; None if there is none of a supported type."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    known = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    return key if isinstance(key, known) else None


def write_certificates(certificates: Iterable[x509.Certificate]) -> str:
    """Certificates as one PEM text."""
    return "".join(item.public_bytes(Encoding.PEM).decode() for item in certificates)


def belongs(key: PrivateKey, certificate: x509.Certificate) -> bool:
    """Is this the key of this certificate?"""
    return _public(key.public_key()) == _public(certificate.public_key())


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Did this authority sign that certificate?"""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_valid_at(certificate: x509.Certificate, moment: datetime) -> bool:
    """Whether it is valid at this time."""
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc


def find_algorithm(certificate: x509.Certificate) -> Algorithm | None:
    """The type of a certificate's key."""
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return Algorithm.RSA
    if isinstance(key, ec.EllipticCurvePublicKey):
        return Algorithm.ECDSA
    return Algorithm.ED25519 if isinstance(key, ed25519.Ed25519PublicKey) else None


def list_hosts(certificate: x509.Certificate) -> frozenset[str]:
    """The names and addresses that a server's certificate is for."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return frozenset(
        (*extension.value.get_values_for_type(x509.DNSName), *(str(item) for item in addresses))
    )


def _make_key(algorithm: Algorithm) -> PrivateKey:
    match algorithm:
        case Algorithm.RSA:
            return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
        case Algorithm.ECDSA:
            return ec.generate_private_key(ec.SECP256R1())
        case Algorithm.ED25519:
            return ed25519.Ed25519PrivateKey.generate()


def _begin(
    key: PrivateKey, subject: x509.Name, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _digest(key: PrivateKey) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _usage(key: PrivateKey, *, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_authority and isinstance(key, rsa.RSAPrivateKey),
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(_public_key(issuer))
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _public_key(
    certificate: x509.Certificate,
) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey:
    key = certificate.public_key()
    known = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
    if not isinstance(key, known):
        raise TypeError(f"certificate authorities with {type(key).__name__} cannot sign here")
    return key


def _public(key: object) -> bytes:
    write = getattr(key, "public_bytes", None)
    return write(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) if write else b""


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
