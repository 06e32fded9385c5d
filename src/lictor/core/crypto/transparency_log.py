"""Does a transparency log hold an entry or a certificate? By its promise, or by a proof."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from hashlib import sha256
from typing import TYPE_CHECKING

from lictor.core.crypto.certificate_chain import find_extension
from lictor.core.crypto.log_key import LogKey, is_signed_by
from lictor.core.errors import SignatureRefusedError

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509.certificate_transparency import SignedCertificateTimestamp

# A tree of this many levels holds more entries than will ever be made.
_MOST_HASHES = 64
_LARGEST_CHECKPOINT = 16 * 1024
_MOST_CHECKPOINT_SIGNATURES = 16
# The key's hint before each signature of a checkpoint.
_HINT = 4


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """The way from an entry to the root of a tree, and the log's signature of that root."""

    index: int
    tree_size: int
    root_hash: bytes
    hashes: tuple[bytes, ...]
    checkpoint: str


def check_promise(
    entry: tuple[bytes, int, int], log_identifier: str, signature: bytes, log: LogKey
) -> None:
    """Check a signed entry timestamp. `entry`: body, time in seconds, index in the log."""
    body, time, index = entry
    message = json.dumps(
        {
            "body": b64encode(body).decode(),
            "integratedTime": time,
            "logID": log_identifier,
            "logIndex": index,
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()
    if not is_signed_by(log.key, signature, message):
        raise SignatureRefusedError(
            "the signature of the transparency log on its entry (SET) is not right"
        )


def check_inclusion(body: bytes, proof: InclusionProof, log: LogKey) -> None:
    """Check that the entry is in the tree, and that the log signed this very tree."""
    if _compute_root(sha256(b"\x00" + body).digest(), proof) != proof.root_hash:
        raise SignatureRefusedError("the proof of inclusion does not lead to the log's tree")
    size, root = _read_checkpoint(proof.checkpoint, log)
    if (size, root) != (proof.tree_size, proof.root_hash):
        raise SignatureRefusedError("the checkpoint is of another tree than the proof of inclusion")


def _compute_root(leaf: bytes, proof: InclusionProof) -> bytes:
    """Climb to the root, as RFC 9162, section 2.1.3.2, has it."""
    position, last = proof.index, proof.tree_size - 1
    if not 0 <= position <= last or len(proof.hashes) > _MOST_HASHES:
        raise SignatureRefusedError("the proof of inclusion is not well-formed")
    current = leaf
    for sibling in proof.hashes:
        if last == 0:
            raise SignatureRefusedError("the proof of inclusion is too long")
        if position & 1 or position == last:
            current = sha256(b"\x01" + sibling + current).digest()
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            current = sha256(b"\x01" + current + sibling).digest()
        position, last = position >> 1, last >> 1
    if last:
        raise SignatureRefusedError("the proof of inclusion is too short")
    return current


def _read_checkpoint(note: str, log: LogKey) -> tuple[int, bytes]:
    """The size and the root of a tree, from a note that the log signed."""
    text, separator, signatures = note.rpartition("\n\n")
    lines = text.split("\n")
    if not separator or len(lines) < 3 or len(note) > _LARGEST_CHECKPOINT:
        raise SignatureRefusedError("the checkpoint of the transparency log is not well-formed")
    signed = f"{text}\n".encode()
    blocks = [_read_note_signature(line) for line in signatures.split("\n") if line]
    if not any(
        is_signed_by(log.key, block, signed) for block in blocks[:_MOST_CHECKPOINT_SIGNATURES]
    ):
        raise SignatureRefusedError("the checkpoint is not signed by the transparency log")
    try:
        return int(lines[1]), b64decode(lines[2], validate=True)
    except ValueError as error:
        raise SignatureRefusedError("the checkpoint is not well-formed") from error


def _read_note_signature(line: str) -> bytes:
    """The signature in a line `— NAME BASE64`; empty where there is none."""
    words = line.split(" ")
    if len(words) != 3 or words[0] != "—":
        return b""
    try:
        return b64decode(words[2], validate=True)[_HINT:]
    except ValueError:
        return b""


# --- certificates: the signed timestamps within one prove that it was logged

_MOST_TIMESTAMPS = 16


def check_logged_certificate(
    certificate: "x509.Certificate", issuer: "x509.Certificate", logs: Sequence[LogKey]
) -> None:
    """SignatureRefusedError unless one of the logs promised to hold the certificate."""
    from cryptography import x509

    found = find_extension(certificate, x509.PrecertificateSignedCertificateTimestamps)
    stamps = list(found)[:_MOST_TIMESTAMPS] if found is not None else []
    if not stamps:
        raise SignatureRefusedError(
            "the certificate holds no certificate timestamp (SCT): no log knows that it was issued"
        )
    if not any(_is_promised(stamp, certificate, issuer, logs) for stamp in stamps):
        raise SignatureRefusedError(
            "no certificate timestamp (SCT) in the certificate is by a trusted certificate log"
        )


def _is_promised(
    stamp: "SignedCertificateTimestamp",
    certificate: "x509.Certificate",
    issuer: "x509.Certificate",
    logs: Sequence[LogKey],
) -> bool:
    time = stamp.timestamp.replace(tzinfo=UTC)
    message = _write_signed(stamp, certificate, issuer)
    return any(
        log.identifier == stamp.log_id
        and log.period.contains(time)
        and is_signed_by(log.key, stamp.signature, message)
        for log in logs
    )


def _write_signed(
    stamp: "SignedCertificateTimestamp",
    certificate: "x509.Certificate",
    issuer: "x509.Certificate",
) -> bytes:
    """What a log signs: the certificate as it was before the timestamp came into it (RFC 6962)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = issuer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    before = certificate.tbs_precertificate_bytes
    milliseconds = _count_milliseconds(stamp)
    return b"".join(
        (
            b"\x00\x00",  # version 1, a certificate timestamp
            milliseconds.to_bytes(8, "big"),
            b"\x00\x01",  # about a precertificate
            sha256(key).digest(),
            len(before).to_bytes(3, "big"),
            before,
            len(stamp.extension_bytes).to_bytes(2, "big"),
            stamp.extension_bytes,
        )
    )


def _count_milliseconds(stamp: "SignedCertificateTimestamp") -> int:
    # The library returns a time in UTC without a time zone; rounding it would change the timestamp.
    time = stamp.timestamp.replace(tzinfo=UTC)
    return int(time.replace(microsecond=0).timestamp()) * 1000 + time.microsecond // 1000
