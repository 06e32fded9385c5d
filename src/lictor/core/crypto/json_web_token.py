"""JSON Web Tokens: is the signature that of a known key, and what does the token claim?"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import orjson

from lictor.core.crypto.signature import accepts, encode_halves, find_hash
from lictor.core.errors import FunctionError
from lictor.core.raw import Json, JsonObject

HASHES = {"256": "sha256", "384": "sha384", "512": "sha512"}
ALGORITHMS = frozenset(
    [f"{family}{size}" for family in ("RS", "PS", "ES", "HS") for size in HASHES] + ["EdDSA"]
)
_CURVES = {
    "ES256": ("P-256", "SECP256R1", 32),
    "ES384": ("P-384", "SECP384R1", 48),
    "ES512": ("P-521", "SECP521R1", 66),
}


def secret_key(secret: str) -> JsonObject:
    """A shared secret as a key of a set."""
    return {"kty": "oct", "secret": secret.encode()}


def decode_token(token: str, keys: Sequence[Json], now: datetime) -> JsonObject:
    """The claims, and whether the token is valid at this time.

    Raises FunctionError where the token is malformed or none of the keys has signed it.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise FunctionError("failed to parse jwt: expected three parts")
    header, claims = _read_json(parts[0]), _read_json(parts[1])
    signed, signature = f"{parts[0]}.{parts[1]}".encode(), _read_bytes(parts[2])
    if not any(_verify(header, key, signed, signature) for key in _choose(header, keys)):
        raise FunctionError("failed to parse jwt: could not verify it with any of the keys")
    return {"Claims": claims, "Valid": _is_current(claims, now.timestamp())}


def encode_url_safe(content: bytes) -> str:
    """Base64 for URLs without padding, as keys and tokens in JSON have it."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _read_bytes(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (Base64Error, ValueError) as error:
        raise FunctionError(f"failed to parse jwt: {error}") from None


def _read_json(part: str) -> JsonObject:
    try:
        value = orjson.loads(_read_bytes(part))
    except orjson.JSONDecodeError as error:
        raise FunctionError(f"failed to parse jwt: {error}") from None
    if not isinstance(value, dict):
        raise FunctionError("failed to parse jwt: expected an object")
    return value


def _choose(header: Mapping[str, Json], keys: Sequence[Json]) -> list[JsonObject]:
    """The key that the token names; any, where it names none or there is but one."""
    known = [key for key in keys if isinstance(key, dict)]
    name = header.get("kid")
    if len(known) == 1 or not isinstance(name, str):
        return known
    return [key for key in known if key.get("kid") == name]


def _is_current(claims: Mapping[str, Json], now: float) -> bool:
    until, since, issued = (_read_moment(claims.get(name)) for name in ("exp", "nbf", "iat"))
    if until is not None and now >= until:
        return False
    return not any(moment is not None and now < moment for moment in (since, issued))


def _read_moment(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- signatures


def _verify(
    header: Mapping[str, Json], key: Mapping[str, Json], signed: bytes, signature: bytes
) -> bool:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        return False
    if key.get("alg") not in (None, algorithm):
        return False
    verify = _VERIFIERS.get((algorithm[:2], str(key.get("kty"))))
    # A token may not choose an algorithm that its key is not made for.
    return verify is not None and verify(algorithm, key, signed, signature)


def _verify_secret(
    algorithm: str, key: Mapping[str, Json], signed: bytes, signature: bytes
) -> bool:
    secret = key["secret"] if "secret" in key else _read_bytes(str(key.get("k", "")))
    return hmac.compare_digest(hmac.digest(secret, signed, HASHES[algorithm[2:]]), signature)


def _verify_rsa(algorithm: str, key: Mapping[str, Json], signed: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    digest = find_hash(algorithm)
    scheme: padding.AsymmetricPadding = padding.PKCS1v15()
    if algorithm.startswith("PS"):
        scheme = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
    numbers = rsa.RSAPublicNumbers(_read_number(key.get("e")), _read_number(key.get("n")))
    return accepts(lambda: numbers.public_key().verify(signature, signed, scheme, digest))


def _verify_curve(algorithm: str, key: Mapping[str, Json], signed: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec

    name, curve, size = _CURVES[algorithm]
    if key.get("crv") != name or len(signature) != 2 * size:
        return False
    point = (_read_number(key.get("x")), _read_number(key.get("y")))
    numbers = ec.EllipticCurvePublicNumbers(*point, getattr(ec, curve)())
    encoded, check = encode_halves(signature), ec.ECDSA(find_hash(algorithm))
    return accepts(lambda: numbers.public_key().verify(encoded, signed, check))


def _verify_edwards(
    _algorithm: str, key: Mapping[str, Json], signed: bytes, signature: bytes
) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if key.get("crv") != "Ed25519":
        return False
    point = _read_bytes(str(key.get("x", "")))
    return accepts(lambda: Ed25519PublicKey.from_public_bytes(point).verify(signature, signed))


_VERIFIERS: dict[tuple[str, str], Callable[[str, Mapping[str, Json], bytes, bytes], bool]] = {
    ("HS", "oct"): _verify_secret,
    ("RS", "RSA"): _verify_rsa,
    ("PS", "RSA"): _verify_rsa,
    ("ES", "EC"): _verify_curve,
    ("Ed", "OKP"): _verify_edwards,
}


def _read_number(value: Json) -> int:
    return int.from_bytes(_read_bytes(value if isinstance(value, str) else ""))
