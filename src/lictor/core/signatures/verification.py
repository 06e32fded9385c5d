"""Verifies that a signature or attestation by a trusted signer is about an image.

Digest, signer and annotations all come from the one signature; what it does not prove raises
SignatureRefusedError with the reason.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from lictor.core.crypto.log_key import fingerprint
from lictor.core.errors import EvaluationError, SignatureRefusedError
from lictor.core.lang.signed_payload import IN_TOTO, Statement, read_simple_payload, read_statement
from lictor.core.ports import Registries
from lictor.core.raw import Json
from lictor.core.signatures.keyless import check_logged, identify_signer
from lictor.core.signatures.keys import check_signed, own_hash, read_public_key
from lictor.core.signatures.records import (
    CosignAttestor,
    FoundSignature,
    SignedImage,
    Signer,
    TrustedCertificate,
    TrustedKey,
    VerifiedSignature,
    VerifiedStatement,
)
from lictor.core.signatures.trust_root import gather_trust

if TYPE_CHECKING:
    from lictor.core.crypto.log_key import PublicKey

# The predicate type of a bundle with a signature, not an attestation.
SIGNED_PREDICATE = "https://sigstore.dev/cosign/sign/v1"

_MOST_REASONS = 10


def verify_signature(
    found: FoundSignature, image: SignedImage, attestor: CosignAttestor, registries: Registries
) -> VerifiedSignature:
    """Verify that the attestor signed this image."""
    signer = verify_signer(found, attestor, registries)
    annotations = _read_claim(found, image)
    return VerifiedSignature(
        origin=found.origin,
        digest=image.digest,
        signer=signer,
        annotations=annotations,
        layer_annotations=found.layer_annotations,
    )


def verify_statement(
    found: FoundSignature, image: SignedImage, attestor: CosignAttestor, registries: Registries
) -> VerifiedStatement:
    """Verify that the attestor made this statement about this image."""
    signer = verify_signer(found, attestor, registries)
    statement = _read_statement(found, image)
    return VerifiedStatement(
        origin=found.origin,
        predicate_type=statement.predicate_type,
        statement=statement.content,
        signer=signer,
    )


def accept_signature(
    found: Sequence[FoundSignature],
    image: SignedImage,
    attestor: CosignAttestor,
    registries: Registries,
    annotations: Mapping[str, str] | None = None,
) -> VerifiedSignature:
    """The first accepted signature; if there is none, the error has the reason for each."""
    refusals, unannotated = list[str](), False
    for one in found:
        try:
            verified = verify_signature(one, image, attestor, registries)
        except SignatureRefusedError as error:
            refusals.append(f"{one.origin}: {error}")
            continue
        try:
            check_annotations(verified.annotations, annotations or {})
        except SignatureRefusedError as error:
            refusals.append(f"{one.origin}: {error}")
            unannotated = True
            continue
        return verified
    if unannotated:
        raise SignatureRefusedError(
            f"no signature matched the required annotations: {_list_reasons(refusals)}"
        )
    raise SignatureRefusedError(_explain("signatures", refusals))


def accept_statements(
    found: Sequence[FoundSignature],
    image: SignedImage,
    attestor: CosignAttestor,
    registries: Registries,
) -> tuple[VerifiedStatement, ...]:
    """All accepted attestations; if there are none, the error has the reason for each."""
    accepted, refusals = list[VerifiedStatement](), list[str]()
    for one in found:
        try:
            accepted.append(verify_statement(one, image, attestor, registries))
        except SignatureRefusedError as error:
            refusals.append(f"{one.origin}: {error}")
    if not accepted:
        raise SignatureRefusedError(_explain("attestations", refusals))
    return tuple(accepted)


def _explain(what: str, refusals: Sequence[str]) -> str:
    if not refusals:
        return f"no {what} found"
    return f"no matching {what}: {_list_reasons(refusals)}"


def _list_reasons(refusals: Sequence[str]) -> str:
    """Messages go into reports, in which each part is bounded."""
    more = len(refusals) - _MOST_REASONS
    end = f"; and {more} more" if more > 0 else ""
    return "; ".join(refusals[:_MOST_REASONS]) + end


def check_annotations(signed: Mapping[str, Json], wanted: Mapping[str, str]) -> None:
    """Reject a signature that lacks one of the required annotations."""
    for key, value in wanted.items():
        if key not in signed:
            raise SignatureRefusedError(f"annotation {key} is not signed, {value!r} is required")
        if signed[key] != value:
            raise SignatureRefusedError(
                f"annotation {key} is {signed[key]!r}, {value!r} is required"
            )


def verify_signer(
    found: FoundSignature, attestor: CosignAttestor, registries: Registries
) -> Signer:
    """Verify that the attestor made a signature, over any content."""
    if found.fault:
        raise SignatureRefusedError(found.fault)
    try:
        if isinstance(attestor, TrustedKey):
            return _verify_key(found, attestor, registries)
        is_stamped = found.is_bundle and bool(found.timestamps)
        root = gather_trust(attestor, registries, is_stamped=is_stamped)
        key, signer = identify_signer(found, attestor, root)
    # Unreadable keys or certificates of the policy: no signature can match.
    except EvaluationError as error:
        raise SignatureRefusedError(str(error)) from error
    hash_name = attestor.hash_name if isinstance(attestor, TrustedCertificate) else "sha256"
    _check_signed(found, key, hash_name)
    return signer


def _verify_key(found: FoundSignature, attestor: TrustedKey, registries: Registries) -> Signer:
    key = read_public_key(attestor.public_key)
    _check_signed(found, key, attestor.hash_name)
    signed_at = None
    if not attestor.log.ignore_log:
        root = gather_trust(attestor, registries)
        signed_at = check_logged(found, attestor.log, root, key)
    return Signer(key=fingerprint(key).hex(), signed_at=signed_at)


def _check_signed(found: FoundSignature, key: "PublicKey", hash_name: str) -> None:
    # Bundles use the hash for the key's size, and a policy cannot choose another.
    names = (hash_name, own_hash(key)) if found.is_bundle else (hash_name,)
    check_signed(key, found.signature, found.signed, names)


def _read_claim(found: FoundSignature, image: SignedImage) -> Mapping[str, Json]:
    """The annotations that were signed together with the image's digest."""
    if found.payload_type:
        statement = _read_statement(found, image)
        if statement.predicate_type != SIGNED_PREDICATE:
            raise SignatureRefusedError(
                f"it is an attestation of type {statement.predicate_type}, not a signature"
            )
        return statement.annotations[image.digest]
    if found.is_bundle:
        # Signs the image's manifest itself, of which the digest is the hash.
        if f"sha256:{sha256(found.payload).hexdigest()}" != image.digest:
            raise SignatureRefusedError("it was made for another image")
        return {}
    try:
        claim = read_simple_payload(found.payload)
    except ValueError as error:
        raise SignatureRefusedError(f"its payload cannot be read: {error}") from error
    if claim.digest != image.digest:
        raise SignatureRefusedError(f"it was made for the image {claim.digest}")
    return claim.annotations


def _read_statement(found: FoundSignature, image: SignedImage) -> Statement:
    if found.payload_type != IN_TOTO:
        kind = found.payload_type or "a payload without type"
        raise SignatureRefusedError(f"it contains {kind}, not {IN_TOTO}")
    try:
        statement = read_statement(found.payload)
    except ValueError as error:
        raise SignatureRefusedError(f"its statement cannot be read: {error}") from error
    if image.digest not in statement.digests:
        about = ", ".join(sorted(statement.digests)[:3]) or "nothing"
        raise SignatureRefusedError(f"no matching subject digest found: it is about {about}")
    return statement
