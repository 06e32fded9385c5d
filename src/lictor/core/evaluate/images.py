"""The container images of a resource, as in the variable `images`."""

from lictor.core.errors import EvaluationError
from lictor.core.lang.image_reference import ImageReference, parse_image
from lictor.core.raw import Json, JsonObject

POD_SPECS: dict[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"),
        ("spec", "template", "spec"),
    ),
}
CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")


def extract_images(resource: JsonObject) -> JsonObject:
    """Map container field and container name to the parts of the image; empty if there is none."""
    path = POD_SPECS.get(str(resource.get("kind", "")))
    if path is None:
        return {}
    spec: Json = resource
    for key in path:
        spec = spec.get(key) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return {}
    found = {field: _images_of(spec.get(field), (*path, field)) for field in CONTAINER_FIELDS}
    return {field: images for field, images in found.items() if images}


def _images_of(containers: Json, path: tuple[str, ...]) -> JsonObject:
    images = {}
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        image = container.get("image") if isinstance(container, dict) else None
        if not isinstance(container, dict) or not isinstance(image, str) or not image:
            continue
        name = container.get("name")
        key = name if isinstance(name, str) else str(index)
        images[key] = _describe(image, f"/{'/'.join(path)}/{index}/image")
    return images


def _describe(image: str, pointer: str) -> JsonObject:
    try:
        return describe_image(parse_image(image), pointer)
    except ValueError as error:
        raise EvaluationError(f"bad image {image!r} at {pointer}: {error}") from error


def describe_image(parsed: ImageReference, pointer: str) -> JsonObject:
    """The parts of an image's name, and its path."""
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
