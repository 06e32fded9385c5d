"""Certificates that sign code, by the Notary Project's rules: is the chain whole, and what may
its first certificate sign?
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lictor.core.crypto.certificate_chain import (
    CODE_SIGNING,
    check_extensions,
    check_issued_by,
    find_extension,
    load_certificate,
    name_certificate,
    read_certificates,
)
from lictor.core.crypto.signature import accepts, encode_halves, find_hash
from lictor.core.errors import SignatureRefusedError

# Loading the library takes a while: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509

_RSA_ALGORITHMS = {2048: "PS256", 3072: "PS384", 4096: "PS512"}
_CURVE_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# What a certificate that signs code must not be for as well.
_FOREIGN_USAGES = (
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)
_FOREIGN_PURPOSES = frozenset(
    (
        "2.5.29.37.0",
        "1.3.6.1.5.5.7.3.1",
        "1.3.6.1.5.5.7.3.4",
        "1.3.6.1.5.5.7.3.8",
        "1.3.6.1.5.5.7.3.9",
    )
)


def read_trusted(text: str) -> "tuple[x509.Certificate, ...]":
    """Read all certificates of a PEM text; refused where there are none."""
    try:
        return read_certificates(text)
    except ValueError as error:
        raise SignatureRefusedError(f"the trusted certificates cannot be read: {error}") from error


def read_chain(encoded: Sequence[bytes]) -> "tuple[x509.Certificate, ...]":
    """Read certificates in DER; refused where one is malformed or there are none."""
    if not encoded:
        raise SignatureRefusedError("the signature comes without certificates")
    try:
        return tuple(load_certificate(data) for data in encoded)
    except ValueError as error:
        raise SignatureRefusedError(f"a certificate cannot be read: {error}") from error


def check_chain(chain: "Sequence[x509.Certificate]") -> None:
    """Refuse a chain that is not: signer first, each issued by the next, a root at the end."""
    leaf, *authorities = chain
    for certificate, issuer in zip(chain, [*authorities, chain[-1]], strict=True):
        if certificate is not issuer and certificate.subject == certificate.issuer:
            raise SignatureRefusedError(
                f"{name_certificate(certificate)} is a root in the middle of the chain"
            )
        _check_issued(certificate, issuer)
        check_extensions(certificate)
    for position, authority in enumerate(authorities):
        _check_authority(authority, below=position)
    _check_signer(leaf)


def check_validity(chain: "Sequence[x509.Certificate]", moment: datetime, when: str) -> None:
    """Refuse a chain of which a certificate is not valid at that time."""
    for certificate in chain:
        if moment < certificate.not_valid_before_utc:
            raise SignatureRefusedError(f"{name_certificate(certificate)} is not valid yet {when}")
        if moment > certificate.not_valid_after_utc:
            raise SignatureRefusedError(
                f"{name_certificate(certificate)} has expired {when}: it was valid until "
                f"{certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
            )


def check_revocation(chain: "Sequence[x509.Certificate]") -> None:
    """Reject certificates that need a revocation check, which is not possible here."""
    from cryptography import x509
    from cryptography.x509.oid import AuthorityInformationAccessOID

    # Only a root itself could revoke a root.
    for certificate in chain[:-1]:
        access = find_extension(certificate, x509.AuthorityInformationAccess) or ()
        asks = any(entry.access_method == AuthorityInformationAccessOID.OCSP for entry in access)
        if asks or find_extension(certificate, x509.CRLDistributionPoints) is not None:
            raise SignatureRefusedError(
                f"{name_certificate(certificate)} names an OCSP responder or a revocation list, "
                "and whether it was revoked cannot be checked here: sign with a certificate that "
                "names neither"
            )


def check_code_signature(
    signer: "x509.Certificate", algorithm: str, signature: bytes, signed: bytes
) -> None:
    """Check with the algorithm that belongs to the key, never with one that a header chooses."""
    own = _signing_algorithm(signer)
    if algorithm != own:
        raise SignatureRefusedError(
            f"the algorithm is {algorithm or 'missing'}, but the key of "
            f"{name_certificate(signer)} signs with {own}"
        )
    if not accepts(lambda: _verify_signature(signer, own, signature, signed)):
        raise SignatureRefusedError(
            f"the signature does not match its content and the key of {name_certificate(signer)}"
        )


def _verify_signature(
    signer: "x509.Certificate", algorithm: str, signature: bytes, signed: bytes
) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

    key, digest = signer.public_key(), find_hash(algorithm)
    if isinstance(key, rsa.RSAPublicKey):
        scheme = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        key.verify(signature, signed, scheme, digest)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        if len(signature) != 2 * ((key.curve.key_size + 7) // 8):
            raise ValueError("wrong length")
        key.verify(encode_halves(signature), signed, ec.ECDSA(digest))


def _signing_algorithm(certificate: "x509.Certificate") -> str:
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
            f"the key of {name_certificate(certificate)} must be RSA with 2048, 3072 or 4096 bits, "
            "or ECDSA on P-256, P-384 or P-521"
        )
    return name


def _check_issued(certificate: "x509.Certificate", issuer: "x509.Certificate") -> None:
    try:
        check_issued_by(issuer, certificate)
    except SignatureRefusedError as error:
        if certificate is issuer:
            raise SignatureRefusedError(
                f"the chain ends with {name_certificate(certificate)}, which is no root"
            ) from error
        raise SignatureRefusedError(
            f"{name_certificate(certificate)} was not issued by {name_certificate(issuer)}, which "
            f"follows it: {error}"
        ) from error


def _check_authority(certificate: "x509.Certificate", below: int) -> None:
    """Check that it may issue, with that many authorities between it and the signer."""
    from cryptography import x509

    basic, usage = (
        find_extension(certificate, x509.BasicConstraints),
        find_extension(certificate, x509.KeyUsage),
    )
    if basic is None or not basic.ca or usage is None or not usage.key_cert_sign:
        raise SignatureRefusedError(f"{name_certificate(certificate)} may not issue certificates")
    if basic.path_length is not None and basic.path_length < below:
        raise SignatureRefusedError(f"{name_certificate(certificate)} may not have so long a chain")


def _check_signer(certificate: "x509.Certificate") -> None:
    from cryptography import x509

    basic, usage = (
        find_extension(certificate, x509.BasicConstraints),
        find_extension(certificate, x509.KeyUsage),
    )
    name = name_certificate(certificate)
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

    purposes = find_extension(certificate, x509.ExtendedKeyUsage)
    if purposes is None:
        return
    named = {purpose.dotted_string for purpose in purposes}
    if CODE_SIGNING not in named or named & _FOREIGN_PURPOSES:
        raise SignatureRefusedError(
            f"{name_certificate(certificate)} is not for signing code alone (extended key usage)"
        )
