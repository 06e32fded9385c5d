"""References of container images, taken apart as Kyverno does."""

import re
from functools import lru_cache
from typing import ClassVar

from cel2.faults import CelError
from cel2.functions import Library, succeeds
from cel2.values import StrictOpaque
from lictor.core.lang.url import parse_url

_HUB = "index.docker.io"
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REPOSITORY = re.compile(r"[a-z0-9_./-]{2,255}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Image(StrictOpaque):
    """The parts of an image's name; a reference by digest may have a tag as well."""

    text: str
    registry: str
    repository: str
    tag: str
    digest: str
    type_name: ClassVar[str] = "kyverno.image"


@lru_cache(maxsize=4096)
def parse_image(text: str) -> Image:
    """Read a reference as the registry client of Kyverno does; CelError for anything else."""
    base, tag = _split_tag(text)
    place = _parse_repository(base)
    if place and (tag is None or _TAG.fullmatch(tag)):
        return Image(text, *place, tag or "latest", "")
    base, at, digest = text.partition("@")
    if at and _DIGEST.fullmatch(digest):
        untagged, tag = _split_tag(base)
        has_tag = bool(tag and _TAG.fullmatch(tag))
        place = _parse_repository(untagged if has_tag else base)
        if place:
            return Image(text, *place, tag if has_tag and tag else "", digest)
    raise CelError(f"could not parse reference: {text}")


def _split_tag(text: str) -> tuple[str, str | None]:
    base, _, tag = text.rpartition(":")
    return (base, tag) if base and "/" not in tag else (text, None)


def _parse_repository(text: str) -> tuple[str, str] | None:
    first, slash, rest = text.partition("/")
    # Unlike elsewhere, a bare `localhost` is a folder of Docker Hub here.
    if slash and ("." in first or ":" in first):
        registry, repository = first, rest
    else:
        registry, repository = "", text
    if not _REPOSITORY.fullmatch(repository) or not _is_registry(registry):
        return None
    registry = _HUB if registry in {"", "docker.io"} else registry
    implied = registry == _HUB and "/" not in repository
    return registry, f"library/{repository}" if implied else repository


def _is_registry(registry: str) -> bool:
    try:
        return not registry or parse_url(f"https://{registry}").host == registry
    except ValueError:
        return False


def _identifier(image: Image) -> str:
    if not image.digest:
        return image.tag
    return f"{image.tag}@{image.digest}" if image.tag else image.digest


_I = "kyverno.image"
IMAGES = Library(
    (f"image(string) -> {_I}", parse_image),
    (f"parseImageReference(string) -> {_I}", parse_image),
    ("isImage(string) -> bool", succeeds(parse_image)),
    (f"{_I}::containsDigest() -> bool", lambda image: bool(image.digest)),
    (f"{_I}::registry() -> string", lambda image: image.registry),
    (f"{_I}::repository() -> string", lambda image: image.repository),
    (f"{_I}::identifier() -> string", _identifier),
    (f"{_I}::tag() -> string", lambda image: image.tag),
    (f"{_I}::digest() -> string", lambda image: image.digest),
)
SEPARATOR = Library(
    (
        f"{_I}::identifierWithSeparator() -> string",
        lambda image: f"@{image.digest}" if image.digest else f":{image.tag}",
    ),
)
# Before Kyverno 1.19 a tag beside a digest was ignored.
OLD_IMAGES = Library(
    (f"{_I}::identifier() -> string", lambda image: image.digest or image.tag),
    (f"{_I}::tag() -> string", lambda image: "" if image.digest else image.tag),
)
