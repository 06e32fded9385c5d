"""Manifests and lists of descriptors, read from the bytes that a registry or a folder keeps."""

import orjson

from lictor.errors import LookupFailedError
from lictor.ports import Descriptor, ImageManifest
from lictor.raw import Json, JsonObject
from lictor.registry.repository_name import check_digest, check_reference, compute_digest, is_digest

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX_TYPES = frozenset((OCI_INDEX, DOCKER_LIST))
ACCEPTED = ", ".join((OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST))
# Of signatures and attestations an image has a few; of platforms, dozens.
MOST_DESCRIPTORS = 1000


def read_manifest(content: bytes, tag_or_digest: str, name: str) -> ImageManifest:
    """A manifest whose digest was computed, and compared where it was asked for by digest."""
    if is_digest(tag_or_digest):
        check_digest(content, tag_or_digest, name)
        digest = tag_or_digest
    else:
        digest = compute_digest(content)
    return ImageManifest(_find_media_type(read_object(content, name), name), digest, content)


def read_object(content: bytes, name: str) -> JsonObject:
    """The JSON object that the content holds."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise LookupFailedError(f"{name}: the registry answered no JSON: {error}") from error
    if not isinstance(found, dict):
        raise LookupFailedError(f"{name}: the registry answered no JSON object")
    return found


def _find_media_type(document: JsonObject, name: str) -> str:
    """What the document says it is, or else what it looks like.

    The header of the answer counts for nothing: it has no digest, and one who changes it could show
    an index to one reader and a manifest to another.
    """
    is_index = "manifests" in document
    if is_index and ("layers" in document or "config" in document):
        raise LookupFailedError(f"{name} is both an index and a manifest: neither is believed")
    said = document.get("mediaType")
    if isinstance(said, str) and said:
        if (said in INDEX_TYPES) != is_index:
            raise LookupFailedError(f"{name} says that it is {said[:100]}, and is not")
        return said
    return OCI_INDEX if is_index else OCI_MANIFEST


def read_descriptors(
    content: bytes, name: str, most: int = MOST_DESCRIPTORS
) -> tuple[Descriptor, ...]:
    """The manifests that an index lists."""
    listed = read_object(content, name).get("manifests")
    if listed is None:
        return ()
    if not isinstance(listed, list) or len(listed) > most:
        raise LookupFailedError(f"{name}: no list of at most {most} manifests")
    return tuple(_read_descriptor(entry, name) for entry in listed)


def _read_descriptor(entry: Json, name: str) -> Descriptor:
    if not isinstance(entry, dict):
        raise LookupFailedError(f"{name}: an entry of the index is no object")
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise LookupFailedError(f"{name}: an entry of the index has no digest")
    check_reference(digest)
    annotations = entry.get("annotations")
    return Descriptor(
        media_type=_text(entry.get("mediaType")),
        digest=digest,
        size=size if isinstance(size, int) and not isinstance(size, bool) else 0,
        annotations={key: _text(value) for key, value in annotations.items()}
        if isinstance(annotations, dict)
        else {},
        artifact_type=_text(entry.get("artifactType")),
    )


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
