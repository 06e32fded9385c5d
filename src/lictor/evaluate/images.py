"""The container images of a resource, and `verifyImages` until signatures can be verified."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lictor.errors import EvaluationError
from lictor.lang.image_reference import parse_image
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


_POD_SPECS: dict[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"),
        ("spec", "template", "spec"),
    ),
}
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def extract_images(resource: JsonObject) -> JsonObject:
    """Map container field and container name to the parts of the image; empty where none is."""
    path = _POD_SPECS.get(str(resource.get("kind", "")))
    if path is None:
        return {}
    spec: Json = resource
    for key in path:
        spec = spec.get(key) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return {}
    found = {field: _images_of(spec.get(field), (*path, field)) for field in _CONTAINERS}
    return {field: images for field, images in found.items() if images}


def _images_of(containers: Json, path: tuple[str, ...]) -> JsonObject:
    images = {}
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        if not isinstance(container, dict) or not isinstance(container.get("image"), str):
            continue
        name = container.get("name")
        key = name if isinstance(name, str) else str(index)
        images[key] = _describe(container["image"], f"/{'/'.join(path)}/{index}/image")
    return images


def _describe(image: str, pointer: str) -> JsonObject:
    try:
        parsed = parse_image(image)
    except ValueError as error:
        raise EvaluationError(f"bad image {image!r} at {pointer}: {error}") from error
    described = {
        "registry": parsed.registry,
        "name": parsed.name,
        "path": parsed.path,
        "tag": parsed.tag,
        "digest": parsed.digest,
        "reference": parsed.reference,
        "referenceWithTag": parsed.reference_with_tag,
    }
    return {**{key: value for key, value in described.items() if value}, "jsonPointer": pointer}
