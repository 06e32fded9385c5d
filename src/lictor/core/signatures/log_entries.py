"""Checks that an entry of a transparency log is about a signature, and that the log signed it.

An entry alone proves nothing: it may belong to another signature.
"""

import hashlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from lictor.core.crypto.certificate_chain import load_certificate
from lictor.core.crypto.log_key import LogKey, encode_public_key, load_public_key
from lictor.core.crypto.pem import read_pem
from lictor.core.crypto.transparency_log import InclusionProof, check_inclusion, check_promise
from lictor.core.errors import SignatureRefusedError
from lictor.core.raw import Json
from lictor.core.signatures.records import FoundSignature, LogEntry

_LARGEST_BODY = 32 * 1024 * 1024
_HASHES = {"sha256": 32, "sha384": 48, "sha512": 64}
# How newer logs write the names of hashes.
_HASH_NAMES = {"SHA2_256": "sha256", "SHA2_384": "sha384", "SHA2_512": "sha512"}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that made a signature (SubjectPublicKeyInfo), and its certificate if relevant."""

    key: bytes
    certificate: bytes = b""


def check_entry(
    entry: LogEntry,
    found: FoundSignature,
    key: SigningKey,
    logs: Sequence[LogKey],
    stamped: Sequence[datetime] = (),
) -> datetime | None:
    """When the signature was logged; None if the log proves the entry, but no time.

    `stamped` are times of the signature from timestamp authorities.
    """
    log = _find_log(entry, logs)
    _check_about(entry.body, found, key)
    time = _check_promised(entry, log)
    if entry.inclusion_proof is not None and _has_checkpoint(entry.inclusion_proof):
        check_inclusion(entry.body, _read_proof(entry.inclusion_proof), log)
        _check_trusted(log, stamped)
    elif time is None:
        raise SignatureRefusedError(
            "the entry of the transparency log comes with neither a signed promise (SET) nor a "
            "proof of inclusion with a checkpoint"
        )
    return time


def _find_log(entry: LogEntry, logs: Sequence[LogKey]) -> LogKey:
    for log in logs:
        if log.identifier.hex() == entry.log_id.lower():
            return log
    raise SignatureRefusedError(
        f"the transparency log {entry.log_id[:64]!r} that holds the signature is not trusted"
    )


def _check_promised(entry: LogEntry, log: LogKey) -> datetime | None:
    """The time that the log signed. Without the log's signature, the time proves nothing."""
    if not entry.signed_entry_timestamp:
        return None
    claimed = (entry.body, entry.integrated_time, entry.log_index)
    check_promise(claimed, entry.log_id, entry.signed_entry_timestamp, log)
    try:
        time = datetime.fromtimestamp(entry.integrated_time, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise SignatureRefusedError("the transparency log has an invalid time") from error
    _check_trusted(log, (time,))
    return time


def _check_trusted(log: LogKey, times: Sequence[datetime]) -> None:
    for time in times:
        if not log.period.contains(time):
            raise SignatureRefusedError(
                f"the transparency log was not trusted at {time.isoformat()}"
            )


def _has_checkpoint(proof: Mapping[str, Json]) -> bool:
    checkpoint = proof.get("checkpoint")
    return isinstance(checkpoint, Mapping) and bool(checkpoint.get("envelope"))


def _read_proof(proof: Mapping[str, Json]) -> InclusionProof:
    try:
        return InclusionProof(
            index=int(proof.get("logIndex") or 0),
            tree_size=int(proof["treeSize"]),
            root_hash=b64decode(proof["rootHash"], validate=True),
            hashes=tuple(b64decode(text, validate=True) for text in proof.get("hashes") or ()),
            checkpoint=str(proof["checkpoint"]["envelope"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SignatureRefusedError("the proof of inclusion is not well-formed") from error


# --- what an entry is about


def _check_about(body: bytes, found: FoundSignature, key: SigningKey) -> None:
    if len(body) > _LARGEST_BODY:
        raise SignatureRefusedError("the entry of the transparency log is too large")
    try:
        entry = orjson.loads(body)
        kind, version = str(entry["kind"]), str(entry["apiVersion"])
        check = _KINDS.get((kind, version))
        if check is None:
            raise SignatureRefusedError(
                f"entries of kind {kind[:64]!r} {version[:64]!r} in logs are not supported"
            )
        check(entry["spec"], found, key)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SignatureRefusedError(
            f"the entry of the transparency log cannot be read: {error}"
        ) from error


def _check_hashed(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """hashedrekord and rekord: the hash of the signed content, the signature, the key."""
    digest = spec["data"]["hash"]
    _match_hash(digest["algorithm"], bytes.fromhex(digest["value"]), found.signed)
    _match_signature(_decode(spec["signature"]["content"]), found)
    _match_key(_decode(spec["signature"]["publicKey"]["content"]), key)


def _check_envelope(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """dsse: the hash of the payload, and pairs of signature and key."""
    digest = spec["payloadHash"]
    _match_hash(digest["algorithm"], bytes.fromhex(digest["value"]), found.payload)
    pairs = ((_decode(item["signature"]), _decode(item["verifier"])) for item in spec["signatures"])
    _match_pairs(pairs, found, key)


def _check_statement(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """intoto 0.0.1 has no signature: the payload, or the envelope, and the key must match."""
    content = spec["content"]
    if "payloadHash" in content:
        digest, covered = content["payloadHash"], found.payload
    else:
        digest, covered = content["hash"], found.envelope
        # Anyone can log the hash of nothing.
        if not covered:
            raise SignatureRefusedError(
                "the entry of the transparency log is about an envelope, and there is none"
            )
    _match_hash(digest["algorithm"], bytes.fromhex(digest["value"]), covered)
    _match_key(_decode(spec["publicKey"]), key)


def _check_statement_signed(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """intoto 0.0.2: the signatures are base64 of the envelope's base64."""
    content = spec["content"]
    digest = content["payloadHash"]
    _match_hash(digest["algorithm"], bytes.fromhex(digest["value"]), found.payload)
    pairs = (
        (_decode(_decode(item["sig"]).decode()), _decode(item["publicKey"]))
        for item in content["envelope"]["signatures"]
    )
    _match_pairs(pairs, found, key)


def _check_hashed_tiled(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """hashedrekord of tiled logs."""
    claimed = spec["hashedRekordV002"]
    digest = claimed["data"]
    _match_hash(_HASH_NAMES[digest["algorithm"]], _decode(digest["digest"]), found.signed)
    _match_signature(_decode(claimed["signature"]["content"]), found)
    _match_verifier(claimed["signature"]["verifier"], key)


def _check_envelope_tiled(spec: Json, found: FoundSignature, key: SigningKey) -> None:
    """dsse of tiled logs."""
    claimed = spec["dsseV002"]
    digest = claimed["payloadHash"]
    _match_hash(_HASH_NAMES[digest["algorithm"]], _decode(digest["digest"]), found.payload)
    for item in claimed["signatures"]:
        if _decode(item["content"]) == found.signature:
            _match_verifier(item["verifier"], key)
            return
    raise SignatureRefusedError("the entry of the transparency log is about another signature")


_KINDS = {
    ("hashedrekord", "0.0.1"): _check_hashed,
    ("rekord", "0.0.1"): _check_hashed,
    ("dsse", "0.0.1"): _check_envelope,
    ("intoto", "0.0.1"): _check_statement,
    ("intoto", "0.0.2"): _check_statement_signed,
    ("hashedrekord", "0.0.2"): _check_hashed_tiled,
    ("dsse", "0.0.2"): _check_envelope_tiled,
}


def _decode(text: str) -> bytes:
    return b64decode(text, validate=True)


def _match_hash(algorithm: str, claimed: bytes, content: bytes) -> None:
    if _HASHES.get(algorithm) != len(claimed):
        raise SignatureRefusedError(f"the log entry's hash {algorithm[:32]!r} is not supported")
    if hashlib.new(algorithm, content).digest() != claimed:
        raise SignatureRefusedError("the entry of the transparency log is about other content")


def _match_signature(claimed: bytes, found: FoundSignature) -> None:
    if claimed != found.signature:
        raise SignatureRefusedError("the entry of the transparency log is about another signature")


def _match_pairs(
    pairs: Iterator[tuple[bytes, bytes]], found: FoundSignature, key: SigningKey
) -> None:
    """One pair must have this signature and this key."""
    for signature, claimed in pairs:
        if signature == found.signature:
            _match_key(claimed, key)
            return
    raise SignatureRefusedError("the entry of the transparency log is about another signature")


def _match_verifier(verifier: Json, key: SigningKey) -> None:
    certificate = verifier.get("x509Certificate")
    if certificate:
        _match_certificate(_decode(certificate["rawBytes"]), key)
    else:
        _compare(_decode(verifier["publicKey"]["rawBytes"]), key.key)


def _match_key(claimed: bytes, key: SigningKey) -> None:
    label, data = read_pem(claimed.decode())
    if label == "CERTIFICATE":
        _match_certificate(data, key)
    else:
        _compare(encode_public_key(load_public_key(data)), key.key)


def _match_certificate(claimed: bytes, key: SigningKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if key.certificate:
        _compare(claimed, key.certificate)
    told_key = load_certificate(claimed).public_key()
    _compare(told_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), key.key)


def _compare(claimed: bytes, expected: bytes) -> None:
    if claimed != expected:
        raise SignatureRefusedError(
            "the entry of the transparency log is about another key or certificate"
        )
