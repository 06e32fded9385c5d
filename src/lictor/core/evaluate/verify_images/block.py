"""One block of verifyImages: which images it matches, and their verification."""

import hashlib
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import orjson
from msgspec.structs import replace

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.evaluate.expressions import remember_compiled
from lictor.core.evaluate.rule_context import RuleContext
from lictor.core.evaluate.verify_images.block_verification import BlockVerification, TaggedImage
from lictor.core.evaluate.verify_images.outcome_cache import ImageOutcome, OutcomeCache
from lictor.core.evaluate.verify_images.resource_images import ResourceImage
from lictor.core.lang.image_reference import list_aliases
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.model.policy import VerifyImages
from lictor.core.model.program import Case
from lictor.core.model.result import Status
from lictor.core.model.scope import Scope
from lictor.core.model.signatures import Attestor, AttestorSet, Keyless, StaticKeys
from lictor.core.ports import RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

# Variables that differ between requests, or with time; if conditions may use one, their result for
# one request is not cached for others.
_VARYING: Final = ("request", "serviceAccount", "images", "image", "time_", "random", "@")

# Whether a pattern matches an image; returns the name that matched.
Verify: TypeAlias = Callable[[Scope, "TaggedImage"], ImageOutcome]


class Block(msgspec.Struct, frozen=True):
    """A block of a rule, as far as it depends on the policy only."""

    written: VerifyImages
    names: Callable[[ResourceImage], bool]
    skips: Callable[[str], bool]
    # The block with its variables resolved; raises EvaluationError if they cannot be.
    fill: "Callable[[Case], FilledBlock]"

    @property
    def verifies(self) -> bool:
        return bool(self.written.attestors or self.written.attestations)


class FilledBlock(msgspec.Struct, frozen=True):
    """The requirements of a block for one request."""

    # Of everything that its outcomes depend on; empty if they depend on the request.
    fingerprint: str
    access: RegistryAccess
    verify: Verify


def compile_block(
    written: VerifyImages, setting: RuleContext, context_names: tuple[str, ...]
) -> Block:
    """Compile one block; `context_names` are the rule's context entries."""
    block = _replace_deprecated(written)
    document = setting.expressions.document(_list_filled(block))
    make = remember_compiled(lambda filled: _compile_filled(filled, block, setting, context_names))
    if document.is_constant:
        constant = make(document.constant)
        # Without variables the scope is not needed; it is built on first use.
        fill: Callable[[Case], FilledBlock] = lambda _: constant  # noqa: E731
    else:
        fill = lambda case: make(_fill(document.fill, case.scope))  # noqa: E731
    return Block(
        block,
        compile_names(block.image_references),
        _compile_any(block.skip_image_references),
        fill,
    )


def _list_filled(block: VerifyImages) -> JsonObject:
    """Everything but conditions: these are evaluated when the attestation is known."""
    fields: JsonObject = orjson.loads(msgspec.json.encode(replace(block, validate=None)))
    fields["attestations"] = [
        {key: value for key, value in each.items() if key != "conditions"}
        for each in fields.get("attestations", ())
    ]
    message = block.validate.message if block.validate is not None else ""
    return {"block": fields, "message": message}


def _fill(fill: Callable[[Scope], Json], scope: Scope) -> Json:
    try:
        return fill(scope)
    except EvaluationError as error:
        raise EvaluationError(f"failed to substitute variables: {error}") from error


def compile_names(patterns: tuple[str, ...]) -> Callable[[ResourceImage], bool]:
    """Whether one of these patterns matches an image, by digest, tag or another of its names."""
    fits = _compile_any(patterns)
    return lambda image: any(
        fits(name) or any(map(fits, list_aliases(name))) for name in image.names
    )


def _compile_any(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    tests = [compile_wildcard(pattern) for pattern in patterns]
    return lambda text: any(test(text) for test in tests)


def _replace_deprecated(block: VerifyImages) -> VerifyImages:
    """The same with the deprecated fields moved to `attestors`."""
    entry = None
    if block.key:
        entry = Attestor(keys=StaticKeys(public_keys=block.key), annotations=block.annotations)
    elif block.issuer or block.subject:
        keyless = Keyless(
            issuer=block.issuer,
            subject=block.subject,
            roots=block.roots,
            additional_extensions=block.additional_extensions,
        )
        entry = Attestor(keyless=keyless, annotations=block.annotations)
    added = () if entry is None else (AttestorSet(entries=(entry,)),)
    return replace(
        block, image_references=list_references(block), attestors=(*block.attestors, *added)
    )


def list_references(block: VerifyImages) -> tuple[str, ...]:
    """The image patterns of a block."""
    return (*block.image_references, block.image) if block.image else block.image_references


def _compile_filled(
    filled: Json, written: VerifyImages, setting: RuleContext, context_names: tuple[str, ...]
) -> FilledBlock:
    message = str(filled["message"])
    try:
        block = convert_record(filled["block"], VerifyImages)
    except msgspec.ValidationError as error:
        raise EvaluationError(f"failed to substitute variables: {error}") from error
    attestations = tuple(
        replace(each, conditions=original.conditions)
        for each, original in zip(block.attestations, written.attestations, strict=True)
    )
    block = replace(block, attestations=attestations, validate=written.validate)
    verification = BlockVerification.compile(block, message, setting)
    return FilledBlock(
        _fingerprint(block, message, setting, context_names),
        verification.access,
        verification.verify,
    )


def _fingerprint(
    block: VerifyImages, message: str, setting: RuleContext, context_names: tuple[str, ...]
) -> str:
    deny = block.validate.deny if block.validate is not None else None
    asked = [each.conditions for each in block.attestations]
    text = orjson.dumps([asked, None if deny is None else deny.conditions]).decode()
    if any(name in text for name in (*_VARYING, *context_names)):
        return ""
    said = msgspec.json.encode([setting.policy.namespace, message, block])
    return hashlib.sha256(said).hexdigest()


def find_outcome(
    block: Block, tagged: TaggedImage, case: Case, cache: OutcomeCache
) -> ImageOutcome:
    """The outcome for an image, cached if known."""
    filled = block.fill(case)
    keeps = bool(filled.fingerprint) and block.written.use_cache
    known = _find_known(filled, tagged, cache) if keeps else None
    if known is not None:
        return known
    outcome = filled.verify(case.scope, tagged)
    if keeps:
        _keep(block, filled, tagged, outcome, cache)
    return outcome


def _find_known(
    filled: FilledBlock, tagged: TaggedImage, cache: OutcomeCache
) -> ImageOutcome | None:
    if not tagged.digest:
        known = cache.find(filled.fingerprint, tagged.image.reference)
        if known is not None:
            # Later rules for this object must verify the same image.
            tagged.digest = known.digest
            return known
        try:
            tagged.find_digest()
        except LookupFailedError:
            return None
    return cache.find(filled.fingerprint, tagged.pinned)


def _keep(
    block: Block,
    filled: FilledBlock,
    tagged: TaggedImage,
    outcome: ImageOutcome,
    cache: OutcomeCache,
) -> None:
    if tagged.digest:
        cache.keep(filled.fingerprint, tagged.pinned, outcome)
    # If the digest is not written into the object, the tag may mean another image tomorrow: then a
    # success is cached by digest only.
    if block.written.mutate_digest or outcome.status is not Status.PASS:
        cache.keep(filled.fingerprint, tagged.image.reference, outcome)
