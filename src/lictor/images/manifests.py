"""Parses manifests and lists of descriptors."""

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
# An image has a few signatures and attestations, and dozens of platforms.
MOST_DESCRIPTORS = 1000


def read_manifest(content: bytes, tag_or_digest: str, name: str) -> ImageManifest:
    """A manifest with its computed digest, which is compared if it was requested by digest."""
    if is_digest(tag_or_digest):
        check_digest(content, tag_or_digest, name)
        digest = tag_or_digest
    else:
        digest = compute_digest(content)
    return ImageManifest(_find_media_type(read_object(content, name), name), digest, content)


def read_object(content: bytes, name: str) -> JsonObject:
    """Parse a JSON object."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise LookupFailedError(f"{name}: the registry returned invalid JSON: {error}") from error
    if not isinstance(found, dict):
        raise LookupFailedError(f"{name}: the registry returned no JSON object")
    return found


def _find_media_type(document: JsonObject, name: str) -> str:
    """The declared media type, otherwise the one that the content implies.

    The response header is ignored: it has no digest, and changing it could present an index to
    one reader and a manifest to another.
    """
    is_index = "manifests" in document
    if is_index and ("layers" in document or "config" in document):
        raise LookupFailedError(f"{name} is both an index and a manifest")
    declared = document.get("mediaType")
    if isinstance(declared, str) and declared:
        if (declared in INDEX_TYPES) != is_index:
            raise LookupFailedError(
                f"{name} declares the media type {declared[:100]}, but is something else"
            )
        return declared
    return OCI_INDEX if is_index else OCI_MANIFEST


def read_descriptors(
    content: bytes, name: str, most: int = MOST_DESCRIPTORS
) -> tuple[Descriptor, ...]:
    """The manifests that an index lists."""
    listed = read_object(content, name).get("manifests")
    if listed is None:
        return ()
    if not isinstance(listed, list) or len(listed) > most:
        raise LookupFailedError(f"{name}: expected a list of at most {most} manifests")
    return tuple(_read_descriptor(entry, name) for entry in listed)


def _read_descriptor(entry: Json, name: str) -> Descriptor:
    if not isinstance(entry, dict):
        raise LookupFailedError(f"{name}: an entry of the index is not an object")
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
    """The layer with the module; raises ModuleError if the artifact is no policy."""
    if manifest.media_type in INDEX_TYPES:
        raise ModuleError(f"{name} is an index of several images, not a policy module")
    layers = read_object(manifest.content, name).get("layers")
    if not isinstance(layers, list) or len(layers) != 1 or not isinstance(layers[0], dict):
        raise ModuleError(f"{name} is not a policy module: one layer is expected")
    media_type, digest, size = (layers[0].get(key) for key in ("mediaType", "digest", "size"))
    if media_type != LAYER_TYPE:
        raise ModuleError(f"{name} is not a policy module: its layer is {str(media_type)[:100]}")
    if not isinstance(digest, str) or isinstance(size, bool) or not isinstance(size, int):
        raise ModuleError(f"{name} is not a policy module: its layer has no digest or no size")
    if not 0 < size <= most_bytes:
        raise ModuleError(f"{name}: the module has {size} bytes, the limit is {most_bytes}")
    check_reference(digest)
    return Descriptor(LAYER_TYPE, digest, size)


def check_layer(content: bytes, layer: Descriptor, name: str) -> None:
    """Check the size that the manifest declares. The digest was checked already."""
    if len(content) != layer.size:
        raise LookupFailedError(
            f"{name}: the module has {len(content)} bytes, the manifest declares {layer.size}"
        )


def write_manifest(content: bytes, metadata: ModuleMetadata | None) -> bytes:
    """The manifest of a module, as kwctl writes it: equal modules have equal digests."""
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
    """Whether an annotation is left out of the manifest."""
    return len(value.splitlines()) > 1
