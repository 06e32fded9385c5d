"""Builtins over JSON Web Tokens: decode, verify, sign."""

import hmac
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from typing import Any

import msgspec

from lictor.core.crypto.json_web_token import ALGORITHMS, HASHES, encode_url_safe
from lictor.core.crypto.signature import accepts, encode_halves, find_hash
from lictor.core.errors import FunctionError
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.rego.operands import (
    BuiltinRun,
    Function,
    Functions,
    take_number,
    take_object,
    take_text,
)
from lictor.core.lang.rego.values import RegoValue, from_json, to_json

_CURVES = {"P-256": "SECP256R1", "P-384": "SECP384R1", "P-521": "SECP521R1"}
_MOST_NESTED = 8
# The key size limit of OpenSSL: more would only take time.
_LARGEST_NUMBER = 2048


class _Token(msgspec.Struct, frozen=True):
    """The three encoded parts."""

    header: str
    payload: str
    signature: str

    @property
    def signed(self) -> bytes:
        return f"{self.header}.{self.payload}".encode()

    def read_header(self) -> dict[str, RegoValue]:
        header = _read_object(_decode(self.header))
        if "enc" in header:
            raise FunctionError("JWT is a JWE object, which is not supported")
        return header


class _Key(msgspec.Struct, frozen=True):
    """A signing key, and its attributes in a key set."""

    value: Any
    algorithm: str = ""
    name: str = ""


def _split(value: RegoValue) -> _Token:
    parts = take_text(value).split(".")
    if len(parts) != 3:
        raise FunctionError("encoded JWT must have 3 sections")
    return _Token(*parts)


def _decode(text: str) -> bytes:
    try:
        padded = text if text.endswith("=") else text + "=" * (-len(text) % 4)
        if not text.isascii() or "+" in text or "/" in text:
            raise FunctionError("illegal base64url string")
        return urlsafe_b64decode(padded)
    except (Base64Error, ValueError) as error:
        raise FunctionError(f"illegal base64url string: {error}") from error


def _read_object(content: bytes) -> dict[str, RegoValue]:
    try:
        value = from_json(content.decode(errors="replace"))
    except ValueError as error:
        raise FunctionError(f"invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise FunctionError("decoded JSON type was not an Object")
    return value


def _decode_token(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    value = arguments[0]
    for _ in range(_MOST_NESTED):
        token = _split(value)
        header, payload = token.read_header(), _decode(token.payload)
        if header.get("cty") != "JWT":
            return [header, _read_object(payload), _decode(token.signature).hex()]
        # A nested token is in quotes.
        value = payload.decode(errors="replace").strip("\"'")
    raise FunctionError("there are too many tokens inside of a token")


def _read_keys(text: str) -> list[_Key]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    from lictor.core.crypto.certificate_chain import load_certificate
    from lictor.core.crypto.pem import list_pem_blocks

    if "-----BEGIN" not in text:
        return _read_key_set(text)
    try:
        blocks = list_pem_blocks(text)
        if len(blocks) != 1 or text.rstrip("\n").rpartition("-----END")[2].count("\n"):
            raise FunctionError("extra data after a PEM certificate block")
        label, data = blocks[0]
        if label == "CERTIFICATE":
            return [_Key(load_certificate(data).public_key())]
        if label == "PUBLIC KEY":
            return [_Key(load_der_public_key(data))]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FunctionError(f"failed to parse a PEM key: {error}") from error
    raise FunctionError("failed to extract a Key from the PEM certificate")


def _read_key_set(text: str) -> list[_Key]:
    given = _read_object(text.encode())
    listed = given.get("keys", [given])
    if not isinstance(listed, list):
        raise FunctionError("failed to parse a JWK key (set)")
    keys: list[_Key] = []
    for each in listed:
        fields = take_object(each)
        algorithm = take_text(fields.get("alg", ""))
        if not algorithm or algorithm in ALGORITHMS:
            keys.append(_Key(_read_jwk(fields), algorithm, take_text(fields.get("kid", ""))))
    return keys


def _number(fields: dict[str, RegoValue], name: str) -> int:
    content = _decode(take_text(fields.get(name)))
    if len(content) > _LARGEST_NUMBER:
        raise FunctionError("the numbers of a key are too large")
    return int.from_bytes(content)


def _read_jwk(fields: dict[str, RegoValue]) -> Any:
    """The public key of a JSON Web Key; bytes for a shared secret."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        match fields.get("kty"):
            case "RSA":
                numbers = rsa.RSAPublicNumbers(_number(fields, "e"), _number(fields, "n"))
                return numbers.public_key()
            case "EC":
                curve = getattr(ec, _CURVES[take_text(fields.get("crv"))])()
                point = (_number(fields, "x"), _number(fields, "y"))
                return ec.EllipticCurvePublicNumbers(*point, curve).public_key()
            case "OKP":
                return Ed25519PublicKey.from_public_bytes(_decode(take_text(fields.get("x"))))
            case "oct":
                return _decode(take_text(fields.get("k")))
    except (ValueError, KeyError) as error:
        raise FunctionError(f"failed to parse a JWK key: {error}") from error
    raise FunctionError("failed to parse a JWK key: unknown kty")


def _is_signed(algorithm: str, key: Any, token: _Token, signature: bytes) -> bool:
    """Whether this key signed the token with this algorithm; False for other types of keys."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signed = token.signed
    if algorithm not in ALGORITHMS:
        return False
    if algorithm.startswith("HS"):
        return isinstance(key, bytes) and _has_mac(algorithm, key, token, signature)
    if isinstance(key, rsa.RSAPublicKey) and algorithm[:2] in ("RS", "PS"):
        scheme = _padding(algorithm)
        return accepts(lambda: key.verify(signature, signed, scheme, find_hash(algorithm)))
    if isinstance(key, ec.EllipticCurvePublicKey) and algorithm.startswith("ES"):
        check = ec.ECDSA(find_hash(algorithm))
        return accepts(lambda: key.verify(encode_halves(signature), signed, check))
    if isinstance(key, Ed25519PublicKey) and algorithm == "EdDSA":
        return accepts(lambda: key.verify(signature, signed))
    return False


def _has_mac(algorithm: str, secret: bytes, token: _Token, signature: bytes) -> bool:
    made = hmac.digest(secret, token.signed, HASHES[algorithm[2:]])
    return hmac.compare_digest(made, signature)


def _padding(algorithm: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import padding

    if algorithm.startswith("RS"):
        return padding.PKCS1v15()
    return padding.PSS(padding.MGF1(find_hash(algorithm)), padding.PSS.AUTO)


def _verify_any(
    algorithm: str, header: dict[str, RegoValue], keys: list[_Key], token: _Token
) -> bool:
    """Only the key that the token names, if it names one; otherwise all candidates."""
    signature = _decode(token.signature)
    name = take_text(header.get("kid", ""))
    named = next((key for key in keys if name and key.name == name), None)
    if named is not None:
        return _is_signed(algorithm, named.value, token, signature)
    wanted = take_text(header.get("alg", ""))
    return any(
        _is_signed(algorithm, key.value, token, signature)
        for key in keys
        if key.algorithm in ("", wanted)
    )


def _make_verifier(algorithm: str) -> Function:
    def verify(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
        token, keys = _split(arguments[0]), _read_keys(take_text(arguments[1]))
        header = token.read_header()
        return _verify_any(algorithm, header, keys, token)

    return verify


def _make_secret_verifier(algorithm: str) -> Function:
    def verify(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
        token, secret = _split(arguments[0]), take_text(arguments[1]).encode()
        return _has_mac(algorithm, secret, token, _decode(token.signature))

    return verify


class _Constraints(msgspec.Struct, frozen=True):
    """The required properties of a token."""

    keys: list[_Key]
    algorithm: str
    issuer: str
    audience: str
    seconds: float


def _read_constraints(run: BuiltinRun, given: dict[str, RegoValue]) -> _Constraints:
    unknown = set(given) - {"cert", "secret", "alg", "iss", "aud", "time"}
    if unknown:
        raise FunctionError(f"unknown token validation constraint: {min(unknown)}")
    secret = take_text(given.get("secret", ""))
    if bool(secret) == ("cert" in given):
        raise FunctionError("there must be a certificate or a secret, and not both")
    moment = take_number(given.get("time", run.now))
    if moment < 0:
        raise FunctionError("token time constraint: must not be negative")
    keys = [_Key(secret.encode())] if secret else _read_keys(take_text(given["cert"]))
    algorithm, issuer, audience = (take_text(given.get(name, "")) for name in ("alg", "iss", "aud"))
    return _Constraints(keys, algorithm, issuer, audience, float(moment) / 1_000_000_000)


def _decode_verify(run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    """Whether the token is signed and meets the constraints, its header and its payload."""
    constraints = _read_constraints(run, take_object(arguments[1]))
    refused: list[RegoValue] = [False, {}, {}]
    value = arguments[0]
    for _ in range(_MOST_NESTED):
        token = _split(value)
        header = token.read_header()
        if not _is_header_valid(header):
            return refused
        algorithm = take_text(header.get("alg"))
        if constraints.algorithm not in ("", algorithm):
            return refused
        if not _verify_any(algorithm, header, constraints.keys, token):
            return refused
        payload = _decode(token.payload)
        if take_text(header.get("cty", "")).upper() == "JWT":
            value = payload.decode(errors="replace")
            continue
        claims = _read_object(payload)
        return [True, header, claims] if _fulfils(claims, constraints) else refused
    raise FunctionError("there are too many tokens inside of a token")


def _is_header_valid(header: dict[str, RegoValue]) -> bool:
    for name in ("alg", "kid", "typ", "cty"):
        take_text(header.get(name, ""))
    critical = header.get("crit", [])
    if not isinstance(critical, list) or ("crit" in header and not critical):
        raise FunctionError("crit: must be a nonempty list")
    known = {"alg", "kid", "typ", "cty", "crit"}
    return bool(header.get("alg")) and not any(
        name in header and name not in known for name in critical if isinstance(name, str)
    )


def _fulfils(claims: dict[str, RegoValue], constraints: _Constraints) -> bool:
    if constraints.issuer and claims.get("iss") != constraints.issuer:
        return False
    if "aud" in claims:
        audience = claims["aud"]
        listed = audience if isinstance(audience, list) else [audience]
        if constraints.audience not in [each for each in listed if isinstance(each, str)]:
            return False
    elif constraints.audience:
        return False
    if "exp" in claims and constraints.seconds >= take_number(claims["exp"]):
        return False
    return "nbf" not in claims or constraints.seconds >= take_number(claims["nbf"])


def _sign_values(run: BuiltinRun, arguments: list[RegoValue]) -> str:
    texts: list[RegoValue] = [dump_go_json(to_json(each)) for each in arguments]
    return _sign(run, texts)


def _sign(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    header, payload, key = (take_text(each) for each in arguments)
    fields = _read_object(header.encode())
    algorithm = take_text(fields.get("alg"))
    if algorithm not in ALGORITHMS:
        raise FunctionError(f"unknown JWS algorithm: {algorithm}")
    if fields.get("typ", "JWT") == "JWT":
        try:
            from_json(payload)
        except ValueError as error:
            raise FunctionError("type is JWT but payload is not JSON") from error
    token = _Token(encode_url_safe(header.encode()), encode_url_safe(payload.encode()), "")
    given = _read_object(key.encode())
    listed = given.get("keys", [given])
    if not isinstance(listed, list) or not listed:
        raise FunctionError("no keys found in JWK set")
    signature = _make_signature(algorithm, take_object(listed[0]), token.signed)
    return f"{token.signed.decode()}.{encode_url_safe(signature)}"


def _make_signature(algorithm: str, fields: dict[str, RegoValue], signed: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    kind = fields.get("kty")
    try:
        if algorithm.startswith("HS") and kind == "oct":
            secret = _decode(take_text(fields.get("k")))
            return hmac.digest(secret, signed, HASHES[algorithm[2:]])
        if algorithm == "EdDSA" and kind == "OKP":
            seed = _decode(take_text(fields.get("d")))
            return Ed25519PrivateKey.from_private_bytes(seed).sign(signed)
        if algorithm.startswith("ES") and kind == "EC":
            public = _read_jwk(fields)
            private = ec.derive_private_key(_number(fields, "d"), public.curve)
            halves = decode_dss_signature(private.sign(signed, ec.ECDSA(find_hash(algorithm))))
            size = (public.curve.key_size + 7) // 8
            return b"".join([half.to_bytes(size) for half in halves])
        if algorithm[:2] in ("RS", "PS") and kind == "RSA":
            scheme = _padding(algorithm)
            if algorithm.startswith("PS"):
                scheme = padding.PSS(padding.MGF1(find_hash(algorithm)), padding.PSS.DIGEST_LENGTH)
            made: bytes = _read_rsa(fields).sign(signed, scheme, find_hash(algorithm))
            return made
    except (ValueError, KeyError) as error:
        raise FunctionError(f"the key cannot sign: {error}") from error
    raise FunctionError("the type of the key does not match the algorithm")


def _read_rsa(fields: dict[str, RegoValue]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    public = rsa.RSAPublicNumbers(_number(fields, "e"), _number(fields, "n"))
    private = _number(fields, "d")
    if "p" in fields and "q" in fields:
        first, second = _number(fields, "p"), _number(fields, "q")
    else:
        first, second = rsa.rsa_recover_prime_factors(public.n, public.e, private)
    return rsa.RSAPrivateNumbers(
        first, second, private, rsa.rsa_crt_dmp1(private, first),
        rsa.rsa_crt_dmq1(private, second), rsa.rsa_crt_iqmp(first, second), public,
    ).private_key()  # fmt: skip


TOKEN_BUILTINS: Functions = {
    "io.jwt.decode": _decode_token,
    "io.jwt.decode_verify": _decode_verify,
    "io.jwt.encode_sign": _sign_values,
    "io.jwt.encode_sign_raw": _sign,
    "io.jwt.verify_eddsa": _make_verifier("EdDSA"),
    **{
        f"io.jwt.verify_{family}{size}": _make_verifier(f"{family.upper()}{size}")
        for family in ("rs", "ps", "es")
        for size in HASHES
    },
    **{f"io.jwt.verify_hs{size}": _make_secret_verifier(f"HS{size}") for size in HASHES},
}
