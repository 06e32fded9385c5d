"""Signed messages of JOSE (JWS, flattened JSON) and COSE (Sign1), parsed to one form.

Nothing is verified here: callers check the signature before trusting a header.
"""

import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from lictor.core.raw import Json

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_SIGN1 = 18
_EPOCH_TIME = 1
_DEEPEST = 8
_MOST_CERTIFICATES = 10
# COSE has numbers for the names of JOSE.
_LABELS = {1: "alg", 2: "crit", 3: "cty", 4: "kid", 33: "x5c"}
_ALGORITHMS = {
    -7: "ES256",
    -35: "ES384",
    -36: "ES512",
    -37: "PS256",
    -38: "PS384",
    -39: "PS512",
}
# Tags that a CBOR decoder would turn into complex values (regular expressions, shared and cyclic
# values, numbers of any size): a signed message does not need them.
_REFUSED_TAGS = (0, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000)


class SignedMessage(msgspec.Struct, frozen=True):
    """A payload, its headers and the signature; headers have JOSE's names in both formats."""

    payload: bytes
    # The signed bytes.
    signed: bytes
    signature: bytes
    # Covered by the signature.
    protected: Mapping[str, Json]
    unprotected: Mapping[str, Json]
    # DER, the signer's first.
    certificates: tuple[bytes, ...]

    @property
    def algorithm(self) -> str:
        """Its name in JOSE; only a protected one counts. Empty if there is none."""
        name = self.protected.get("alg")
        return name if isinstance(name, str) else ""


def read_jws(content: bytes) -> SignedMessage:
    """Parse a JWS in flattened JSON serialization; raises ValueError if it is invalid."""
    envelope = read_json_object(content)
    if "signatures" in envelope:
        raise ValueError("a JWS with several signatures")
    protected, payload = _read_text(envelope, "protected"), _read_text(envelope, "payload")
    unprotected = envelope.get("header", {})
    if not isinstance(unprotected, dict):
        raise ValueError("header is not an object")
    return _assemble(
        protected=read_json_object(_decode_url(protected)),
        unprotected=unprotected,
        payload=_decode_url(payload),
        signed=f"{protected}.{payload}".encode(),
        signature=_decode_url(_read_text(envelope, "signature")),
        read_certificate=_decode_certificate,
    )


def read_cose(content: bytes) -> SignedMessage:
    """Parse a tagged COSE_Sign1 with its payload; raises ValueError if it is invalid."""
    import cbor2

    message = _decode_cbor(content)
    if not isinstance(message, cbor2.CBORTag) or message.tag != _SIGN1:
        raise ValueError("no COSE_Sign1")
    parts = message.value
    if not isinstance(parts, list | tuple) or len(parts) != 4:
        raise ValueError("a COSE_Sign1 has four parts")
    protected, unprotected, payload, signature = parts
    if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
        raise ValueError("headers, payload and signature of a COSE_Sign1 must be bytes")
    return _assemble(
        protected=_name_labels(_decode_cbor(protected)),
        unprotected=_name_labels(unprotected),
        payload=payload,
        signed=cbor2.dumps(["Signature1", protected, b"", payload]),
        signature=signature,
        read_certificate=_expect_bytes,
    )


def _assemble(
    *,
    protected: dict[str, Json],
    unprotected: dict[str, Json],
    payload: bytes,
    signed: bytes,
    signature: bytes,
    read_certificate: Callable[[Json], bytes],
) -> SignedMessage:
    if twice := protected.keys() & unprotected.keys():
        raise ValueError(f"header {sorted(twice)[0]} is both protected and not")
    found = protected.get("x5c", unprotected.get("x5c", []))
    # COSE writes a single certificate without a list.
    listed = found if isinstance(found, list | tuple) else [found]
    if len(listed) > _MOST_CERTIFICATES:
        raise ValueError(f"more than {_MOST_CERTIFICATES} certificates")
    return SignedMessage(
        payload=payload,
        signed=signed,
        signature=signature,
        protected=protected,
        unprotected=unprotected,
        certificates=tuple(read_certificate(certificate) for certificate in listed),
    )


# --- JSON


def read_json_object(content: bytes) -> dict[str, Json]:
    """Parse a JSON object; raises ValueError for any other text."""
    value = orjson.loads(content)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _read_text(envelope: Mapping[str, Json], name: str) -> str:
    value = envelope.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing or not a string")
    return value


def _decode_url(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text):
        raise ValueError("not in base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _decode_certificate(value: Json) -> bytes:
    if not isinstance(value, str):
        raise ValueError("x5c must contain only strings")
    return b64decode(value, validate=True)


# --- CBOR


def _decode_cbor(content: bytes) -> Any:
    import cbor2

    try:
        return cbor2.loads(
            content,
            semantic_decoders={tag: _refuse_tag for tag in _REFUSED_TAGS}
            | {_EPOCH_TIME: _read_time},
            max_depth=_DEEPEST,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
    except (cbor2.CBORError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not in CBOR: {error}") from error


def _refuse_tag(_value: Any, _immutable: bool) -> None:  # noqa: FBT001  # the library's way
    raise ValueError("a tag that is not allowed in a signed message")


def _read_time(seconds: Any, _immutable: bool) -> datetime:  # noqa: FBT001  # the library's way
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise ValueError("a time that is no number of seconds")
    return datetime.fromtimestamp(seconds, UTC)


def _name_labels(headers: Any) -> dict[str, Json]:
    # Inside a tag the library creates immutable maps, of another type.
    if not isinstance(headers, Mapping):
        raise ValueError("headers must be a map")
    named = {_name_label(label): value for label, value in headers.items()}
    if len(named) != len(headers):
        raise ValueError("duplicate header")
    if "alg" in named:
        algorithm = named["alg"]
        known = isinstance(algorithm, int) and not isinstance(algorithm, bool)
        named["alg"] = _ALGORITHMS.get(algorithm, str(algorithm)) if known else None
    if isinstance(named.get("crit"), list | tuple):
        named["crit"] = [_name_label(label) for label in named["crit"]]
    return named


def _name_label(label: Any) -> str:
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise ValueError("a header's label is neither number nor text")
    return _LABELS.get(label, str(label)) if isinstance(label, int) else label


def _expect_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("x5chain must contain only bytes")
    return value
