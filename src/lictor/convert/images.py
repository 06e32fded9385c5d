"""The variable `images`: as far as Kyverno's CEL takes image names apart in the same way."""

from lictor.convert.navigation import as_stream
from lictor.convert.place import TEXT, Names, Place
from lictor.convert.subject import Subject
from lictor.convert.value import Stream, Value, settle
from lictor.errors import CompileError
from lictor.lang.jmespath.nodes import Kind, Node

_CONTAINERS = frozenset(("containers", "initContainers", "ephemeralContainers"))


def is_images(node: Node) -> bool:
    """Tell whether a node is the variable."""
    return node.kind is Kind.FIELD and node.value == "images"


def images_of(field: str, subject: Subject, names: Names) -> Value:
    """The images of the containers of one field, in place of a map by container."""
    if subject.pod is None and not _is_pod(subject):
        raise CompileError("images of what is not known to be a Pod")
    if field not in _CONTAINERS:
        raise CompileError(f"images.{field} has no equivalent")
    stream = as_stream(subject.navigate((*(subject.pod or ()), "spec", field)), names)
    if not isinstance(stream, Stream) or not isinstance(stream.item, Place):
        raise CompileError("images of containers that are no list")
    return Stream(stream.sources, stream.item.step("image"))


def _is_pod(subject: Subject) -> bool:
    return subject.shape.step("spec").step("containers").type == "list"


def image_parts(images: Value, part: Node) -> Value:
    """One part of each image's name."""
    if part.kind is not Kind.FIELD or part.value != "registry" or not isinstance(images, Stream):
        # Kyverno's CEL writes out what is left out (`library/`, digests without tags).
        raise CompileError(f"images.*.{part.value}: CEL takes image names apart in another way")
    image = settle(images.item)
    if not isinstance(image, Place):
        raise CompileError("images that are no texts")
    text = 'image({}).registry().replace("index.docker.io", "docker.io")'
    return Stream(images.sources, image.become(text, TEXT))
