"""Turns Sigstore's bundles (0.1 to 0.3, JSON) into FoundSignatures.

Malformed content is a ValueError that says what is wrong; nothing is verified here.
"""

import re
from base64 import b64encode
from collections.abc import Mapping

from lictor.lang.signed_payload import (
    decode_base64,
    encode_for_signing,
    expect_list,
    expect_object,
    expect_text,
    read_envelope,
    read_json_object,
)
from lictor.raw import Json, JsonObject
from lictor.signatures.layer_formats import read_number
from lictor.signatures.records import FoundSignature, LogEntry

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle"
_KNOWN = re.compile(
    r"application/vnd\.dev\.sigstore\.bundle(\+json;version=0\.[123]|\.v0\.3(\.\d+)?\+json)"
)
_MOST_CERTIFICATES = 10
_MOST_ENTRIES = 16


def read_bundle(
    content: bytes, origin: str, message: bytes, annotations: Mapping[str, str]
) -> FoundSignature:
    """The signature in a bundle; `message` is what one without an envelope was made over."""
    bundle = read_json_object(content, "the bundle")
    kind = expect_text(bundle.get("mediaType"), "the bundle's mediaType")
    if not _KNOWN.fullmatch(kind):
        raise ValueError(f"bundles of type {kind[:100]!r} are not known: 0.1 to 0.3 are")
    material = expect_object(bundle.get("verificationMaterial"), "verificationMaterial")
    payload, payload_type, signature = _read_content(bundle, message)
    certificates = _read_certificates(material)
    return FoundSignature(
        origin=origin,
        payload=payload,
        signed=encode_for_signing(payload_type, payload) if payload_type else payload,
        signature=signature,
        certificate=certificates[0] if certificates else b"",
        chain=certificates[1:],
        log_entries=_read_log_entries(material),
        timestamps=_read_timestamps(material),
        layer_annotations=annotations,
        payload_type=payload_type,
        is_bundle=True,
    )


def _read_content(bundle: JsonObject, message: bytes) -> tuple[bytes, str, bytes]:
    """Payload, its type and the signature: of an envelope, or of the image's manifest itself."""
    if "dsseEnvelope" in bundle:
        envelope = read_envelope(expect_object(bundle["dsseEnvelope"], "dsseEnvelope"))
        if len(envelope.signatures) != 1:
            raise ValueError(f"its envelope has {len(envelope.signatures)} signatures, not one")
        if not envelope.payload_type:
            raise ValueError("its envelope has no payloadType")
        return envelope.payload, envelope.payload_type, envelope.signatures[0]
    if "messageSignature" not in bundle:
        raise ValueError("it has neither a dsseEnvelope nor a messageSignature")
    signed = expect_object(bundle["messageSignature"], "messageSignature")
    return message, "", decode_base64(signed.get("signature"), "messageSignature.signature")


def _read_certificates(material: JsonObject) -> tuple[bytes, ...]:
    if "certificate" in material:
        listed = [material["certificate"]]
    elif "x509CertificateChain" in material:
        chain = expect_object(material["x509CertificateChain"], "x509CertificateChain")
        listed = expect_list(chain.get("certificates"), "certificates", most=_MOST_CERTIFICATES)
    else:
        return ()
    return tuple(
        _write_pem(decode_base64(expect_object(one, "a certificate").get("rawBytes"), "rawBytes"))
        for one in listed
    )


def _write_pem(certificate: bytes) -> bytes:
    text = b64encode(certificate).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n".encode()


def _read_log_entries(material: JsonObject) -> tuple[LogEntry, ...]:
    entries = expect_list(material.get("tlogEntries"), "tlogEntries", most=_MOST_ENTRIES)
    return tuple(_read_log_entry(expect_object(entry, "a log entry")) for entry in entries)


def _read_log_entry(entry: JsonObject) -> LogEntry:
    log = expect_object(entry.get("logId"), "logId")
    return LogEntry(
        body=decode_base64(entry.get("canonicalizedBody"), "canonicalizedBody"),
        log_id=decode_base64(log.get("keyId"), "logId.keyId").hex(),
        log_index=read_number(entry.get("logIndex"), "logIndex"),
        integrated_time=read_number(entry.get("integratedTime"), "integratedTime"),
        signed_entry_timestamp=_read_promise(entry.get("inclusionPromise")),
        inclusion_proof=_read_proof(entry.get("inclusionProof")),
    )


def _read_promise(value: Json) -> bytes:
    if value is None:
        return b""
    promise = expect_object(value, "inclusionPromise")
    return decode_base64(promise.get("signedEntryTimestamp"), "signedEntryTimestamp")


def _read_proof(value: Json) -> Mapping[str, Json] | None:
    return None if value is None else expect_object(value, "inclusionProof")


def _read_timestamps(material: JsonObject) -> tuple[bytes, ...]:
    if (value := material.get("timestampVerificationData")) is None:
        return ()
    data = expect_object(value, "timestampVerificationData")
    stamps = expect_list(data.get("rfc3161Timestamps"), "rfc3161Timestamps", most=_MOST_ENTRIES)
    return tuple(
        decode_base64(expect_object(stamp, "a time stamp").get("signedTimestamp"), "a time stamp")
        for stamp in stamps
    )
