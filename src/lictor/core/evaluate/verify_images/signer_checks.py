"""Checks that all required signers have signed: quorums of attestors for one image."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from lictor.core.errors import (
    EvaluationError,
    ImageNotFoundError,
    LictorError,
    LookupFailedError,
    SignatureRefusedError,
)
from lictor.core.evaluate.verify_images.attestors import (
    BUNDLE,
    Quorum,
    SecretKey,
    UnusableAttestor,
    WantedSigner,
    read_secret_keys,
)
from lictor.core.ports import Lookups, Registries
from lictor.core.raw import JsonObject
from lictor.core.signatures.records import (
    CosignAttestor,
    FoundSignature,
    Identity,
    SignatureLocation,
    SignedImage,
    TrustedIdentity,
    TrustedNotary,
    VerifiedSignature,
    VerifiedStatement,
)

_Proof = TypeVar("_Proof")


class Refusal(msgspec.Struct, frozen=True):
    """Why one attestor is not accepted."""

    text: str
    # The registry did not answer: the result is unknown.
    unknown: bool = False


# What this attestor proved; raises SignatureRefusedError or LookupFailedError if not accepted.
CheckSigner: TypeAlias = Callable[[WantedSigner], object]


def find_refusals(quorum: Quorum, check: CheckSigner) -> tuple[Refusal, ...]:
    """Nothing if enough have signed; otherwise why each of the others is not accepted."""
    refusals: list[Refusal] = []
    satisfied = 0
    for member in quorum.members:
        found = _check_member(member, check)
        refusals += found
        satisfied += not found
        if satisfied >= quorum.required:
            return ()
    # A quorum larger than its number of members is never satisfied.
    return tuple(refusals) or (Refusal(f"only {satisfied} of {quorum.required} have signed"),)


def _check_member(member: WantedSigner | Quorum, check: CheckSigner) -> tuple[Refusal, ...]:
    if isinstance(member, Quorum):
        return find_refusals(member, check)
    try:
        check(member)
    except (SignatureRefusedError, LookupFailedError, EvaluationError) as error:
        return (refuse(error, member.field),)
    return ()


def refuse(error: LictorError, field: str = "") -> Refusal:
    """The refusal for the attestor that a field names."""
    unknown = not isinstance(error, SignatureRefusedError | ImageNotFoundError)
    return Refusal(f"{field}: {error}" if field else str(error), unknown)


class ImageEvidence:
    """The signatures and attestations of one image; looked up once for all attestors."""

    def __init__(
        self, registries: Registries, lookups: Lookups, image: SignedImage, form: str
    ) -> None:
        """`form` is the type of the block: Cosign, SigstoreBundle or Notary."""
        self._registries = registries
        self._lookups = lookups
        self._image = image
        self._form = form
        self._found: dict[tuple[str, SignatureLocation], tuple[FoundSignature, ...]] = {}

    def check_signature(self, wanted: WantedSigner) -> VerifiedSignature:
        """Verify that this attestor signed the image, with the required annotations."""
        signer = wanted.signer
        if isinstance(signer, UnusableAttestor):
            raise SignatureRefusedError(signer.reason)
        if isinstance(signer, TrustedNotary):
            return self._check_notary(wanted, signer)
        if isinstance(signer, SecretKey):
            keys = read_secret_keys(signer, self._lookups)
            return _check_any(keys, lambda key: self._check_cosign(wanted, key))
        return self._check_cosign(wanted, signer)

    def read_statements(self, wanted: WantedSigner, type_: str) -> tuple[VerifiedStatement, ...]:
        """The attestations of a type by this attestor; SignatureRefusedError without any."""
        signer = wanted.signer
        if isinstance(signer, UnusableAttestor):
            raise SignatureRefusedError(signer.reason)
        if wanted.annotations:
            # Only signatures carry annotations.
            raise SignatureRefusedError("no attestation carries the required annotations")
        if isinstance(signer, TrustedNotary):
            return self._read_referrers(wanted, signer, type_)
        signers: tuple[CosignAttestor, ...] = (
            read_secret_keys(signer, self._lookups) if isinstance(signer, SecretKey) else (signer,)
        )
        return _check_any(signers, lambda each: self._read_cosign(wanted, each, type_))

    def _check_cosign(self, wanted: WantedSigner, signer: CosignAttestor) -> VerifiedSignature:
        from lictor.core.signatures.verification import accept_signature

        found = self._find("signatures", wanted.location)
        return accept_signature(found, self._image, signer, self._registries, wanted.annotations)

    def _read_cosign(
        self, wanted: WantedSigner, signer: CosignAttestor, type_: str
    ) -> tuple[VerifiedStatement, ...]:
        from lictor.core.signatures.verification import accept_statements

        found = self._find("attestations", wanted.location)
        made = _of_type(accept_statements(found, self._image, signer, self._registries), type_)
        if not made:
            raise SignatureRefusedError(f"attestations not found for predicate type {type_}")
        if isinstance(signer, TrustedIdentity) and self._form != BUNDLE:
            self._refuse_foreign(found, signer, made)
        return made

    def _refuse_foreign(
        self,
        found: tuple[FoundSignature, ...],
        signer: TrustedIdentity,
        made: tuple[VerifiedStatement, ...],
    ) -> None:
        """As in Kyverno, an attestation of the type by another identity overrides the right one."""
        from lictor.core.signatures.verification import accept_statements

        # An empty identity is rejected: it would trust everyone.
        everybody = (Identity(issuer_regexp=".*"),)
        anyone = msgspec.structs.replace(signer, identities=everybody, extensions={})
        trusted = accept_statements(found, self._image, anyone, self._registries)
        foreign = len(_of_type(trusted, made[0].predicate_type)) - len(made)
        if foreign > 0:
            raise SignatureRefusedError(
                f"{foreign} attestations of type {made[0].predicate_type} are by others"
            )

    def _find(self, what: str, location: SignatureLocation) -> tuple[FoundSignature, ...]:
        from lictor.core.signatures import discovery

        key = (what, location)
        found = self._found.get(key)
        if found is None:
            if self._form == BUNDLE:
                find = discovery.find_bundles
            elif what == "signatures":
                find = discovery.find_signatures
            else:
                find = discovery.find_attestations
            found = self._found[key] = find(self._registries, self._image, location)
        return found

    def _check_notary(self, wanted: WantedSigner, signer: TrustedNotary) -> VerifiedSignature:
        from lictor.core.signatures.notary import verify_notary

        now = self._lookups.now()
        return verify_notary(
            self._registries, self._image, signer, wanted.location, now, wanted.annotations
        )

    def _read_referrers(
        self, wanted: WantedSigner, signer: TrustedNotary, type_: str
    ) -> tuple[VerifiedStatement, ...]:
        from lictor.core.signatures.notary import verify_referrers

        now = self._lookups.now()
        return verify_referrers(self._registries, self._image, type_, signer, wanted.location, now)


def _check_any(
    signers: tuple[CosignAttestor, ...], check: Callable[[CosignAttestor], _Proof]
) -> _Proof:
    refusals = []
    for signer in signers:
        try:
            return check(signer)
        except SignatureRefusedError as error:
            refusals.append(str(error))
    raise SignatureRefusedError("; ".join(refusals))


def _of_type(
    statements: tuple[VerifiedStatement, ...], type_: str
) -> tuple[VerifiedStatement, ...]:
    return tuple(each for each in statements if each.predicate_type == type_)


def read_predicate(statement: VerifiedStatement) -> JsonObject:
    """The attested content by field; raises SignatureRefusedError if it has no fields."""
    predicate = statement.statement.get("predicate")
    if not isinstance(predicate, dict):
        raise SignatureRefusedError(f"{statement.origin} has no predicate with fields")
    return predicate
