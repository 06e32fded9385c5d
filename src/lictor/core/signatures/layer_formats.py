"""Converts what cosign stores with an image (layers and annotations) to FoundSignatures.

Malformed content raises ValueError; nothing is verified here.
"""

import re
from base64 import b64encode
from collections.abc import Mapping

import msgspec

from lictor.core.lang.signed_payload import (
    decode_base64,
    encode_for_signing,
    expect_list,
    expect_object,
    expect_text,
    read_envelope,
    read_json_object,
)
from lictor.core.ports import Descriptor
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import FoundSignature, LogEntry

_SIGNATURE = "dev.cosignproject.cosign/signature"
_CERTIFICATE = "dev.sigstore.cosign/certificate"
_CHAIN = "dev.sigstore.cosign/chain"
_LOGGED = "dev.sigstore.cosign/bundle"
_TIME_STAMP = "dev.sigstore.cosign/rfc3161timestamp"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MOST_LAYERS = 1000
_MOST_CERTIFICATES = 10
_CERTIFICATE_BEGIN, _CERTIFICATE_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class ReadManifest(msgspec.Struct, frozen=True):
    """The relevant parts of a manifest: its annotations, and its layers with theirs."""

    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str]


def read_manifest(content: bytes) -> ReadManifest:
    """Parse the manifest of a signature or attestation."""
    document = read_json_object(content, "the manifest")
    if "layers" not in document:
        raise ValueError("the manifest has no layers")
    layers = expect_list(document["layers"], "layers", most=_MOST_LAYERS)
    return ReadManifest(
        layers=tuple(_read_descriptor(layer) for layer in layers),
        annotations=_read_annotations(document.get("annotations")),
    )


def _read_descriptor(value: Json) -> Descriptor:
    layer = expect_object(value, "a layer")
    digest = expect_text(layer.get("digest"), "a layer's digest")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"a layer's digest is {digest[:100]!r}")
    return Descriptor(
        media_type=expect_text(layer.get("mediaType"), "a layer's mediaType"),
        digest=digest,
        size=read_number(layer.get("size"), "a layer's size"),
        annotations=_read_annotations(layer.get("annotations")),
    )


def _read_annotations(value: Json) -> Mapping[str, str]:
    annotations = {} if value is None else expect_object(value, "annotations")
    return {key: expect_text(text, f"annotation {key}") for key, text in annotations.items()}


def read_signature_layer(layer: Descriptor, content: bytes, origin: str) -> FoundSignature:
    """A simple-signing payload, whose signature is in an annotation."""
    if _SIGNATURE not in layer.annotations:
        raise ValueError(f'signature layer {layer.digest} is missing "{_SIGNATURE}" annotation')
    return FoundSignature(
        origin=origin,
        payload=content,
        signed=content,
        signature=decode_base64(layer.annotations[_SIGNATURE], f"annotation {_SIGNATURE}"),
        certificate=layer.annotations.get(_CERTIFICATE, "").encode(),
        chain=split_certificates(layer.annotations.get(_CHAIN, "")),
        log_entries=_read_logged(layer.annotations),
        timestamps=_read_timestamps(layer.annotations),
        layer_annotations=layer.annotations,
    )


def read_attestation_layer(
    layer: Descriptor, content: bytes, origin: str
) -> tuple[FoundSignature, ...]:
    """A DSSE envelope; each of its signatures is separate."""
    envelope = read_envelope(read_json_object(content, "the envelope"))
    if not envelope.signatures:
        raise ValueError("the envelope has no signatures")
    return tuple(
        FoundSignature(
            origin=origin if len(envelope.signatures) == 1 else f"{origin}.{number}",
            payload=envelope.payload,
            signed=encode_for_signing(envelope.payload_type, envelope.payload),
            signature=signature,
            certificate=layer.annotations.get(_CERTIFICATE, "").encode(),
            chain=split_certificates(layer.annotations.get(_CHAIN, "")),
            log_entries=_read_logged(layer.annotations),
            timestamps=_read_timestamps(layer.annotations),
            layer_annotations=layer.annotations,
            payload_type=envelope.payload_type,
            envelope=content,
        )
        for number, signature in enumerate(envelope.signatures)
    )


def split_certificates(text: str) -> tuple[bytes, ...]:
    """The PEM blocks of a chain, one by one."""
    parts = text.split(_CERTIFICATE_BEGIN)[1:]
    if len(parts) > _MOST_CERTIFICATES:
        raise ValueError(f"a chain of {len(parts)} certificates, more than {_MOST_CERTIFICATES}")
    bodies = (part.partition(_CERTIFICATE_END)[0] for part in parts)
    return tuple(f"{_CERTIFICATE_BEGIN}{body}{_CERTIFICATE_END}\n".encode() for body in bodies)


def _read_logged(annotations: Mapping[str, str]) -> tuple[LogEntry, ...]:
    if not (text := annotations.get(_LOGGED)):
        return ()
    document = read_json_object(text, f"annotation {_LOGGED}")
    payload = expect_object(document.get("Payload"), "the log entry's Payload")
    return (
        LogEntry(
            body=decode_base64(payload.get("body"), "the log entry's body"),
            log_id=expect_text(payload.get("logID"), "logID").lower(),
            log_index=read_number(payload.get("logIndex"), "logIndex"),
            integrated_time=read_number(payload.get("integratedTime"), "integratedTime"),
            signed_entry_timestamp=decode_base64(
                document.get("SignedEntryTimestamp"), "SignedEntryTimestamp"
            ),
        ),
    )


def _read_timestamps(annotations: Mapping[str, str]) -> tuple[bytes, ...]:
    if not (text := annotations.get(_TIME_STAMP)):
        return ()
    document = read_json_object(text, f"annotation {_TIME_STAMP}")
    return (decode_base64(document.get("SignedRFC3161Timestamp"), "SignedRFC3161Timestamp"),)


def read_number(value: Json, what: str) -> int:
    """An integer, which the JSON of protocol buffers writes as a text; absent is 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        return int(value)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} is not an integer")
    return value


# --- turns Sigstore's bundles (0.1 to 0.3, JSON) into FoundSignatures


BUNDLE = "application/vnd.dev.sigstore.bundle"
_KNOWN = re.compile(
    r"application/vnd\.dev\.sigstore\.bundle(\+json;version=0\.[123]|\.v0\.3(\.\d+)?\+json)"
)
_MOST_ENTRIES = 16


def read_bundle(
    content: bytes, origin: str, message: bytes, annotations: Mapping[str, str]
) -> FoundSignature:
    """The signature in a bundle; `message` is the signed content of one without an envelope."""
    bundle = read_json_object(content, "the bundle")
    kind = expect_text(bundle.get("mediaType"), "the bundle's mediaType")
    if not _KNOWN.fullmatch(kind):
        raise ValueError(f"bundles of type {kind[:100]!r} are not supported: 0.1 to 0.3 are")
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
        timestamps=_read_bundle_timestamps(material),
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


def _read_bundle_timestamps(material: JsonObject) -> tuple[bytes, ...]:
    if (value := material.get("timestampVerificationData")) is None:
        return ()
    data = expect_object(value, "timestampVerificationData")
    stamps = expect_list(data.get("rfc3161Timestamps"), "rfc3161Timestamps", most=_MOST_ENTRIES)
    return tuple(
        decode_base64(expect_object(stamp, "a time stamp").get("signedTimestamp"), "a time stamp")
        for stamp in stamps
    )
