"""Public keys of policies, and verification of signatures with them."""

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from lictor.core.crypto.signature import accepts, accepts_prehashed
from lictor.core.errors import LictorError, LookupFailedError, SignatureRefusedError

# Slow import, and few policies verify images: imported on demand.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

    from lictor.core.crypto.log_key import PublicKey

# Entry points for key management services: `awskms = "package:function"`; the function gets the URI
# and returns the public key in PEM.
ENTRY_POINTS = "lictor.keys"

_CURVES = {"secp256r1": "sha256", "secp384r1": "sha384", "secp521r1": "sha512"}
_RSA_BITS = range(2048, 16385)
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_LABELS = ("PUBLIC KEY", "RSA PUBLIC KEY")
_LONGEST_KEY = 64 * 1024


def split_keys(text: str) -> list[str]:
    """The keys in a text, separately; the whole text if there is only one, or none."""
    parts = text.split(_END)[:-1] if text.strip().startswith(_BEGIN) else []
    return [f"{part.strip()}\n{_END}\n" for part in parts] if len(parts) > 1 else [text]


def read_public_key(text: str) -> "PublicKey":
    """The key in PEM, or from the URI of a key management service."""
    scheme, separator, _ = text.strip().partition("://")
    if separator and "\n" not in scheme:
        return _read_pem_key(_fetch_service_key(scheme, text.strip()))
    return _read_pem_key(text)


def _fetch_service_key(scheme: str, uri: str) -> str:
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=ENTRY_POINTS, name=scheme)), None)
    if found is None:
        raise LookupFailedError(
            f"failed to load public key from {uri}: no installed package offers keys of"
            f" {scheme}:// (entry point {ENTRY_POINTS}); export the public key and give it as PEM"
        )
    try:
        return str(found.load()(uri))
    except LictorError:
        raise
    # External code: if it raises, there is no key, and the image is not verified.
    except Exception as error:
        raise LookupFailedError(f"failed to load public key from {uri}: {error}") from error


@lru_cache(maxsize=512)
def _read_pem_key(text: str) -> "PublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    label = text.strip().partition("\n")[0].strip()
    if label not in [f"-----BEGIN {known}-----" for known in _LABELS]:
        shown = label[:60] or "an empty text"
        raise SignatureRefusedError(f"failed to load public key from {shown}: PEM is expected")
    try:
        key = load_pem_public_key(text.strip()[:_LONGEST_KEY].encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureRefusedError(f"failed to load public key: {error}") from error
    _check_kind(key)
    return cast("PublicKey", key)


def _check_kind(key: object) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, RSAPublicKey):
        if key.key_size not in _RSA_BITS:
            raise SignatureRefusedError(
                f"an RSA key of {key.key_size} bits is not accepted:"
                f" {_RSA_BITS.start} to {_RSA_BITS.stop - 1} are"
            )
    elif isinstance(key, EllipticCurvePublicKey):
        if key.curve.name not in _CURVES:
            raise SignatureRefusedError(f"keys on the curve {key.curve.name} are not accepted")
    elif not isinstance(key, Ed25519PublicKey):
        raise SignatureRefusedError("public keys are accepted for ECDSA, RSA and Ed25519")


def check_signed(
    key: "PublicKey", signature: bytes, message: bytes, hash_names: tuple[str, ...]
) -> None:
    """Raise SignatureRefusedError unless the key signed the message, with one of these hashes."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    _check_kind(key)
    hashes = [_find_hash(name) for name in hash_names]
    if isinstance(key, EllipticCurvePublicKey):
        good = any(_accepts_curve(key, signature, message, known) for known in hashes)
    elif isinstance(key, RSAPublicKey):
        good = any(_accepts_rsa(key, signature, message, known) for known in hashes)
    else:
        good = _accepts_edwards(key, signature, message)
    if not good:
        raise SignatureRefusedError("invalid signature: it was not made by this key")


def own_hash(key: "PublicKey") -> str:
    """The hash for a key's size, as in the bundle format."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    name = key.curve.name if isinstance(key, EllipticCurvePublicKey) else ""
    return _CURVES.get(name, "sha256")


def _find_hash(name: str) -> "HashAlgorithm":
    from cryptography.hazmat.primitives import hashes

    match name:
        case "" | "sha256":
            return hashes.SHA256()
        case "sha224":
            return hashes.SHA224()
        case "sha384":
            return hashes.SHA384()
        case "sha512":
            return hashes.SHA512()
        case _:
            raise SignatureRefusedError(
                f"signature algorithm {name} is unknown: sha224, sha256, sha384 and sha512 are not"
            )


def _accepts_curve(
    key: "EllipticCurvePublicKey", signature: bytes, message: bytes, known: "HashAlgorithm"
) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    return accepts(lambda: key.verify(signature, message, ECDSA(known)))


def _accepts_rsa(
    key: "RSAPublicKey", signature: bytes, message: bytes, known: "HashAlgorithm"
) -> bool:
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15

    probabilistic = PSS(MGF1(known), PSS.AUTO)
    return accepts(lambda: key.verify(signature, message, PKCS1v15(), known)) or accepts(
        lambda: key.verify(signature, message, probabilistic, known)
    )


def _accepts_edwards(key: "Ed25519PublicKey", signature: bytes, message: bytes) -> bool:
    if accepts(lambda: key.verify(signature, message)):
        return True
    return accepts_prehashed(key.public_bytes_raw(), signature, message)
