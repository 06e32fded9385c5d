"""Which signatures and attestations an image has, and who accepts which: as a tree or as JSON."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from lictor.core.raw import Json, JsonObject
from lictor.core.report.explanation import Explanation, explanation_to_json, render_explanation

_MAX_SHOWN = 200


class SignerVerdict(msgspec.Struct, frozen=True):
    """What came of checking one signature against one of those whose signatures count."""

    # The required signer: `the key in cosign.pub`.
    attestor: str
    # Why it does not count; empty where it does.
    refused: str = ""
    # What was proved, in the order in which it was checked; empty where it was refused.
    proved: tuple[str, ...] = ()


class ImageClaim(msgspec.Struct, frozen=True):
    """One signature or attestation of an image, and its claims, verified or not."""

    # signature or attestation.
    kind: str
    # cosign, cosign bundle, notation.
    format: str
    origin: str
    # Digests of what it claims to be about.
    about: tuple[str, ...] = ()
    predicate_type: str = ""
    # Whom its certificate names, and who issued the certificate.
    certificate_subject: str = ""
    certificate_issuer: str = ""
    # The time of the entry in a transparency log.
    logged_at: str = ""
    # Those of the payload, which are signed.
    annotations: Mapping[str, Json] = {}
    # What is wrong with it where it cannot even be read.
    broken: str = ""
    verdicts: tuple[SignerVerdict, ...] = ()
    # The whole in-toto statement, if an attestor accepted it.
    statement: Mapping[str, Json] | None = None

    @property
    def is_accepted(self) -> bool:
        return any(not verdict.refused for verdict in self.verdicts)


class ImageVerificationReport(msgspec.Struct, frozen=True):
    """What is known of one image."""

    image: str
    digest: str = ""
    claims: tuple[ImageClaim, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    is_verified: bool = False
    # Why it is not verified, or how it was, in one sentence.
    summary: str = ""


# --- as text


def render_verification(verification: ImageVerificationReport) -> Iterator[str]:
    """A tree, line by line; the last line is the outcome."""
    digest = f" is {verification.digest}" if verification.digest else ""
    yield f"{verification.image}{digest}"
    for index, claim in enumerate(verification.claims):
        last = index == len(verification.claims) - 1
        yield f"{'└──' if last else '├──'} {_title(claim)}"
        lines = list(_claim_lines(claim))
        for number, text in enumerate(lines):
            branch = "└──" if number == len(lines) - 1 else "├──"
            yield f"{'    ' if last else '│   '}{branch} {text}"
    for explanation in verification.explanations:
        yield ""
        yield from render_explanation(explanation)
    outcome = "verified" if verification.is_verified else "not verified"
    yield f"{outcome}: {verification.summary}"


def _title(claim: ImageClaim) -> str:
    state = ""
    if claim.verdicts:
        state = ": accepted" if claim.is_accepted else ": refused"
    return f"{claim.kind} {claim.origin} ({claim.format}){state}"


def _claim_lines(claim: ImageClaim) -> Iterator[str]:
    if claim.broken:
        yield f"cannot be read: {claim.broken}"
    if claim.predicate_type:
        yield f"claims: predicate type {claim.predicate_type}"
    if claim.about:
        yield f"claims: about {', '.join(claim.about)}"
    if claim.certificate_subject or claim.certificate_issuer:
        issuer = f", issued by {claim.certificate_issuer}" if claim.certificate_issuer else ""
        yield f"claims: certificate of {claim.certificate_subject or 'no subject'}{issuer}"
    if claim.logged_at:
        yield f"claims: in a transparency log since {claim.logged_at}"
    for name, value in claim.annotations.items():
        yield f"claims: annotation {_cut(f'{name}={value}')}"
    for verdict in claim.verdicts:
        for proved in verdict.proved:
            yield f"✓ {proved}"
        if verdict.refused:
            yield f"✗ {verdict.attestor}: {verdict.refused}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


# --- as JSON


def verifications_to_json(verifications: Sequence[ImageVerificationReport]) -> list[JsonObject]:
    """One object for each image."""
    return [_to_json(verification) for verification in verifications]


def _to_json(verification: ImageVerificationReport) -> JsonObject:
    made: JsonObject = {
        "image": verification.image,
        "digest": verification.digest,
        "verified": verification.is_verified,
        "summary": verification.summary,
        "claims": [_claim_to_json(claim) for claim in verification.claims],
    }
    if verification.explanations:
        made["policies"] = [explanation_to_json(each) for each in verification.explanations]
    return made


def _claim_to_json(claim: ImageClaim) -> JsonObject:
    claims: JsonObject = {
        "about": list(claim.about),
        "predicateType": claim.predicate_type,
        "certificateSubject": claim.certificate_subject,
        "certificateIssuer": claim.certificate_issuer,
        "loggedAt": claim.logged_at,
        "annotations": dict(claim.annotations),
    }
    verdicts = [
        {
            "attestor": verdict.attestor,
            "accepted": not verdict.refused,
            "reason": verdict.refused,
            "proved": list(verdict.proved),
        }
        for verdict in claim.verdicts
    ]
    return {
        "kind": claim.kind,
        "format": claim.format,
        "origin": claim.origin,
        "says": {name: value for name, value in claims.items() if value},
        "broken": claim.broken,
        "accepted": claim.is_accepted,
        "verdicts": verdicts,
    }
