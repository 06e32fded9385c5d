"""The signed content of image signatures: simple-signing payloads, DSSE envelopes, statements.

Malformed input raises ValueError; nothing is verified here.
"""

from base64 import b64decode
from collections.abc import Mapping

import msgspec
import orjson

from lictor.core.raw import Json, JsonObject

SIMPLE_SIGNING_TYPE = "cosign container image signature"
IN_TOTO = "application/vnd.in-toto+json"
# Short names of predicate types in `cosign attest --type` and policies.
_SHORT_TYPES = {
    "custom": "https://cosign.sigstore.dev/attestation/v1",
    "slsaprovenance": "https://slsa.dev/provenance/v0.2",
    "slsaprovenance02": "https://slsa.dev/provenance/v0.2",
    "slsaprovenance1": "https://slsa.dev/provenance/v1",
    "spdx": "https://spdx.dev/Document",
    "spdxjson": "https://spdx.dev/Document",
    "cyclonedx": "https://cyclonedx.org/bom",
    "link": "https://in-toto.io/Link/v1",
    "vuln": "https://cosign.sigstore.dev/attestation/vuln/v1",
    "openvex": "https://openvex.dev/ns",
}
_STATEMENTS = ("https://in-toto.io/Statement/v0.1", "https://in-toto.io/Statement/v1")
_MOST_SIGNATURES = 100
_MOST_SUBJECTS = 10_000


class SimplePayload(msgspec.Struct, frozen=True):
    """A claim about one image: its digest, and annotations."""

    digest: str
    annotations: Mapping[str, Json]


class Envelope(msgspec.Struct, frozen=True):
    """A payload with its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[bytes, ...]


class Statement(msgspec.Struct, frozen=True):
    """An in-toto statement about content, identified by digests."""

    predicate_type: str
    # `algorithm:hex` of each subject.
    digests: frozenset[str]
    # Of the subjects; cosign writes the annotations of a signature there.
    annotations: Mapping[str, Mapping[str, Json]]
    content: JsonObject


def read_json_object(data: bytes | str, what: str) -> JsonObject:
    """Parse JSON that must be an object."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{what} is not JSON: {error}") from error
    return expect_object(value, what)


def expect_object(value: Json, what: str) -> JsonObject:
    """Narrow a value that must be an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def expect_list(value: Json, what: str, *, most: int) -> list[Json]:
    """Narrow a value that must be a list of bounded length; absent is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    if len(value) > most:
        raise ValueError(f"{what} has {len(value)} entries, more than {most}")
    return value


def expect_text(value: Json, what: str) -> str:
    """Narrow a value that must be a string."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a string")
    return value


def decode_base64(value: Json, what: str) -> bytes:
    """Decode base64 of either alphabet, without line breaks."""
    text = expect_text(value, what).replace("-", "+").replace("_", "/")
    try:
        return b64decode(text.encode(), validate=True)
    except ValueError as error:
        raise ValueError(f"{what} is not base64: {error}") from error


def read_simple_payload(data: bytes) -> SimplePayload:
    """Parse what `cosign sign` signs."""
    document = read_json_object(data, "the payload")
    critical = expect_object(document.get("critical"), "critical")
    if (kind := critical.get("type")) != SIMPLE_SIGNING_TYPE:
        raise ValueError(f"critical.type is {kind!r}, not {SIMPLE_SIGNING_TYPE!r}")
    image = expect_object(critical.get("image"), "critical.image")
    digest = expect_text(image.get("docker-manifest-digest"), "docker-manifest-digest")
    optional = document.get("optional")
    annotations = {} if optional is None else expect_object(optional, "optional")
    return SimplePayload(digest=digest, annotations=annotations)


def read_envelope(document: JsonObject) -> Envelope:
    """Parse a DSSE envelope."""
    signatures = expect_list(document.get("signatures"), "signatures", most=_MOST_SIGNATURES)
    return Envelope(
        payload=decode_base64(document.get("payload"), "the envelope's payload"),
        payload_type=expect_text(document.get("payloadType"), "payloadType"),
        signatures=tuple(
            decode_base64(expect_object(entry, "a signature").get("sig"), "a signature's sig")
            for entry in signatures
        ),
    )


def expand_predicate_type(name: str) -> str:
    """The predicate type of a short name; other names are returned unchanged."""
    return _SHORT_TYPES.get(name, name)


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: type and payload, each with its length."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def read_statement(payload: bytes) -> Statement:
    """Parse an in-toto statement, version 0.1 or 1."""
    document = read_json_object(payload, "the statement")
    if (kind := document.get("_type")) not in _STATEMENTS:
        raise ValueError(f"_type is {kind!r}, not one of {', '.join(_STATEMENTS)}")
    subjects = expect_list(document.get("subject"), "subject", most=_MOST_SUBJECTS)
    digests, annotations = set[str](), dict[str, Mapping[str, Json]]()
    for entry in subjects:
        subject = expect_object(entry, "a subject")
        noted = subject.get("annotations")
        for algorithm, value in expect_object(subject.get("digest"), "a subject's digest").items():
            digest = f"{algorithm}:{expect_text(value, 'a digest')}"
            digests.add(digest)
            annotations[digest] = {} if noted is None else expect_object(noted, "annotations")
    return Statement(
        predicate_type=expect_text(document.get("predicateType"), "predicateType"),
        digests=frozenset(digests),
        annotations=annotations,
        content=document,
    )
