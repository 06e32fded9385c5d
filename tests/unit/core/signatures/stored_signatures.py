"""Signatures and attestations as cosign writes them into a registry, in all formats."""

from base64 import b64encode

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from signing import ENVELOPE, Layer, make_bundle

from lictor.core.raw import JsonObject
from lictor.core.signatures.records import FoundSignature, LogEntry


def _encode(data: bytes) -> str:
    return b64encode(data).decode()


def _annotate(found: FoundSignature) -> dict[str, str]:
    """What cosign writes beside a signature of the first format."""
    annotations = {
        "dev.cosignproject.cosign/signature": "" if found.payload_type else _encode(found.signature)
    }
    if found.certificate:
        annotations["dev.sigstore.cosign/certificate"] = found.certificate.decode()
        annotations["dev.sigstore.cosign/chain"] = b"".join(found.chain).decode()
    for entry in found.log_entries:
        annotations["dev.sigstore.cosign/bundle"] = orjson.dumps(_write_entry(entry)).decode()
    for stamp in found.timestamps:
        annotations["dev.sigstore.cosign/rfc3161timestamp"] = orjson.dumps(
            {"SignedRFC3161Timestamp": _encode(stamp)}
        ).decode()
    return annotations


def _write_entry(entry: LogEntry) -> JsonObject:
    return {
        "SignedEntryTimestamp": _encode(entry.signed_entry_timestamp),
        "Payload": {
            "body": _encode(entry.body),
            "integratedTime": entry.integrated_time,
            "logIndex": entry.log_index,
            "logID": entry.log_id,
        },
    }


def _write_envelope(found: FoundSignature) -> JsonObject:
    return {
        "payload": _encode(found.payload),
        "payloadType": found.payload_type,
        "signatures": [{"sig": _encode(found.signature)}],
    }


def store_signature(found: FoundSignature) -> Layer:
    return Layer(found.payload, _annotate(found))


def store_attestation(found: FoundSignature) -> Layer:
    return Layer(orjson.dumps(_write_envelope(found)), _annotate(found), ENVELOPE)


def store_bundle(found: FoundSignature, *, chained: bool = False) -> Layer:
    certificate = {"rawBytes": _encode(_x509_bytes(found.certificate))}
    material: JsonObject = {"certificate": certificate}
    if chained:
        others = [{"rawBytes": _encode(_x509_bytes(one))} for one in found.chain]
        material = {"x509CertificateChain": {"certificates": [certificate, *others]}}
    material["tlogEntries"] = [
        {
            "logIndex": str(entry.log_index),
            "logId": {"keyId": _encode(bytes.fromhex(entry.log_id))},
            "integratedTime": str(entry.integrated_time),
            "inclusionPromise": {"signedEntryTimestamp": _encode(entry.signed_entry_timestamp)},
            "inclusionProof": entry.inclusion_proof,
            "canonicalizedBody": _encode(entry.body),
        }
        for entry in found.log_entries
    ]
    stamps = [{"signedTimestamp": _encode(stamp)} for stamp in found.timestamps]
    material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
    content = (
        _write_envelope(found) if found.payload_type else {"signature": _encode(found.signature)}
    )
    return make_bundle(content, material)


def _x509_bytes(pem: bytes) -> bytes:

    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
