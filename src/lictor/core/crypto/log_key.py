"""Keys of logs: which log is meant by an identifier, and did its key sign these bytes?"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from lictor.core.crypto.pem import list_pem_blocks
from lictor.core.crypto.signature import accepts

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

PublicKey: TypeAlias = "EllipticCurvePublicKey | RSAPublicKey | Ed25519PublicKey"

# More keys than any policy needs; each costs a test of a signature.
_MOST_KEYS = 64
_SHORTEST_RSA = 2048


@dataclass(frozen=True, slots=True)
class Period:
    """From when until when something is trusted; None: without that bound."""

    start: datetime | None = None
    end: datetime | None = None

    def contains(self, time: datetime) -> bool:
        return (self.start is None or self.start <= time) and (self.end is None or time <= self.end)


ALWAYS = Period()


@dataclass(frozen=True, slots=True)
class LogKey:
    """The public key of a log; `identifier` is what the log's signatures call it."""

    identifier: bytes
    key: "PublicKey"
    period: Period = ALWAYS


def load_public_key(data: bytes) -> "PublicKey":
    """Read a SubjectPublicKeyInfo; ValueError where it is none, or of a kind not taken here."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        key = load_der_public_key(data)
    except UnsupportedAlgorithm as error:
        raise ValueError(f"unsupported public key: {error}") from error
    if isinstance(key, RSAPublicKey) and key.key_size < _SHORTEST_RSA:
        raise ValueError(f"RSA keys of less than {_SHORTEST_RSA} bits are not taken")
    if isinstance(key, EllipticCurvePublicKey | RSAPublicKey | Ed25519PublicKey):
        return key
    raise ValueError("unsupported public key: neither ECDSA nor RSA nor Ed25519")


def encode_public_key(key: "PublicKey") -> bytes:
    """The SubjectPublicKeyInfo of a key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(key: "PublicKey") -> bytes:
    """SHA-256 of a key: what most logs go by."""
    return sha256(encode_public_key(key)).digest()


def read_log_keys(text: str) -> tuple[LogKey, ...]:
    """The keys in PEM blocks; ValueError where there is none, or something else."""
    keys = []
    for label, data in list_pem_blocks(text):
        if label != "PUBLIC KEY":
            raise ValueError(f"a public key is expected, not {label}")
        key = load_public_key(data)
        keys.append(LogKey(fingerprint(key), key))
    if not 0 < len(keys) <= _MOST_KEYS:
        raise ValueError(f"between one and {_MOST_KEYS} public keys in PEM are expected")
    return tuple(keys)


def is_signed_by(key: "PublicKey", signature: bytes, message: bytes) -> bool:
    """ECDSA with SHA-256 or the curve's own hash, RSA (PKCS #1 v1.5) with SHA-256, or Ed25519."""
    return any(accepts(partial(verify, signature, message)) for verify in _list_tests(key))


def _list_tests(key: "PublicKey") -> list[Callable[[bytes, bytes], None]]:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

    if isinstance(key, Ed25519PublicKey):
        return [key.verify]
    if not isinstance(key, EllipticCurvePublicKey):
        return [lambda signature, message: key.verify(signature, message, PKCS1v15(), SHA256())]
    own: dict[str, HashAlgorithm] = {"secp384r1": SHA384(), "secp521r1": SHA512()}
    extra = own.get(key.curve.name)
    hashes = [SHA256()] if extra is None else [SHA256(), extra]
    return [partial(key.verify, signature_algorithm=ECDSA(algorithm)) for algorithm in hashes]
