"""Kyverno's functions about images: references and their parts, metadata, signatures."""

import re
from functools import lru_cache

import msgspec

from lictor.core.errors import FunctionError, LookupFailedError
from lictor.core.lang.cel.host import current_host
from lictor.core.lang.cel.types import function, member
from lictor.core.lang.url import parse_url
from lictor.core.raw import Json, JsonObject


def _verify_signatures(image: str, attestors: list[Json]) -> int:
    return current_host.get().verify_signatures(image, attestors)


def _verify_attestations(image: str, attestation: str, attestors: list[Json]) -> int:
    return current_host.get().verify_attestations(image, attestation, attestors)


def _get_payload(image: str, attestation: str) -> Json:
    return current_host.get().attestation_payload(image, attestation)


def _get_image(image: str) -> Json:
    try:
        return current_host.get().image_data(image)
    except LookupFailedError as error:
        raise type(error)(f"failed to get imagedata: {error}") from error


VERIFICATION_OVERLOADS = (
    function("verifyImageSignatures", "string, list<dyn> -> int", _verify_signatures),
    function(
        "verifyAttestationSignatures", "string, string, list<dyn> -> int", _verify_attestations
    ),
    function("extractPayload", "string, string -> dyn", _get_payload),
    function("getImageData", "string -> dyn", _get_image),
)


def _get_metadata(reference: str) -> JsonObject:
    try:
        return current_host.get().image_data(reference)
    except LookupFailedError as error:
        raise type(error)(f"failed to get image data: {error}") from error


IMAGE_DATA_OVERLOADS = tuple(
    function(f"image.{name}", "string -> dyn", _get_metadata)
    for name in ("getMetadata", "GetMetadata")
)


_HUB = "index.docker.io"
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REPOSITORY = re.compile(r"[a-z0-9_./-]{2,255}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Reference(msgspec.Struct, frozen=True):
    """The parts of an image's name; it has a tag or a digest, never both."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""


@lru_cache(maxsize=4096)
def parse_reference(text: str) -> Reference:
    """Take a name apart as the registry client of Kyverno does; FunctionError for what is none."""
    base, tag = _split_tag(text)
    place = _parse_repository(base)
    if place and (tag is None or _TAG.fullmatch(tag)):
        return Reference(*place, tag=tag or "latest")
    base, at, digest = text.partition("@")
    if at and _DIGEST.fullmatch(digest):
        # What stands as a tag beside a digest plays no part.
        untagged, tag = _split_tag(base)
        place = _parse_repository(untagged if tag and _TAG.fullmatch(tag) else base)
        if place:
            return Reference(*place, digest=digest)
    raise FunctionError(f"could not parse reference: {text}")


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
    # Docker Hub's own images live in a folder that nobody writes.
    implied = registry == _HUB and "/" not in repository
    return registry, f"library/{repository}" if implied else repository


def _is_registry(registry: str) -> bool:
    try:
        return not registry or parse_url(f"https://{registry}").host == registry
    except ValueError:
        return False


def _is_image(text: str) -> bool:
    try:
        parse_reference(text)
    except FunctionError:
        return False
    return True


def _make_image(text: str) -> str:
    parse_reference(text)
    return text


def _identifier(text: str) -> str:
    reference = parse_reference(text)
    return reference.tag or reference.digest


IMAGE_OVERLOADS = (
    function("image", "string -> Image", _make_image),
    function("parseImageReference", "string -> Image", _make_image),
    function("isImage", "string -> bool", _is_image),
    member("containsDigest", "Image -> bool", lambda image: bool(parse_reference(image).digest)),
    member("registry", "Image -> string", lambda image: parse_reference(image).registry),
    member("repository", "Image -> string", lambda image: parse_reference(image).repository),
    member("identifier", "Image -> string", _identifier),
    member("tag", "Image -> string", lambda image: parse_reference(image).tag),
    member("digest", "Image -> string", lambda image: parse_reference(image).digest),
)
