"""Policy modules as OCI artifacts: manifests read and written as Kubewarden does."""

import orjson

from lictor.errors import LookupFailedError, ModuleError
from lictor.lang.wasm.module import ModuleMetadata
from lictor.ports import Descriptor, ImageManifest
from lictor.raw import Json, JsonObject
from lictor.registry.manifests import INDEX_TYPES, read_object
from lictor.registry.repository_name import check_reference, compute_digest

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
