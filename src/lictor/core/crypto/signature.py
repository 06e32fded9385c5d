"""Public keys in PEM: is this the signature of these bytes by that key?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from lictor.core.crypto.pem import read_pem

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

# Given a signature and what was signed: why it is not right, or None where it is.
Verify: TypeAlias = Callable[[bytes, bytes], str | None]

_CURVES = frozenset(("secp224r1", "secp256r1", "secp384r1", "secp521r1"))
# Two numbers of the largest curve, side by side.
_LONGEST_PAIR = 132


def compile_key(text: str) -> Verify:
    """The test of signatures by the key in the first PEM block of a text: SHA-256 for ECDSA and RSA
    (PKCS #1 v1.5), none for Ed25519. ValueError where there is no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    label, data = read_pem(text)
    if label != "PUBLIC KEY":
        raise ValueError(f"unknown Public key PEM file type: {label}")
    try:
        key = load_der_public_key(data)
    except UnsupportedAlgorithm as error:
        raise ValueError(f"unsupported public key type: {error}") from error
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return _compile_curve(key)
    if isinstance(key, RSAPublicKey):
        return _compile_rsa(key)
    if isinstance(key, Ed25519PublicKey):
        return _compile_edwards(key)
    raise ValueError("unsupported public key type")


def _compile_curve(key: "EllipticCurvePublicKey") -> Verify:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    algorithm = ECDSA(SHA256())

    def verify(signature: bytes, message: bytes) -> str | None:
        encoded, form = _read_pair(signature)
        if encoded is None:
            return "ecdsa: Invalid IEEE_P1363 encoded bytes"
        if accepts(lambda: key.verify(encoded, message, algorithm)):
            return None
        return f"invalid signature when validating {form} encoded signature"

    return verify


def _read_pair(signature: bytes) -> tuple[bytes | None, str]:
    """The signature's two numbers in ASN.1, in which they may come or side by side."""
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    try:
        decode_dss_signature(signature)
    except ValueError:
        if len(signature) % 2 or not 0 < len(signature) <= _LONGEST_PAIR:
            return None, ""
        return encode_halves(signature), "IEEE_P1363"
    return signature, "ASN.1"


def encode_halves(signature: bytes) -> bytes:
    """The two numbers of ECDSA in ASN.1; JOSE and COSE put them side by side."""
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    half = len(signature) // 2
    return encode_dss_signature(int.from_bytes(signature[:half]), int.from_bytes(signature[half:]))


def _compile_rsa(key: "RSAPublicKey") -> Verify:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    padding, algorithm = PKCS1v15(), SHA256()

    def verify(signature: bytes, message: bytes) -> str | None:
        if accepts(lambda: key.verify(signature, message, padding, algorithm)):
            return None
        return "crypto/rsa: verification error"

    return verify


def _compile_edwards(key: "Ed25519PublicKey") -> Verify:
    def verify(signature: bytes, message: bytes) -> str | None:
        if accepts(lambda: key.verify(signature, message)):
            return None
        return "failed to verify signature"

    return verify


def find_hash(algorithm: str) -> "HashAlgorithm":
    """The hash of an algorithm by its name in JOSE, such as ES256."""
    from cryptography.hazmat.primitives import hashes

    return {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]


def accepts(verify: Callable[[], None]) -> bool:
    """Does this call of a key's `verify` accept the signature?"""
    from cryptography.exceptions import InvalidSignature

    try:
        verify()
    except (InvalidSignature, ValueError):
        return False
    return True


def accepts_prehashed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Verify an Ed25519ph signature (RFC 8032) by a public key of 32 bytes.

    cosign signs with this variant, which `cryptography` does not verify. libsodium rejects keys of
    small order and scalars beyond the group order.
    """
    from nacl import bindings, exceptions

    state = bindings.crypto_sign_ed25519ph_state()
    bindings.crypto_sign_ed25519ph_update(state, message)
    try:
        return bindings.crypto_sign_ed25519ph_final_verify(state, signature, key)
    # PyNaCl reports an invalid length of the key or the signature as its TypeError.
    except (exceptions.BadSignatureError, exceptions.TypeError):
        return False
