"""Finds the signatures and attestations of an image and verifies them, for `verify`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeAlias

import msgspec
import orjson
from msgspec.structs import replace

from lictor.cli.image_policies import ImagePolicies, conclude_policies
from lictor.cli.inputs.lookups import GivenObjects, choose_given, choose_registries
from lictor.core.errors import (
    EvaluationError,
    LictorError,
    LookupFailedError,
    SignatureRefusedError,
    UsageError,
)
from lictor.core.files import read_bytes
from lictor.core.lang.image_reference import ImageReference, parse_image
from lictor.core.ports import Registries
from lictor.core.raw import Json
from lictor.core.report.image_verification import ImageClaim, ImageVerificationReport, SignerVerdict
from lictor.core.signatures.records import (
    CosignAttestor,
    FoundEnvelope,
    FoundSignature,
    SignatureLocation,
    SignedImage,
    Signer,
    TrustedNotary,
)
from lictor.images.registries import TrustingRegistries

SIGNATURE = "signature"
ATTESTATION = "attestation"
SBOM = "SBOM"
# Of the SBOM: it never counts as one of the image.
SBOM_SIGNATURE = "signature of the SBOM"
Attestor: TypeAlias = CosignAttestor | TrustedNotary


class NamedAttestor(msgspec.Struct, frozen=True):
    """Someone whose signatures count, and how the caller calls them."""

    name: str
    attestor: Attestor


class Demand(msgspec.Struct, frozen=True):
    """What it takes for an image to be verified."""

    # A signature by any of them will do; none at all: nothing is verified.
    attestors: tuple[NamedAttestor, ...] = ()
    annotations: Mapping[str, str] = {}
    # An attestation of this type, instead of a signature.
    predicate_type: str = ""
    location: SignatureLocation = SignatureLocation()


def open_registries(layout: str = "", trusted_root: str = "") -> Registries:
    """Registries on the network, or a folder in their place; with a trust root from a file."""
    given = GivenObjects(registries=choose_registries(network=not layout, layout=layout))
    registries = choose_given(given)
    if not trusted_root:
        return registries
    return TrustingRegistries(registries, read_bytes(trusted_root))


def verify_images(
    names: Sequence[str],
    demand: Demand,
    registries: Registries,
    policies: tuple[str, ...] = (),
    rule: str = "",
) -> list[ImageVerificationReport]:
    """Verify each image; with policies, each of them must accept it, too."""
    references = [_parse(name) for name in names]
    accepting = ImagePolicies.load(policies, rule, registries) if policies else None
    report = []
    for name, reference in zip(names, references, strict=True):
        each = replace(verify_image(reference, demand, registries), image=name)
        report.append(_apply_policies(each, accepting, demand) if accepting is not None else each)
    return report


def _apply_policies(
    report: ImageVerificationReport, policies: ImagePolicies, demand: Demand
) -> ImageVerificationReport:
    explanations = policies.explain(report.image)
    accepted, summary = conclude_policies(explanations)
    if demand.attestors:
        accepted, summary = accepted and report.is_verified, f"{report.summary}; {summary}"
    return replace(report, explanations=explanations, is_verified=accepted, summary=summary)


def _parse(name: str) -> ImageReference:
    try:
        return parse_image(name)
    except EvaluationError as error:
        raise UsageError(str(error)) from error


def verify_image(
    reference: ImageReference, demand: Demand, registries: Registries
) -> ImageVerificationReport:
    """The signatures and attestations of an image, and whether they meet the demands."""
    wanted, access = reference.digest or reference.tag, demand.location.access
    try:
        digest = registries.manifest(reference.repository, wanted, access).digest
        image = SignedImage(reference.repository, digest)
        claims = tuple(list_claims(image, demand, registries))
    except LookupFailedError as error:
        return ImageVerificationReport(reference.reference, summary=str(error))
    verified, summary = _conclude(claims, demand)
    return ImageVerificationReport(
        reference.reference, digest, claims, is_verified=verified, summary=summary
    )


def list_claims(image: SignedImage, demand: Demand, registries: Registries) -> Iterator[ImageClaim]:
    """Every signature and attestation of the image, checked against every attestor."""
    from lictor.core.signatures.discovery import find_attestations, find_bundles, find_signatures
    from lictor.core.signatures.notary import find_envelopes

    location = demand.location
    checker = _Checker(image, demand, registries)
    for found in find_signatures(registries, image, location):
        yield checker.check(found, SIGNATURE, "cosign")
    for found in find_attestations(registries, image, location):
        yield checker.check(found, ATTESTATION, "cosign")
    for found in find_bundles(registries, image, location):
        kind = ATTESTATION if _is_attestation(found) else SIGNATURE
        yield checker.check(found, kind, "cosign bundle")
    for envelope in find_envelopes(registries, image, location):
        yield checker.check_envelope(envelope)
    if demand.predicate_type:
        yield from checker.check_referrers()
    yield from _list_sbom(image, demand, registries)


def _list_sbom(image: SignedImage, demand: Demand, registries: Registries) -> Iterator[ImageClaim]:
    """What `cosign attach sbom` put beside the image, and who signed that."""
    from lictor.core.signatures.discovery import find_sbom, find_signatures

    sbom = find_sbom(registries, image, demand.location)
    if sbom is None:
        return
    yield ImageClaim(SBOM, "cosign", f"{sbom.repository}@{sbom.digest}")
    for found in find_signatures(registries, sbom, demand.location):
        yield _Checker(sbom, demand, registries).check(found, SBOM_SIGNATURE, "cosign")


def _is_attestation(found: FoundSignature) -> bool:
    """A bundle holds either; an unreadable one is reported as an invalid signature."""
    from lictor.core.lang.signed_payload import read_statement
    from lictor.core.signatures.verification import SIGNED_PREDICATE

    try:
        return read_statement(found.payload).predicate_type != SIGNED_PREDICATE
    except ValueError:
        return False


class _Checker(msgspec.Struct, frozen=True):
    """Checks what was found beside one image."""

    image: SignedImage
    demand: Demand
    registries: Registries

    def check(self, found: FoundSignature, kind: str, form: str) -> ImageClaim:
        claim = _describe(found, kind, form)
        verdicts, statement = list[SignerVerdict](), None
        for named in self.demand.attestors:
            if isinstance(named.attestor, TrustedNotary):
                continue
            try:
                signer, statement = self._verify(found, kind, named.attestor)
            except SignatureRefusedError as error:
                verdicts.append(SignerVerdict(named.name, str(error)))
                continue
            proved = self._describe_signer(signer, named, kind)
            verdicts.append(SignerVerdict(named.name, proved=tuple(proved)))
        return replace(claim, verdicts=tuple(verdicts), statement=statement)

    def _verify(
        self, found: FoundSignature, kind: str, attestor: CosignAttestor
    ) -> tuple[Signer, Mapping[str, Json] | None]:
        from lictor.core.signatures.verification import (
            check_annotations,
            verify_signature,
            verify_statement,
        )

        if kind == ATTESTATION:
            stated = verify_statement(found, self.image, attestor, self.registries)
            return stated.signer, stated.statement
        signed = verify_signature(found, self.image, attestor, self.registries)
        check_annotations(signed.annotations, self.demand.annotations)
        return signed.signer, None

    def check_envelope(self, found: FoundEnvelope) -> ImageClaim:
        from lictor.core.signatures.notary import verify_envelope
        from lictor.core.signatures.verification import check_annotations

        verdicts = []
        for named in self.demand.attestors:
            if not isinstance(named.attestor, TrustedNotary):
                continue
            try:
                signed = verify_envelope(found, self.image, named.attestor, datetime.now(UTC))
                check_annotations(signed.annotations, self.demand.annotations)
            except SignatureRefusedError as error:
                verdicts.append(SignerVerdict(named.name, str(error)))
                continue
            proved = tuple(self._describe_signer(signed.signer, named, SIGNATURE))
            verdicts.append(SignerVerdict(named.name, proved=proved))
        return ImageClaim(
            SIGNATURE, f"notation, {found.media_type}", found.origin, verdicts=tuple(verdicts)
        )

    def check_referrers(self) -> Iterator[ImageClaim]:
        """Attestations that notation signed: artifacts of the wanted type."""
        from lictor.core.signatures.notary import find_referrers_of_type, verify_referrers

        image, wanted, location = self.image, self.demand.predicate_type, self.demand.location
        referrers = find_referrers_of_type(self.registries, image, wanted, location)
        trusted = [
            (named, named.attestor)
            for named in self.demand.attestors
            if isinstance(named.attestor, TrustedNotary)
        ]
        for referrer in referrers:
            claim = ImageClaim(ATTESTATION, "artifact", referrer.digest, predicate_type=wanted)
            for named, notary in trusted:
                try:
                    found = verify_referrers(
                        self.registries, image, wanted, notary, location, datetime.now(UTC)
                    )
                except SignatureRefusedError as error:
                    claim = _add(claim, SignerVerdict(named.name, str(error)))
                    continue
                for stated in found:
                    if stated.origin == referrer.digest:
                        proved = tuple(self._describe_signer(stated.signer, named, ATTESTATION))
                        claim = replace(
                            _add(claim, SignerVerdict(named.name, proved=proved)),
                            statement=stated.statement,
                        )
            yield claim

    def _describe_signer(self, signer: Signer, named: NamedAttestor, kind: str) -> Iterator[str]:
        what = "SBOM" if kind == SBOM_SIGNATURE else "image"
        yield f"is about this {what}, {self.image.digest}"
        who = signer.subject or f"a key with SHA-256 {signer.key}"
        issuer = f", as stated by {signer.issuer}" if signer.issuer else ""
        yield f"was made by {who}{issuer}: {named.name}"
        if signer.signed_at is not None:
            yield f"was made at {signer.signed_at.isoformat()}, as a log or time stamp proves"
        elif isinstance(named.attestor, TrustedNotary):
            yield "its certificates are valid now"
        elif named.attestor.log.ignore_log:
            yield "no transparency log was checked: --insecure-ignore-tlog"
        for name, value in self.demand.annotations.items() if kind != ATTESTATION else ():
            yield f"carries the annotation {name}={value}"


def _add(claim: ImageClaim, verdict: SignerVerdict) -> ImageClaim:
    return replace(claim, verdicts=(*claim.verdicts, verdict))


def _describe(found: FoundSignature, kind: str, form: str) -> ImageClaim:
    """Describe the unverified content of a signature."""
    about, annotations, predicate, broken = _read_payload(found)
    subject, issuer = _read_certificate(found.certificate)
    logged = [entry.integrated_time for entry in found.log_entries if entry.integrated_time]
    return ImageClaim(
        kind=kind,
        format=form,
        origin=found.origin,
        about=about,
        predicate_type=predicate,
        certificate_subject=subject,
        certificate_issuer=issuer,
        logged_at=_write_time(min(logged)) if logged else "",
        annotations=annotations,
        broken=found.fault or broken,
    )


def _write_time(seconds: int) -> str:
    # The number is not verified yet: it may be of any size.
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{seconds} seconds after 1970"


def _read_payload(
    found: FoundSignature,
) -> tuple[tuple[str, ...], Mapping[str, Json], str, str]:
    """Digests, annotations and predicate type; last what is wrong with it."""
    from lictor.core.lang.signed_payload import read_simple_payload, read_statement

    if found.fault:
        return (), {}, "", ""
    try:
        if found.payload_type:
            statement = read_statement(found.payload)
            return tuple(sorted(statement.digests)), {}, statement.predicate_type, ""
        if found.is_bundle:
            return (f"sha256:{sha256(found.payload).hexdigest()}",), {}, "", ""
        claim = read_simple_payload(found.payload)
    except ValueError as error:
        return (), {}, "", str(error)
    return (claim.digest,), claim.annotations, "", ""


def _read_certificate(certificate: bytes) -> tuple[str, str]:
    """Return subject and issuer of a certificate; empty if it cannot be read."""
    from lictor.core.crypto.certificate_chain import read_certificates
    from lictor.core.signatures.fulcio import read_identity

    if not certificate:
        return "", ""
    try:
        loaded = read_certificates(certificate.decode())[0]
        identity = read_identity(loaded)
    except (LictorError, ValueError):
        return "", ""
    subjects = ", ".join(identity.subjects) or loaded.subject.rfc4514_string()
    return subjects, identity.issuer or loaded.issuer.rfc4514_string()


def _conclude(claims: Sequence[ImageClaim], demand: Demand) -> tuple[bool, str]:
    """Whether the image is verified, and in one sentence why or why not."""
    if not demand.attestors:
        listed = f"{len(claims)} found" if claims else "there are none"
        return False, f"no trusted signer was given ({listed}); see --help"
    wanted = _select(claims, demand)
    what = (
        f"attestations of type {demand.predicate_type}" if demand.predicate_type else "signatures"
    )
    accepted = sum(claim.is_accepted for claim in wanted)
    if accepted:
        return True, f"{accepted} of {len(wanted)} {what} count"
    return False, f"none of {len(wanted)} {what} counts" if wanted else f"there are no {what}"


def _select(claims: Iterable[ImageClaim], demand: Demand) -> list[ImageClaim]:
    if demand.predicate_type:
        return [
            claim
            for claim in claims
            if claim.kind == ATTESTATION and claim.predicate_type == demand.predicate_type
        ]
    return [claim for claim in claims if claim.kind == SIGNATURE]


def list_statements(verification: ImageVerificationReport, demand: Demand) -> Iterator[bytes]:
    """Return the verified statements of the requested type, each as one line of JSON."""
    for claim in _select(verification.claims, demand):
        if claim.is_accepted and claim.statement is not None:
            yield orjson.dumps(claim.statement)
