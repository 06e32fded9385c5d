"""A rule with verifyImages is evaluated in two phases, as in Kyverno.

The verification returns one result for each image, and writes digests into the object; the check of
the final object returns one result about digests and `required`. Annotations of a request are
written, and never trusted.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.evaluate.verify_images.annotations import (
    PolicyRule,
    annotate_outcomes,
    annotate_scoped,
    format_status,
    list_known_outcomes,
    was_accepted,
)
from lictor.core.evaluate.verify_images.block import (
    Block,
    compile_block,
    compile_names,
    find_outcome,
    list_references,
)
from lictor.core.evaluate.verify_images.block_verification import TaggedImage
from lictor.core.evaluate.verify_images.outcome_cache import ImageOutcome, OutcomeCache
from lictor.core.evaluate.verify_images.resource_images import (
    ListImages,
    ResourceImage,
    compile_image_list,
)
from lictor.core.model.policy import Rule
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Result, Status
from lictor.core.raw import Json, JsonObject


class ImageRule(msgspec.Struct, frozen=True):
    """A rule with verifyImages: its blocks, and the paths of images."""

    setting: RuleContext
    blocks: tuple[Block, ...]
    list_images: ListImages
    cache: OutcomeCache

    def _find_named(self, resource: JsonObject) -> list[ResourceImage]:
        """The images that blocks match, once for each block."""
        return [
            image
            for image in self.list_images(resource)
            for block in self.blocks
            if block.names(image)
        ]

    def verify(self, case: Case) -> tuple[Result, ...]:
        """One result for each image and block; the last has the object with digests."""
        resource = case.request.object
        if resource is None:
            return ()
        verified = _Verified(resource)
        named = self._find_named(resource)
        results = [
            self.setting.result(case, outcome)
            for block in self.blocks
            for image in named
            for outcome in self._verify_image(case, block, image, verified)
        ]
        changed = verified.finish(case, self._rule)
        if changed is not resource:
            if not results:
                # What a user wrote into the annotation is removed without a word.
                silent = self.setting.result(case, RuleOutcome(Status.PASS, ""))
                results.append(replace(silent, is_silent=True))
            results[-1] = replace(results[-1], patched=changed)
        return tuple(results)

    def _verify_image(
        self, case: Case, block: Block, image: ResourceImage, verified: "_Verified"
    ) -> Iterator[RuleOutcome]:
        if self._is_accepted(case, block, image):
            return
        tagged = self._tag(case, block, image, verified.digests.get(image.text, ""))
        outcome = self._check_image(case, block, tagged)
        if block.written.mutate_digest and not image.parts.digest:
            try:
                verified.write_digest(image, tagged.find_digest())
            except LookupFailedError as error:
                yield RuleOutcome(Status.ERROR, f"failed to update digest: {error}")
            else:
                outcome = outcome or ImageOutcome(Status.PASS, "mutated image digest")
        if tagged.digest:
            verified.digests[image.text] = tagged.digest
        if outcome is not None:
            if block.verifies:
                # As in Kyverno, by the name after the change.
                is_pinned = bool(block.written.mutate_digest and tagged.digest)
                verified.note(tagged, outcome.status, is_pinned=is_pinned)
            yield RuleOutcome(outcome.status, outcome.message)

    @property
    def _rule(self) -> PolicyRule:
        policy = self.setting.policy
        return PolicyRule(f"{policy.namespace}/{policy.name}", self.setting.rule)

    def _is_accepted(self, case: Case, block: Block, image: ResourceImage) -> bool:
        """Whether an update keeps an image that this rule has accepted, as in Kyverno 1.19."""
        request = case.request
        if not image.is_in(request.old_object):
            return False
        # Finalizers of an object that is being deleted are removed by updates.
        is_leaving = "deletionTimestamp" in request.resource.get("metadata", {})
        is_known = is_leaving or not block.verifies
        return is_known or was_accepted(request, self._rule, image.reference)

    def _tag(self, case: Case, block: Block, image: ResourceImage, digest: str = "") -> TaggedImage:
        return TaggedImage(image, self.setting, block.fill(case).access, digest)

    def _check_image(self, case: Case, block: Block, tagged: TaggedImage) -> ImageOutcome | None:
        if not block.verifies:
            return None
        image = tagged.image
        if not block.names(image) or block.skips(image.reference):
            named, policy, rule = image.reference, self.setting.policy.name, self.setting.rule
            message = f"skipping image reference image {named}, policy {policy} ruleName {rule}"
            return ImageOutcome(Status.SKIP, message)
        return find_outcome(block, tagged, case, self.cache)

    def check_images(self, case: Case) -> tuple[Result, ...]:
        """The final object: does each image have its digest, and was it verified?"""
        resource = case.request.object
        if resource is None:
            return ()
        passed, skipped = list[str](), list[str]()
        for block in self.blocks:
            for image in self.list_images(resource):
                if not block.names(image):
                    continue
                fault = self._find_fault(case, block, image)
                if fault:
                    return (self.setting.result(case, RuleOutcome(Status.FAIL, fault)),)
                is_skipped = block.written.required and self._is_skipped(case, image)
                (skipped if is_skipped else passed).append(image.reference)
        outcome = _sum_up(passed, skipped)
        return (self.setting.result(case, outcome),) if outcome is not None else ()

    def _is_skipped(self, case: Case, image: ResourceImage) -> bool:
        """The last block decides, as in Kyverno; none of them has failed."""
        last = self.blocks[-1]
        return last.verifies and (not last.names(image) or self._is_exempt(case, last, image))

    def _find_fault(self, case: Case, block: Block, image: ResourceImage) -> str:
        if block.written.verify_digest and not image.parts.digest:
            return f"missing digest for {image.reference}"
        if not block.written.required or self._is_accepted(case, block, image):
            return ""
        return (
            "" if self._is_verified(case, block, image) else f"unverified image {image.reference}"
        )

    def _is_verified(self, case: Case, block: Block, image: ResourceImage) -> bool:
        # A block without attestors verifies nothing: `required` demands a verification, and anyone
        # could have written the object's annotations.
        if not block.verifies:
            return False
        try:
            if self._is_exempt(case, block, image):
                return True
            tagged = self._tag(case, block, image)
            return find_outcome(block, tagged, case, self.cache).status is Status.PASS
        except EvaluationError:
            # The verification has reported the reason.
            return False

    def _is_exempt(self, case: Case, block: Block, image: ResourceImage) -> bool:
        """Whether skipImageReferences matches it, or matched it before its digest was written."""
        if block.skips(image.reference):
            return True
        tagged_name = image.parts.reference_with_tag
        if not (image.parts.digest and image.parts.tag and block.skips(tagged_name)):
            return False
        # A user may prepend the name of an exempt tag to the digest of another image.
        try:
            return self._tag(case, block, image).query_registry() == image.parts.digest
        except LookupFailedError:
            return False


def _sum_up(passed: list[str], skipped: list[str]) -> RuleOutcome | None:
    if not passed and not skipped:
        return None
    text = f", skipped images: {' '.join(skipped)}" if skipped else ""
    if passed:
        return RuleOutcome(Status.PASS, f"image verified{text}")
    return RuleOutcome(Status.SKIP, f"image skipped{text}")


class _Verified:
    """The effects of a verification: digests in the object, and outcomes in annotations."""

    def __init__(self, resource: JsonObject) -> None:
        self._resource = resource
        self._changed: Json = resource
        self._outcomes: dict[str, str] = {}
        # Resolved tags: the same for every block and container.
        self.digests: dict[str, str] = {}

    def write_digest(self, image: ResourceImage, digest: str) -> None:
        named = f"{image.parts.reference_with_tag}@{digest}"
        self._changed = _replace_at(self._changed, image.path, named)

    def note(self, tagged: TaggedImage, status: Status, *, is_pinned: bool) -> None:
        named = tagged.pinned if is_pinned else tagged.image.reference
        self._outcomes[named] = format_status(status)

    def finish(self, case: Case, rule: PolicyRule) -> JsonObject:
        """The final object; the same object if nothing changed."""
        changed: JsonObject = self._changed
        if self._outcomes:
            known = list_known_outcomes(case.request, self._resource)
            changed = annotate_outcomes(changed, {**known, **self._outcomes})
        return annotate_scoped(case.request, changed, rule, self._outcomes)


def _replace_at(document: Json, path: tuple[str | int, ...], value: str) -> Json:
    """A copy of the document in which only the parents of the path are new."""
    if not path:
        return value
    step = path[0]
    if isinstance(document, list) and isinstance(step, int):
        return [
            _replace_at(element, path[1:], value) if index == step else element
            for index, element in enumerate(document)
        ]
    return {**document, step: _replace_at(document[step], path[1:], value)}


def compile_image_rule(rule: Rule, setting: RuleContext, cache: OutcomeCache) -> ImageRule:
    """Compile the image verification of a rule."""
    names = tuple(entry.name for entry in rule.context)
    blocks = tuple(compile_block(block, setting, names) for block in rule.verify_images)
    images = compile_image_list(rule.image_extractors, setting.expressions)
    return ImageRule(setting, blocks, images, cache)


def only_named(check: Check, rule: Rule, expressions: Expressions) -> Check:
    """The check for objects with a matching image; no results for others."""
    list_images = compile_image_list(rule.image_extractors, expressions)
    names = compile_names(
        tuple(pattern for block in rule.verify_images for pattern in list_references(block))
    )

    def check_named(case: Case) -> tuple[Result, ...]:
        resource = case.request.object
        if resource is None or not any(map(names, list_images(resource))):
            return ()
        return check(case)

    return check_named
