"""Verifies one image with the registry and the conditions of a block."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from lictor.core.errors import (
    CompileError,
    EvaluationError,
    LictorError,
    LookupFailedError,
    SignatureRefusedError,
)
from lictor.core.evaluate.conditions import Conditions, compile_conditions
from lictor.core.evaluate.rule_context import RuleContext
from lictor.core.evaluate.verify_images.attestors import (
    Quorum,
    WantedSigner,
    compile_attestor_sets,
    read_access,
)
from lictor.core.evaluate.verify_images.outcome_cache import ImageOutcome
from lictor.core.evaluate.verify_images.resource_images import ResourceImage
from lictor.core.evaluate.verify_images.signer_checks import (
    ImageEvidence,
    Refusal,
    find_refusals,
    read_predicate,
    refuse,
)
from lictor.core.model.policy import Attestation, ValidateImage, VerifyImages
from lictor.core.model.result import Status
from lictor.core.model.scope import Scope
from lictor.core.model.signatures import Attestor, AttestorSet
from lictor.core.ports import RegistryAccess
from lictor.core.raw import JsonObject
from lictor.core.signatures.records import SignedImage, VerifiedStatement

# The kind of traced closures in `explain`.
SIGNER_WATCH: Final = "verifyImages"


class TaggedImage:
    """An image and its digest; the registry is queried at most once."""

    def __init__(
        self, image: ResourceImage, setting: RuleContext, access: RegistryAccess, digest: str = ""
    ) -> None:
        """`digest` is what the tag was resolved to earlier, for the same object."""
        self.image = image
        self.digest = image.parts.digest or digest
        self._setting = setting
        self._access = access
        self._error: LookupFailedError | None = None

    @property
    def pinned(self) -> str:
        """The image by its digest."""
        return f"{self.image.parts.repository}@{self.digest}"

    def find_digest(self) -> str:
        """Raises LookupFailedError if the registry does not answer."""
        if self._error is not None:
            raise self._error
        if not self.digest:
            self.digest = self.query_registry()
        return self.digest

    def query_registry(self) -> str:
        """The current digest of the tag."""
        parts = self.image.parts
        registries = self._setting.lookups.registries()
        try:
            return registries.manifest(parts.repository, parts.tag, self._access).digest
        except LookupFailedError as error:
            self._error = error
            raise


class _CompiledAttestation(msgspec.Struct, frozen=True):
    field: str
    name: str
    type: str
    quorums: tuple[Quorum, ...]
    holds: Conditions | None


class BlockVerification(msgspec.Struct, frozen=True):
    """The signatures and attestations that a block requires, and their conditions."""

    setting: RuleContext
    form: str
    access: RegistryAccess
    quorums: tuple[Quorum, ...]
    attestations: tuple[_CompiledAttestation, ...]
    denial: ValidateImage | None
    denies: Conditions | None

    @classmethod
    def compile(
        cls, block: VerifyImages, message: str, setting: RuleContext
    ) -> "BlockVerification":
        namespace = setting.policy.namespace
        deny = block.validate.deny if block.validate is not None else None
        denies = None
        if deny is not None:
            conditions = {"all": []} if deny.conditions is None else deny.conditions
            denies = compile_conditions(conditions, setting.expressions, where="validate.deny")
        return cls(
            setting,
            block.type,
            read_access(block, namespace),
            compile_attestor_sets(block.attestors, block, namespace),
            tuple(_compile_attestations(block, setting)),
            ValidateImage(message=message) if block.validate is not None else None,
            denies,
        )

    def verify(self, scope: Scope, tagged: TaggedImage) -> ImageOutcome:
        """The outcome of the registry and the conditions for an image."""
        image, scope = tagged.image, scope.child(image=tagged.image.describe())
        # Outside the `try` below: on the wrong thread, the rule is evaluated again elsewhere.
        registries = self.setting.lookups.registries()
        try:
            digest = tagged.find_digest()
        except LookupFailedError as error:
            return self._fail_unresolved(image, error)
        signed = SignedImage(image.parts.repository, digest)
        evidence = ImageEvidence(registries, self.setting.lookups, signed, self.form)
        outcome = self._check_signatures(image, evidence)
        if outcome is None:
            outcome = self._check_attestations(image, evidence, scope)
        return replace(outcome, digest=digest)

    def _fail_unresolved(self, image: ResourceImage, error: LookupFailedError) -> ImageOutcome:
        refusal = refuse(error)
        if self.quorums:
            return _fail_signatures(image, (refusal,))
        return ImageOutcome(Status.FAIL, _format_attestations_failure(image, refusal.text))

    def _check_signatures(
        self, image: ResourceImage, evidence: ImageEvidence
    ) -> ImageOutcome | None:
        check = self.setting.watch(SIGNER_WATCH, evidence.check_signature)
        for quorum in self.quorums:
            refusals = find_refusals(quorum, check)
            if refusals:
                return _fail_signatures(image, refusals)
        return None

    def _check_attestations(
        self, image: ResourceImage, evidence: ImageEvidence, scope: Scope
    ) -> ImageOutcome:
        for attestation in self.attestations:
            check = _StatementCheck(attestation, evidence, scope)
            watched = self.setting.watch(SIGNER_WATCH, check.check)
            for quorum in attestation.quorums:
                refusals = find_refusals(quorum, watched)
                if refusals:
                    text = "; ".join(each.text for each in refusals)
                    return ImageOutcome(Status.FAIL, _format_attestations_failure(image, text))
            if attestation.name:
                scope = scope.with_values({attestation.name: check.predicate})
        return self._evaluate_denial(scope) or ImageOutcome(
            Status.PASS,
            f"verified image {'attestations' if self.attestations else 'signatures'} for "
            f"{image.reference}",
        )

    def _evaluate_denial(self, scope: Scope) -> ImageOutcome | None:
        if self.denies is None or self.denial is None:
            return None
        try:
            denied, _ = self.denies(scope)
            text = self.denial.message or "refused by its conditions"
        except EvaluationError as error:
            denied, text = True, f"failed to check deny conditions: {error}"
        if not denied:
            return None
        return ImageOutcome(Status.FAIL, f"validation in verifyImages failed: {text}")


def _compile_attestations(
    block: VerifyImages, setting: RuleContext
) -> Iterator[_CompiledAttestation]:
    for index, each in enumerate(block.attestations):
        field = f".attestations[{index}]"
        type_ = each.type or each.predicate_type
        if not type_:
            raise CompileError("type is missing", where=field)
        conditions = list(each.conditions) if each.conditions else None
        yield _CompiledAttestation(
            field,
            each.name,
            type_,
            compile_attestor_sets(_attestors_of(each), block, setting.policy.namespace, field),
            compile_conditions(conditions, setting.expressions, where=f"{field}.conditions"),
        )


def _attestors_of(attestation: Attestation) -> tuple[AttestorSet, ...]:
    # Without a signer, an attestor that is never accepted reports it for every image.
    return attestation.attestors or (AttestorSet(entries=(Attestor(),)),)


class _StatementCheck:
    """Checks the attestations of one type. Caches the content of the first."""

    def __init__(
        self, attestation: _CompiledAttestation, evidence: ImageEvidence, scope: Scope
    ) -> None:
        self._attestation = attestation
        self._evidence = evidence
        self._scope = scope
        self.predicate: JsonObject = {}

    def check(self, wanted: WantedSigner) -> tuple[VerifiedStatement, ...]:
        """Every attestation of the type by this signer must satisfy the conditions."""
        attestation = self._attestation
        statements = self._evidence.read_statements(wanted, attestation.type)
        predicates = [read_predicate(each) for each in statements]
        for predicate in predicates:
            self._check_conditions(predicate)
        self.predicate = self.predicate or predicates[0]
        return statements

    def _check_conditions(self, predicate: JsonObject) -> None:
        attestation = self._attestation
        if attestation.holds is None:
            return
        try:
            holds, text = attestation.holds(self._scope.with_values(predicate))
        except LookupFailedError:
            raise
        except LictorError as error:
            raise SignatureRefusedError(f"failed to check attestations: {error}") from error
        if not holds:
            text = f"attestation checks failed for predicate {attestation.type}: {text}"
            raise SignatureRefusedError(text.rstrip(": "))


def _fail_signatures(image: ResourceImage, refusals: tuple[Refusal, ...]) -> ImageOutcome:
    status = Status.ERROR if any(each.unknown for each in refusals) else Status.FAIL
    text = "; ".join(each.text for each in refusals)
    return ImageOutcome(status, f"failed to verify image {image.reference}: {text}")


def _format_attestations_failure(image: ResourceImage, text: str) -> str:
    return f"image attestations verification failed for {image.reference}: {text}"
