"""Manifests and lists of descriptors, read from the bytes that a registry keeps."""

import orjson

from lictor.core.errors import LookupFailedError, ModuleError
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.ports import Descriptor, ImageManifest
from lictor.core.raw import Json, JsonObject
from lictor.images.repository_name import check_digest, check_reference, compute_digest, is_digest

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


# --- policy modules as OCI artifacts: manifests read and written as Kubewarden does


LAYER_TYPE = "application/vnd.wasm.content.layer.v1+wasm"
CONFIG_TYPE = "application/vnd.wasm.config.v1+json"
EMPTY_CONFIG = b"{}"
_POLICY_SOURCE = "io.kubewarden.policy.source"
_IMAGE_SOURCE = "org.opencontainers.image.source"


def find_layer(manifest: ImageManifest, name: str, most_bytes: int) -> Descriptor:
    """The layer that is the module; ModuleError where the artifact is no policy."""
    if manifest.media_type in INDEX_TYPES:
        raise ModuleError(f"{name} is an index of several images, no policy module")
    layers = read_object(manifest.content, name).get("layers")
    if not isinstance(layers, list) or len(layers) != 1 or not isinstance(layers[0], dict):
        raise ModuleError(f"{name} is no policy module: one layer is expected")
    media_type, digest, size = (layers[0].get(key) for key in ("mediaType", "digest", "size"))
    if media_type != LAYER_TYPE:
        raise ModuleError(f"{name} is no policy module: its layer is {str(media_type)[:100]}")
    if not isinstance(digest, str) or isinstance(size, bool) or not isinstance(size, int):
        raise ModuleError(f"{name} is no policy module: its layer has no digest or no size")
    if not 0 < size <= most_bytes:
        raise ModuleError(f"{name}: the module has {size} bytes, {most_bytes} are taken")
    check_reference(digest)
    return Descriptor(LAYER_TYPE, digest, size)


def check_layer(content: bytes, layer: Descriptor, name: str) -> None:
    """Does the content have the size that the manifest says? Its digest was checked already."""
    if len(content) != layer.size:
        raise LookupFailedError(
            f"{name}: the module has {len(content)} bytes, the manifest says {layer.size}"
        )


def write_manifest(content: bytes, metadata: ModuleMetadata | None) -> bytes:
    """The manifest of a module, as kwctl writes it: the same module has the same digest."""
    document: JsonObject = {
        "schemaVersion": 2,
        "config": _describe(EMPTY_CONFIG, CONFIG_TYPE),
        "layers": [_describe(content, LAYER_TYPE)],
    }
    annotations = _select_annotations(metadata)
    if annotations:
        document["annotations"] = annotations
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def _describe(content: bytes, media_type: str) -> Json:
    return {"mediaType": media_type, "digest": compute_digest(content), "size": len(content)}


def _select_annotations(metadata: ModuleMetadata | None) -> dict[str, str]:
    """Those of the metadata; texts of several lines stay in the module."""
    found = dict(metadata.annotations or {}) if metadata else {}
    chosen = {key: value for key, value in found.items() if not is_multi_line(value)}
    if _POLICY_SOURCE in chosen:
        chosen[_IMAGE_SOURCE] = chosen[_POLICY_SOURCE]
    return chosen


def is_multi_line(value: str) -> bool:
    """Is an annotation left out of the manifest?"""
    return len(value.splitlines()) > 1
