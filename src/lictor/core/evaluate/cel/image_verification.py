"""Verifies signatures and attestations of images for CEL expressions, within one evaluation.

Results are kept for that evaluation: a payload can be read only after its attestation was verified,
and a tag means the same image throughout.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.errors import FunctionError, SignatureRefusedError
from lictor.core.evaluate.cel.image_attestors import (
    CosignSigner,
    FindSigner,
    ImageSigner,
    NotarySigner,
    WantedAttestation,
)
from lictor.core.evaluate.verify_images.outcome_cache import ImageOutcome, OutcomeCache
from lictor.core.lang.cel.expression import Activation
from lictor.core.lang.cel.host import HostFunctions
from lictor.core.lang.image_reference import parse_image
from lictor.core.model.result import Status
from lictor.core.ports import Lookups, Registries, RegistryAccess
from lictor.core.raw import Json
from lictor.core.signatures.discovery import find_attestations, find_bundles, find_signatures
from lictor.core.signatures.notary import verify_notary, verify_referrers
from lictor.core.signatures.records import SignedImage, VerifiedStatement
from lictor.core.signatures.verification import accept_signature, accept_statements

# The image, the attestation (empty: its signature) and the attestor, by their names.
_VerificationKey: TypeAlias = tuple[str, str, str]
# The payload of a verified attestation, None for a signature; or a SignatureRefusedError.
_Check: TypeAlias = Callable[[SignedImage, ImageSigner], Json]
# Larger statements are parsed again each time.
_LARGEST_KEPT = 64 * 1024


# Their names are read several times per evaluation.
read_image = lru_cache(maxsize=4096)(parse_image)


class VerificationRules(msgspec.Struct, frozen=True):
    """What one policy requires of signatures; depends on the policy only."""

    attestors: Mapping[str, FindSigner]
    attestations: Mapping[str, WantedAttestation]
    access: RegistryAccess
    lookups: Lookups
    outcomes: OutcomeCache

    def locate(self, image: str, registries: Registries) -> SignedImage:
        """The image that a name currently refers to."""
        parts = read_image(image)
        if parts.digest:
            return SignedImage(parts.repository, parts.digest)
        found = registries.manifest(parts.repository, parts.tag, self.access)
        return SignedImage(parts.repository, found.digest)


class VerificationSession:
    """The verifications of one evaluation."""

    def __init__(self, rules: VerificationRules) -> None:
        self._rules = rules
        self._registries: Registries | None = None
        self._images: dict[str, SignedImage] = {}
        self._answers: dict[_VerificationKey, bool] = {}
        self._payloads: dict[tuple[str, str], Json] = {}
        self.activation: Activation | None = None
        # Why attestors were refused for images, in order.
        self.refusals: dict[str, str] = {}
        # Images with at least one accepted attestor.
        self._verified: set[SignedImage] = set()

    @property
    def registries(self) -> Registries:
        if self._registries is None:
            self._registries = self._rules.lookups.registries()
        return self._registries

    def locate(self, image: str) -> SignedImage:
        """The image that a name refers to in this evaluation."""
        found = self._images.get(image)
        if found is None:
            found = self._images[image] = self._rules.locate(image, self.registries)
        return found

    def find_digest(self, image: str) -> str:
        """The recently resolved digest of a tag, to write it into the object."""
        outcomes, key = self._rules.outcomes, f"digest {self._rules.access!r}"
        known = outcomes.find(key, image)
        if known is None:
            known = ImageOutcome(Status.PASS, "", self.locate(image).digest)
            outcomes.keep(key, image, known)
        return known.digest

    def has_verified(self, image: str) -> bool:
        """Whether an attestor was accepted for the image in this evaluation."""
        return bool(self._verified) and self.locate(image) in self._verified

    def has_checked(self, image: str) -> bool:
        """Whether any attestor was tried for the image in this evaluation."""
        return any(key[0] == image for key in self._answers)

    def count_signatures(self, image: str, attestors: Sequence[Json]) -> int:
        """How many of the attestors have signed the image."""
        return self._count(image, "", attestors, self._check_signature)

    def count_attestations(self, image: str, attestation: str, attestors: Sequence[Json]) -> int:
        """How many of the attestors have signed such an attestation of the image."""
        wanted = self._find_attestation(attestation)
        return self._count(
            image,
            attestation,
            attestors,
            lambda signed, signer: self._check_attestation(signed, wanted, signer),
        )

    def read_payload(self, image: str, attestation: str) -> Json:
        """The payload of a verified attestation; if there are several, of the newest."""
        self._find_attestation(attestation)
        found = self._payloads.get((image, attestation))
        if found is None:
            raise FunctionError(
                f"attestation {attestation} of {image} was not verified: call "
                "verifyAttestationSignatures before extractPayload"
            )
        return found

    def _count(
        self,
        image: str,
        attestation: str,
        attestors: Sequence[Json],
        check: _Check,
    ) -> int:
        names = [_read_name(attestor) for attestor in attestors]
        return sum(self._verify((image, attestation, name), check) for name in names)

    def _verify(
        self, key: _VerificationKey, check: Callable[[SignedImage, ImageSigner], None]
    ) -> bool:
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._answer(key, check)
        return known

    def _answer(self, key: _VerificationKey, check: _Check) -> bool:
        image, attestation, name = key
        signer = self._find_signer(name)
        signed = self.locate(image)
        outcome = self._find_outcome(signer, signed, attestation, check)
        if outcome.status is not Status.PASS:
            subject = f"{image}, {attestation}" if attestation else image
            self.refusals[f"{subject}, {name}"] = outcome.message
            return False
        if attestation:
            self._payloads[image, attestation] = outcome.payload
        self._verified.add(signed)
        return True

    def _find_outcome(
        self, signer: ImageSigner, signed: SignedImage, attestation: str, check: _Check
    ) -> ImageOutcome:
        """The cached result, or that of the registry; missing responses are not cached."""
        wanted = self._rules.attestations[attestation] if attestation else None
        kind = f"{wanted.predicate_type} {wanted.artifact_type}" if wanted is not None else ""
        key, name = f"{signer.fingerprint} {kind}", f"{signed.repository}@{signed.digest}"
        outcome = self._rules.outcomes.find(key, name)
        if outcome is None:
            outcome = _try(check, signed, signer)
            if len(orjson.dumps(outcome.payload)) <= _LARGEST_KEPT:
                self._rules.outcomes.keep(key, name, outcome)
        return outcome

    def _find_signer(self, name: str) -> ImageSigner:
        find = self._rules.attestors.get(name)
        if find is None:
            raise FunctionError(f"the policy has no attestor {name}")
        if self.activation is None:
            raise FunctionError("signatures are verified in validations and their variables only")
        return find(self.activation)

    def _find_attestation(self, name: str) -> WantedAttestation:
        wanted = self._rules.attestations.get(name)
        if wanted is None:
            raise FunctionError(f"the policy has no attestation {name}")
        return wanted

    def _check_signature(self, image: SignedImage, signer: ImageSigner) -> None:
        registries = self.registries
        if isinstance(signer, NotarySigner):
            now = self._rules.lookups.now()
            verify_notary(registries, image, signer.attestor, signer.location, now)
            return
        found = (
            *find_bundles(registries, image, signer.location),
            *find_signatures(registries, image, signer.location),
        )
        accept_signature(found, image, signer.attestor, registries, signer.annotations)

    def _check_attestation(
        self, image: SignedImage, wanted: WantedAttestation, signer: ImageSigner
    ) -> Json:
        if isinstance(signer, NotarySigner):
            return self._read_referrers(image, wanted, signer)[-1].statement["predicate"]
        return dict(self._read_statements(image, wanted, signer)[-1].statement)

    def _read_referrers(
        self, image: SignedImage, wanted: WantedAttestation, signer: NotarySigner
    ) -> tuple[VerifiedStatement, ...]:
        if not wanted.artifact_type:
            raise FunctionError(
                f"attestation {wanted.name}: notation signs referrers, not in-toto statements"
            )
        now = self._rules.lookups.now()
        return verify_referrers(
            self.registries, image, wanted.artifact_type, signer.attestor, signer.location, now
        )

    def _read_statements(
        self, image: SignedImage, wanted: WantedAttestation, signer: CosignSigner
    ) -> tuple[VerifiedStatement, ...]:
        if not wanted.predicate_type:
            raise FunctionError(
                f"attestation {wanted.name}: cosign signs in-toto statements, not referrers"
            )
        registries = self.registries
        found = (
            *find_bundles(registries, image, signer.location),
            *find_attestations(registries, image, signer.location),
        )
        verified = accept_statements(found, image, signer.attestor, registries)
        chosen = tuple(s for s in verified if s.predicate_type == wanted.predicate_type)
        if not chosen:
            types = ", ".join(sorted({each.predicate_type for each in verified}))
            raise SignatureRefusedError(f"no attestation of type {wanted.predicate_type}: {types}")
        return chosen


def _try(check: _Check, signed: SignedImage, signer: ImageSigner) -> ImageOutcome:
    try:
        payload = check(signed, signer)
    except SignatureRefusedError as error:
        return ImageOutcome(Status.FAIL, str(error), signed.digest)
    return ImageOutcome(Status.PASS, "", signed.digest, payload)


def _read_name(attestor: Json) -> str:
    """The name of an attestor, given as a value of the `attestors` variable."""
    name = attestor.get("name") if isinstance(attestor, dict) else None
    if not isinstance(name, str):
        raise FunctionError("attestors are given as attestors.NAME")
    return name


current_verification: ContextVar[VerificationSession] = ContextVar("current_verification")


def bind_verification(
    host: HostFunctions, lookups: Lookups, access: RegistryAccess
) -> HostFunctions:
    """Functions for expressions, with those that verify images."""
    return replace(
        host,
        image_data=lambda reference: lookups.image_data(reference, access),
        verify_signatures=lambda *given: current_verification.get().count_signatures(*given),
        verify_attestations=lambda *given: current_verification.get().count_attestations(*given),
        attestation_payload=lambda *given: current_verification.get().read_payload(*given),
    )
