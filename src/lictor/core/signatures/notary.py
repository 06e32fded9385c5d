"""Finds and verifies signatures and attestations of the Notary Project (notation).

The rules are those of notation's level "strict" with a trust store of type "ca".
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lictor.core.crypto.certificate_chain import name_certificate
from lictor.core.crypto.code_signing import (
    check_chain,
    check_code_signature,
    check_revocation,
    check_validity,
    read_chain,
    read_trusted,
)
from lictor.core.crypto.timestamp import TimestampAuthority, check_timestamp, wrap_token
from lictor.core.errors import CorruptContentError, ImageNotFoundError, SignatureRefusedError
from lictor.core.lang.signed_message import SignedMessage, read_cose, read_json_object, read_jws
from lictor.core.ports import ImageManifest, Registries
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import (
    FoundEnvelope,
    SignatureLocation,
    SignedImage,
    Signer,
    TrustedNotary,
    VerifiedSignature,
    VerifiedStatement,
)
from lictor.core.signatures.verification import check_annotations

if TYPE_CHECKING:
    from cryptography import x509

ARTIFACT_TYPE = "application/vnd.cncf.notary.signature"
_PAYLOAD_TYPE = "application/vnd.cncf.notary.payload.v1+json"
_READERS = {"application/jose+json": read_jws, "application/cose": read_cose}
_PREFIX = "io.cncf.notary."
_SCHEME, _SIGNING_TIME, _EXPIRY = (
    f"{_PREFIX}signingScheme",
    f"{_PREFIX}signingTime",
    f"{_PREFIX}expiry",
)
_TIMESTAMP = f"{_PREFIX}timestampSignature"
# A verifier must reject a signature with an unknown critical header.
_KNOWN_CRITICAL = frozenset(("alg", "cty", _SCHEME, _SIGNING_TIME, _EXPIRY))
_NO_ANNOTATIONS: Mapping[str, str] = {}
_MOST_SIGNATURES = 100
_MOST_REASONS = 5
_LARGEST_ENVELOPE = 1024 * 1024
_LARGEST_ATTESTATION = 16 * 1024 * 1024


# --- finding signatures of an image


def find_envelopes(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundEnvelope, ...]:
    """List the notation signatures of an image; an unreadable one is listed empty."""
    signatures = find_referrers_of_type(registries, image, ARTIFACT_TYPE, location)
    return tuple(_read_signature(registries, manifest, location) for manifest in signatures)


def find_referrers_of_type(
    registries: Registries, image: SignedImage, artifact_type: str, location: SignatureLocation
) -> tuple[SignedImage, ...]:
    """List the referrers of an image with that type: signatures, or attestations."""
    repository = location.repository or image.repository
    try:
        referrers = registries.referrers(repository, image.digest, location.access)
    except ImageNotFoundError:
        return ()
    digests = [item.digest for item in referrers if item.artifact_type == artifact_type]
    return tuple(SignedImage(repository, digest) for digest in digests[:_MOST_SIGNATURES])


def _read_signature(
    registries: Registries, signature: SignedImage, location: SignatureLocation
) -> FoundEnvelope:
    media_type, content = "", b""
    try:
        manifest = registries.manifest(signature.repository, signature.digest, location.access)
        layer = _read_only_layer(manifest)
        if layer is not None and _size_of(layer) <= _LARGEST_ENVELOPE:
            media_type, digest = str(layer.get("mediaType", "")), str(layer.get("digest", ""))
            content = registries.blob(signature.repository, digest, location.access)
    except (ImageNotFoundError, CorruptContentError):
        # One broken signature must not hide the others.
        content = b""
    return FoundEnvelope(origin=signature.digest, media_type=media_type, content=content)


def _read_only_layer(manifest: ImageManifest) -> JsonObject | None:
    layers = _read_manifest(manifest).get("layers")
    if isinstance(layers, list) and len(layers) == 1 and isinstance(layers[0], dict):
        return layers[0]
    return None


def _read_manifest(manifest: ImageManifest) -> JsonObject:
    try:
        return read_json_object(manifest.content)
    except ValueError:
        return {}


def _size_of(layer: Mapping[str, Json]) -> int:
    size = layer.get("size")
    return size if isinstance(size, int) else _LARGEST_ATTESTATION + 1


# --- signatures


def verify_notary(
    registries: Registries,
    image: SignedImage,
    trusted: TrustedNotary,
    location: SignatureLocation,
    now: datetime,
    annotations: Mapping[str, str] = _NO_ANNOTATIONS,
) -> VerifiedSignature:
    """Find the first accepted signature of an image; raises SignatureRefusedError if there is none.

    Signer and annotations must be of the same signature.
    """
    envelopes = find_envelopes(registries, image, location)
    if not envelopes:
        raise SignatureRefusedError(f"no notation signature of {image.repository}@{image.digest}")
    reasons = []
    for found in envelopes:
        try:
            verified = verify_envelope(found, image, trusted, now)
            check_annotations(verified.annotations, annotations)
            return verified
        except SignatureRefusedError as error:
            reasons.append(f"{found.origin}: {error}")
    raise SignatureRefusedError("; ".join(reasons[:_MOST_REASONS]))


def verify_envelope(
    found: FoundEnvelope, image: SignedImage, trusted: TrustedNotary, now: datetime
) -> VerifiedSignature:
    """Who signed the image with this envelope; raises SignatureRefusedError if invalid."""
    anchors = read_trusted(trusted.certificates)
    message = _read_message(found)
    chain = read_chain(message.certificates)
    check_code_signature(chain[0], message.algorithm, message.signature, message.signed)
    _check_headers(message, now)
    check_chain(chain)
    _check_trusted(chain, anchors)
    stamped = _check_time(message, chain, trusted, now)
    check_revocation(chain)
    artifact = _read_target(message, image)
    return VerifiedSignature(
        origin=found.origin,
        digest=image.digest,
        signer=_describe_signer(chain[0], stamped),
        annotations=_read_annotations(artifact),
    )


def _read_message(found: FoundEnvelope) -> SignedMessage:
    if not found.content:
        raise SignatureRefusedError("the envelope is missing, corrupt or too large")
    read = _READERS.get(found.media_type)
    if read is None:
        raise SignatureRefusedError(
            f"a signature of media type {found.media_type!r}; known are {', '.join(_READERS)}"
        )
    if len(found.content) > _LARGEST_ENVELOPE:
        raise SignatureRefusedError(f"an envelope of {len(found.content)} bytes")
    try:
        return read(found.content)
    except (ValueError, TypeError, RecursionError) as error:
        raise SignatureRefusedError(f"the envelope cannot be read: {error}") from error


# --- headers


def _check_headers(message: SignedMessage, now: datetime) -> None:
    headers = message.protected
    _check_critical(headers)
    if headers.get("cty") != _PAYLOAD_TYPE:
        raise SignatureRefusedError(f"the content type is not {_PAYLOAD_TYPE}")
    if headers[_SCHEME] != "notary.x509":
        raise SignatureRefusedError(
            f"the signing scheme is {headers[_SCHEME]!r}; with certificates of authorities "
            "only notary.x509 is trusted"
        )
    signed_at = _read_time(headers, _SIGNING_TIME)
    if _EXPIRY not in headers:
        return
    expiry = _read_time(headers, _EXPIRY)
    if expiry <= signed_at or now > expiry:
        raise SignatureRefusedError(f"the signature has expired: it was valid until {expiry}")


def _check_critical(headers: Mapping[str, Json]) -> None:
    critical = headers.get("crit")
    if not isinstance(critical, list) or not all(isinstance(name, str) for name in critical):
        raise SignatureRefusedError("the list of critical headers is missing or malformed")
    if unknown := [name for name in critical if name not in _KNOWN_CRITICAL]:
        raise SignatureRefusedError(f"critical header {unknown[0]!r} is unknown")
    if missing := [name for name in critical if name not in headers]:
        raise SignatureRefusedError(f"critical header {missing[0]!r} is missing")
    if plugin := [name for name in headers if name.startswith(f"{_PREFIX}verificationPlugin")]:
        raise SignatureRefusedError(f"{plugin[0]} requires a plug-in, which is not supported")
    if _SCHEME not in critical or (_EXPIRY in headers and _EXPIRY not in critical):
        raise SignatureRefusedError("signing scheme and expiry must be critical headers")


def _read_time(headers: Mapping[str, Json], name: str) -> datetime:
    value = headers.get(name)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise SignatureRefusedError(f"header {name} is missing or not a time")
    return value.astimezone(UTC)


# --- trust


def _check_trusted(
    chain: "Sequence[x509.Certificate]", anchors: "Sequence[x509.Certificate]"
) -> None:
    # Any certificate of the chain may be trusted: root, intermediate, or the signer's.
    if not any(certificate in anchors for certificate in chain):
        raise SignatureRefusedError(
            f"{name_certificate(chain[0])} does not lead to a trusted certificate; its root is "
            f"{name_certificate(chain[-1])}"
        )


def _check_time(
    message: SignedMessage,
    chain: "Sequence[x509.Certificate]",
    trusted: TrustedNotary,
    now: datetime,
) -> datetime | None:
    """Check that the chain is valid now, or was at the time of its trusted timestamp."""
    check_validity(chain, _read_time(message.protected, _SIGNING_TIME), "at the signing time")
    if not trusted.timestamp_certificates:
        check_validity(chain, now, "now")
        return None
    stamped = _read_timestamp(message, trusted)
    check_validity(chain, stamped, "at the time of its time stamp")
    return stamped


def _read_timestamp(message: SignedMessage, trusted: TrustedNotary) -> datetime:
    """The time from a trusted timestamp authority; JOSE encodes its token as text."""
    token = message.unprotected.get(_TIMESTAMP)
    if isinstance(token, str):
        try:
            token = b64decode(token, validate=True)
        except ValueError:
            token = None
    if not isinstance(token, bytes):
        raise SignatureRefusedError(
            "the signature has no time stamp, and certificates of time stamp authorities are given"
        )
    roots = read_trusted(trusted.timestamp_certificates)
    authorities = [TimestampAuthority((root,)) for root in roots]
    return check_timestamp(wrap_token(token), message.signature, authorities)


def _describe_signer(leaf: "x509.Certificate", stamped: datetime | None) -> Signer:
    import hashlib

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Signer(
        key=hashlib.sha256(key).hexdigest(),
        issuer=leaf.issuer.rfc4514_string(),
        subject=leaf.subject.rfc4514_string(),
        signed_at=stamped,
    )


# --- what was signed


def _read_target(message: SignedMessage, image: SignedImage) -> JsonObject:
    try:
        artifact = read_json_object(message.payload).get("targetArtifact")
    except ValueError as error:
        raise SignatureRefusedError(f"the payload cannot be read: {error}") from error
    if not isinstance(artifact, dict) or not isinstance(artifact.get("digest"), str):
        raise SignatureRefusedError("the payload names no target artifact")
    if artifact["digest"] != image.digest:
        raise SignatureRefusedError(f"the signature is for {artifact['digest']}")
    return artifact


def _read_annotations(artifact: JsonObject) -> JsonObject:
    annotations = artifact.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise SignatureRefusedError("the signed annotations are not a map")
    return annotations


# --- attestations: artifacts of some type that refer to the image and are signed themselves


def verify_referrers(
    registries: Registries,
    image: SignedImage,
    artifact_type: str,
    trusted: TrustedNotary,
    location: SignatureLocation,
    now: datetime,
) -> tuple[VerifiedStatement, ...]:
    """Read the attestations of a type of the image, by trusted signers.

    Raises SignatureRefusedError if there are none; those of other signers are ignored.
    """
    verified, reasons = list[VerifiedStatement](), list[str]()
    for referrer in find_referrers_of_type(registries, image, artifact_type, location):
        try:
            signature = verify_notary(registries, referrer, trusted, location, now)
            manifest = registries.manifest(referrer.repository, referrer.digest, location.access)
            _check_refers(manifest, image, artifact_type)
            payload = _read_payload(registries, referrer, manifest, location)
        except SignatureRefusedError as error:
            reasons.append(str(error))
            continue
        statement = {"predicateType": artifact_type, "predicate": payload}
        verified.append(
            VerifiedStatement(referrer.digest, artifact_type, statement, signature.signer)
        )
    if not verified:
        reason = "; ".join(reasons[:_MOST_REASONS]) or f"none of type {artifact_type} was found"
        raise SignatureRefusedError(f"no accepted attestation: {reason}")
    return tuple(verified)


def _check_refers(manifest: ImageManifest, image: SignedImage, artifact_type: str) -> None:
    """Check the registry's data about the artifact: only signed content proves it."""
    document = _read_manifest(manifest)
    subject = document.get("subject")
    if not isinstance(subject, dict) or subject.get("digest") != image.digest:
        raise SignatureRefusedError(f"{manifest.digest} does not refer to {image.digest}")
    if _type_of(document) != artifact_type:
        raise SignatureRefusedError(f"{manifest.digest} is not of type {artifact_type}")


def _type_of(manifest: JsonObject) -> str:
    """OCI 1.0 has no artifact type; the media type of the configuration is used."""
    config = manifest.get("config")
    fallback = config.get("mediaType", "") if isinstance(config, dict) else ""
    return str(manifest.get("artifactType") or fallback)


def _read_payload(
    registries: Registries,
    referrer: SignedImage,
    manifest: ImageManifest,
    location: SignatureLocation,
) -> JsonObject:
    layer = _read_only_layer(manifest)
    if layer is None or _size_of(layer) > _LARGEST_ATTESTATION:
        raise SignatureRefusedError(f"{referrer.digest} must have one layer of at most 16 MiB")
    content = registries.blob(referrer.repository, str(layer.get("digest", "")), location.access)
    try:
        return read_json_object(content)
    except ValueError as error:
        raise SignatureRefusedError(f"{referrer.digest} is not JSON: {error}") from error
