"""Turns what cosign stores beside an image (layers and their annotations) into FoundSignatures.

Malformed content is a ValueError that says what is wrong; nothing is verified here.
"""

import re
from collections.abc import Mapping

import msgspec

from lictor.lang.signed_payload import (
    decode_base64,
    encode_for_signing,
    expect_list,
    expect_object,
    expect_text,
    read_envelope,
    read_json_object,
)
from lictor.ports import Descriptor
from lictor.raw import Json
from lictor.signatures.records import FoundSignature, LogEntry

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
    """What of a manifest counts here: its own annotations, and its layers with theirs."""

    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str]


def read_manifest(content: bytes) -> ReadManifest:
    """Read the manifest of what lies beside an image."""
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
    """A DSSE envelope; each of its signatures stands for itself."""
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
    """A whole number, which the JSON of protocol buffers writes as a text; absent is 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        return int(value)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} is no whole number")
    return value
