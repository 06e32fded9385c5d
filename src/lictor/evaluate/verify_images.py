"""`verifyImages`, until signatures can be verified: which images does a rule let nobody use?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lictor.errors import EvaluationError
from lictor.evaluate.images import extract_images
from lictor.lang.wildcard import compile_wildcard
from lictor.model.policy import ImageExtractor, VerifyImages
from lictor.model.program import Case, Check
from lictor.model.result import Result
from lictor.raw import Json, JsonObject

# The ways to write one image: with and without its registry, tag and digest.
_Names: TypeAlias = tuple[str, ...]

UNVERIFIED = (
    "this release of lictor cannot verify signatures of images, and lets no image pass that a "
    "verifyImages rule names"
)
_ADVICE = (
    "remove the rule, leave the image out with skipImageReferences, or set failureAction to Audit"
)


def compile_verify_images(
    blocks: Sequence[VerifyImages], extractors: Mapping[str, tuple[ImageExtractor, ...]]
) -> Check:
    """A check that answers nothing about images that no block names, and an error about others."""
    tests = [_compile_block(block) for block in blocks]

    def check(case: Case) -> tuple[Result, ...]:
        resource = case.request.object
        if resource is None:
            return ()
        if str(resource.get("kind", "")) in extractors:
            raise EvaluationError(f"{UNVERIFIED}: {_ADVICE}")
        for names in _list_images(resource):
            if any(test(names) for test in tests):
                raise EvaluationError(f"image {names[0]}: {UNVERIFIED}: {_ADVICE}")
        return ()

    return check


def _compile_block(block: VerifyImages) -> Callable[[_Names], bool]:
    wanted = [compile_wildcard(text) for text in (*block.image_references, block.image) if text]
    spared = [compile_wildcard(text) for text in block.skip_image_references]

    def names_image(names: _Names) -> bool:
        # A block that names nothing would be about everything if someone mended it.
        is_wanted = not wanted or any(test(name) for test in wanted for name in names)
        return is_wanted and not any(test(name) for test in spared for name in names)

    return names_image


def _list_images(resource: JsonObject) -> Iterator[_Names]:
    for images in extract_images(resource).values():
        for image in images.values():
            yield tuple(dict.fromkeys(_write_names(image)))


def _write_names(image: Mapping[str, Json]) -> Iterator[str]:
    yield str(image["reference"])
    yield str(image["referenceWithTag"])
    # As people write an image of the default registry.
    for name in (str(image["reference"]), str(image["referenceWithTag"])):
        yield name.removeprefix("docker.io/")
