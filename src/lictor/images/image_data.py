"""Image data for policies: names, manifest and configuration."""

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.lang.cel.library.net import parse_image
from lictor.core.ports import ImageManifest, Registries, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.images.manifests import INDEX_TYPES, read_object

# The platform that is described of a multi-platform image.
_PLATFORM = ("linux", "amd64")


def describe_image(registries: Registries, reference: str, access: RegistryAccess) -> JsonObject:
    """The data of an image, with the names of context entries."""
    try:
        parts = parse_image(reference)
    except EvaluationError as error:
        raise LookupFailedError(f"bad image {reference[:256]!r}: {error}") from error
    repository = f"{parts.registry}/{parts.repository}"
    identifier = parts.digest or parts.tag
    found = registries.manifest(repository, identifier, access)
    document = read_object(found.content, reference)
    index: JsonObject | None = None
    if found.media_type in INDEX_TYPES:
        index = document
        chosen = registries.manifest(repository, _choose(document, reference), access)
        document = _read_image(chosen, reference)
    return {
        "image": reference,
        "resolvedImage": f"{repository}@{found.digest}",
        "registry": parts.registry,
        "repository": parts.repository,
        "identifier": identifier,
        "manifestList": index,
        "manifest": document,
        "configData": _read_config(registries, repository, document, access),
    }


def _read_image(manifest: ImageManifest, reference: str) -> JsonObject:
    if manifest.media_type in INDEX_TYPES:
        raise LookupFailedError(f"{reference}: an index inside of an index")
    return read_object(manifest.content, reference)


def _choose(index: JsonObject, reference: str) -> str:
    """The digest of the manifest for the described platform."""
    listed = index.get("manifests")
    for entry in listed if isinstance(listed, list) else ():
        platform = entry.get("platform") if isinstance(entry, dict) else None
        # An entry without a platform is for all of them.
        if platform is None or _names(platform) == _PLATFORM:
            return _read_digest(entry, reference)
    wanted = "/".join(_PLATFORM)
    raise LookupFailedError(f"{reference}: the index has no image for {wanted}")


def _names(platform: Json) -> tuple[Json, Json]:
    if not isinstance(platform, dict):
        return None, None
    return platform.get("os"), platform.get("architecture")


def _read_config(
    registries: Registries, repository: str, manifest: JsonObject, access: RegistryAccess
) -> JsonObject:
    digest = _read_digest(manifest.get("config"), repository)
    return read_object(registries.blob(repository, digest, access), repository)


def _read_digest(descriptor: Json, name: str) -> str:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str):
        raise LookupFailedError(f"{name}: a descriptor without a digest")
    return digest
