"""Certificates that sign code, by the Notary Project's rules: is the chain whole, and what may
its first certificate sign?
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from lictor.errors import SignatureRefusedError

# Loading the library takes a while: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509

    Extension = TypeVar("Extension", bound=x509.ExtensionType)

_WEAK_HASHES = frozenset(("md5", "sha1", "sha224"))
_RSA_ALGORITHMS = {2048: "PS256", 3072: "PS384", 4096: "PS512"}
_CURVE_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_MOST_TRUSTED = 100
# What a certificate that signs code must not be for as well.
_FOREIGN_USAGES = (
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)
_CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
_FOREIGN_PURPOSES = frozenset(
    (
        "2.5.29.37.0",
        "1.3.6.1.5.5.7.3.1",
        "1.3.6.1.5.5.7.3.4",
        "1.3.6.1.5.5.7.3.8",
        "1.3.6.1.5.5.7.3.9",
    )
)
# Critical extensions whose meaning is checked here, or that say nothing about what is checked:
# key usage, alternative names, basic constraints, extended key usage.
_UNDERSTOOD = frozenset(("2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.37"))


def read_trusted(text: str) -> "list[x509.Certificate]":
    """Read all certificates of a PEM text; refused where there are none."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(text.encode())
    except (ValueError, x509.InvalidVersion) as error:
        raise SignatureRefusedError(f"the trusted certificates cannot be read: {error}") from error
    if len(found) > _MOST_TRUSTED:
        raise SignatureRefusedError(f"more than {_MOST_TRUSTED} trusted certificates")
    return found


def read_chain(encoded: Sequence[bytes]) -> "list[x509.Certificate]":
    """Read certificates in DER; refused where one is malformed or there are none."""
    from cryptography import x509

    try:
        chain = [x509.load_der_x509_certificate(data) for data in encoded]
        # The library reads extensions and keys when they are first asked for.
        for certificate in chain:
            certificate.public_key()
            list(certificate.extensions)
    except _list_faults() as error:
        raise SignatureRefusedError(f"a certificate cannot be read: {error}") from error
    if not chain:
        raise SignatureRefusedError("the signature comes without certificates")
    return chain


def check_chain(chain: "Sequence[x509.Certificate]") -> None:
    """Refuse a chain that is not: signer first, each issued by the next, a root at the end."""
    leaf, *authorities = chain
    for certificate, issuer in zip(chain, [*authorities, chain[-1]], strict=True):
        if certificate is not issuer and certificate.subject == certificate.issuer:
            raise SignatureRefusedError(
                f"{describe(certificate)} is a root in the middle of the chain"
            )
        _check_issued(certificate, issuer)
        _check_extensions(certificate)
    for position, authority in enumerate(authorities):
        _check_authority(authority, below=position)
    _check_signer(leaf)


def check_validity(chain: "Sequence[x509.Certificate]", moment: datetime, when: str) -> None:
    """Refuse a chain of which a certificate is not valid at that time."""
    for certificate in chain:
        if moment < certificate.not_valid_before_utc:
            raise SignatureRefusedError(f"{describe(certificate)} is not valid yet {when}")
        if moment > certificate.not_valid_after_utc:
            raise SignatureRefusedError(
                f"{describe(certificate)} has expired {when}: it was valid until "
                f"{certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
            )


def check_revocation(chain: "Sequence[x509.Certificate]") -> None:
    """Refuse certificates whose revocation would have to be asked for: nobody asks here."""
    from cryptography import x509
    from cryptography.x509.oid import AuthorityInformationAccessOID

    # Nobody but itself could revoke a root.
    for certificate in chain[:-1]:
        access = _find(certificate, x509.AuthorityInformationAccess) or ()
        asks = any(entry.access_method == AuthorityInformationAccessOID.OCSP for entry in access)
        if asks or _find(certificate, x509.CRLDistributionPoints) is not None:
            raise SignatureRefusedError(
                f"{describe(certificate)} names an OCSP responder or a revocation list, and "
                "whether it was revoked cannot be checked here: sign with a certificate that "
                "names neither"
            )


def signing_algorithm(certificate: "x509.Certificate") -> str:
    """The one algorithm (by its name in JOSE) that the key of this certificate may sign with."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    key = certificate.public_key()
    name = None
    if isinstance(key, RSAPublicKey):
        name = _RSA_ALGORITHMS.get(key.key_size)
    elif isinstance(key, EllipticCurvePublicKey):
        name = _CURVE_ALGORITHMS.get(key.curve.name)
    if name is None:
        raise SignatureRefusedError(
            f"the key of {describe(certificate)} must be RSA with 2048, 3072 or 4096 bits, or "
            "ECDSA on P-256, P-384 or P-521"
        )
    return name


def describe(certificate: "x509.Certificate") -> str:
    """A certificate for people."""
    return f"certificate {certificate.subject.rfc4514_string()!r}"


def _check_issued(certificate: "x509.Certificate", issuer: "x509.Certificate") -> None:
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None or algorithm.name in _WEAK_HASHES:
        raise SignatureRefusedError(f"{describe(certificate)} was signed with a weak algorithm")
    try:
        certificate.verify_directly_issued_by(issuer)
    except _list_faults() as error:
        if certificate is issuer:
            raise SignatureRefusedError(
                f"the chain ends with {describe(certificate)}, which is no root"
            ) from error
        raise SignatureRefusedError(
            f"{describe(certificate)} was not issued by {describe(issuer)}, which follows it"
        ) from error


def _check_extensions(certificate: "x509.Certificate") -> None:
    for extension in certificate.extensions:
        if extension.critical and extension.oid.dotted_string not in _UNDERSTOOD:
            raise SignatureRefusedError(
                f"{describe(certificate)} has a critical extension that is not known here: "
                f"{extension.oid.dotted_string}"
            )


def _check_authority(certificate: "x509.Certificate", below: int) -> None:
    """Check that it may issue, with that many authorities between it and the signer."""
    from cryptography import x509

    basic, usage = _find(certificate, x509.BasicConstraints), _find(certificate, x509.KeyUsage)
    if basic is None or not basic.ca or usage is None or not usage.key_cert_sign:
        raise SignatureRefusedError(f"{describe(certificate)} may not issue certificates")
    if basic.path_length is not None and basic.path_length < below:
        raise SignatureRefusedError(f"{describe(certificate)} may not have so long a chain")


def _check_signer(certificate: "x509.Certificate") -> None:
    from cryptography import x509

    basic, usage = _find(certificate, x509.BasicConstraints), _find(certificate, x509.KeyUsage)
    name = describe(certificate)
    if basic is not None and basic.ca:
        raise SignatureRefusedError(f"{name} is that of an authority and may not sign images")
    if usage is None or not usage.digital_signature:
        raise SignatureRefusedError(f"{name} is not for digital signatures (key usage)")
    if not certificate.extensions.get_extension_for_class(x509.KeyUsage).critical:
        raise SignatureRefusedError(f"the key usage of {name} is not marked critical")
    if foreign := [word for word in _FOREIGN_USAGES if getattr(usage, word)]:
        raise SignatureRefusedError(f"{name} is for {foreign[0].replace('_', ' ')} as well")
    _check_purposes(certificate)


def _check_purposes(certificate: "x509.Certificate") -> None:
    from cryptography import x509

    purposes = _find(certificate, x509.ExtendedKeyUsage)
    if purposes is None:
        return
    named = {purpose.dotted_string for purpose in purposes}
    if _CODE_SIGNING not in named or named & _FOREIGN_PURPOSES:
        raise SignatureRefusedError(
            f"{describe(certificate)} is not for signing code alone (extended key usage)"
        )


def _find(certificate: "x509.Certificate", kind: "type[Extension]") -> "Extension | None":
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _list_faults() -> tuple[type[Exception], ...]:
    """What the library raises for certificates that are malformed or signed by somebody else."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    return (
        InvalidSignature,
        TypeError,
        UnsupportedAlgorithm,
        ValueError,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    )
