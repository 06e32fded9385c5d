"""Finds the cosign signatures and attestations of an image.

An unreadable one is listed with its fault: it proves nothing, and hides no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lictor.core.errors import CorruptContentError, ImageNotFoundError, LookupFailedError
from lictor.core.ports import Descriptor, ImageManifest, Registries, RegistryAccess
from lictor.core.signatures.layer_formats import (
    BUNDLE,
    ReadManifest,
    read_attestation_layer,
    read_bundle,
    read_manifest,
    read_signature_layer,
)
from lictor.core.signatures.records import FoundSignature, SignatureLocation, SignedImage

# More are neither read nor skipped: the image cannot be verified then.
MOST_SIGNATURES = 100
_LARGEST_PAYLOAD = 16 * 1024 * 1024
_LARGEST_WHOLE = 64 * 1024 * 1024

# cosign writes these into the index of a registry without the referrers API, instead of the
# artifact type: the manifest itself must be read.
_UNTOLD = ("", "application/vnd.oci.empty.v1+json")

# Given a layer, its content, the manifest and their location.
_ReadLayer: TypeAlias = Callable[[Descriptor, bytes, ReadManifest, str], tuple[FoundSignature, ...]]


@dataclass(frozen=True, slots=True)
class _LayerForm:
    """cosign's first format: the suffix of the tag, the artifact types of referrers, the layers."""

    suffix: str
    artifact_types: tuple[str, ...]
    read: _ReadLayer


_SIGNATURES = _LayerForm(
    "sig",
    ("application/vnd.dev.cosign.artifact.sig.v1+json",),
    lambda layer, content, _, origin: (read_signature_layer(layer, content, origin),),
)
_ATTESTATIONS = _LayerForm(
    "att",
    (
        "application/vnd.dev.cosign.artifact.att.v1+json",
        "application/vnd.dsse.envelope.v1+json",
        "application/vnd.in-toto+json",
    ),
    lambda layer, content, _, origin: read_attestation_layer(layer, content, origin),
)


@dataclass(slots=True)
class _Repository:
    """The repository to read, the credentials, and how many bytes may still be read."""

    registries: Registries
    name: str
    access: RegistryAccess
    bytes_left: int = _LARGEST_WHOLE

    def manifest(self, tag_or_digest: str) -> ImageManifest:
        return self.registries.manifest(self.name, tag_or_digest, self.access)

    def blob(self, layer: Descriptor) -> bytes:
        if layer.size > _LARGEST_PAYLOAD:
            raise ValueError(f"it has {layer.size} bytes, more than {_LARGEST_PAYLOAD}")
        content = self.registries.blob(self.name, layer.digest, self.access)
        self.bytes_left -= len(content)
        if self.bytes_left < 0:
            raise LookupFailedError(
                f"{self.name}: the signatures and attestations of one image have more than"
                f" {_LARGEST_WHOLE} bytes: remove those that are not needed"
            )
        return content

    def referrers(self, digest: str) -> tuple[Descriptor, ...]:
        try:
            return self.registries.referrers(self.name, digest, self.access)
        except ImageNotFoundError:
            return ()


def find_signatures(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundSignature, ...]:
    """Signatures in cosign's first format: by the tag `sha256-….sig`, and by OCI 1.1 if enabled."""
    return _find(_open(registries, image, location), image, location, _SIGNATURES)


def find_attestations(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundSignature, ...]:
    """Signed statements in cosign's first format: by `sha256-….att`, and by OCI 1.1 if enabled."""
    return _find(_open(registries, image, location), image, location, _ATTESTATIONS)


def find_bundles(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundSignature, ...]:
    """Signatures and signed statements in Sigstore's bundle format, by OCI 1.1 referrers."""

    def read(
        layer: Descriptor, content: bytes, manifest: ReadManifest, origin: str
    ) -> tuple[FoundSignature, ...]:
        if not layer.media_type.startswith(BUNDLE):
            return ()
        # Only a signature without an envelope signs the image's manifest itself.
        message = b""
        if b'"messageSignature"' in content:
            message = registries.manifest(image.repository, image.digest, location.access).content
        return (read_bundle(content, origin, message, manifest.annotations),)

    repository = _open(registries, image, location)
    return _limit(_find_referring(repository, image, _may_be_bundle, read), image)


def find_sbom(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> SignedImage | None:
    """The bill of materials under the tag `sha256-….sbom`, which is signed as if it were an image.

    Only the tag links it to the image: it proves nothing about it, even if it is signed.
    """
    repository = _open(registries, image, location)
    try:
        found = repository.manifest(f"{_tag(image, location)}.sbom")
    except ImageNotFoundError:
        return None
    return SignedImage(repository.name, found.digest)


def _open(registries: Registries, image: SignedImage, location: SignatureLocation) -> _Repository:
    return _Repository(registries, location.repository or image.repository, location.access)


def _tag(image: SignedImage, location: SignatureLocation) -> str:
    return f"{location.tag_prefix}{image.digest.replace(':', '-')}"


def _find(
    repository: _Repository, image: SignedImage, location: SignatureLocation, form: _LayerForm
) -> tuple[FoundSignature, ...]:
    found = _find_by_tag(repository, f"{_tag(image, location)}.{form.suffix}", form.read)
    if location.oci11:
        found += _find_referring(repository, image, form.artifact_types.__contains__, form.read)
    return _limit(found, image)


def _may_be_bundle(artifact_type: str) -> bool:
    return artifact_type.startswith(BUNDLE) or artifact_type in _UNTOLD


def _find_by_tag(repository: _Repository, tag: str, read: _ReadLayer) -> tuple[FoundSignature, ...]:
    origin = f"{repository.name}:{tag}"
    try:
        manifest = repository.manifest(tag)
    except ImageNotFoundError:
        return ()
    except CorruptContentError as error:
        return (_describe_fault(origin, error),)
    return _read_content(repository, manifest, origin, read)


def _find_referring(
    repository: _Repository,
    image: SignedImage,
    is_wanted: Callable[[str], bool],
    read: _ReadLayer,
) -> tuple[FoundSignature, ...]:
    listed = [one for one in repository.referrers(image.digest) if is_wanted(one.artifact_type)]
    _check_number(listed, f"{image.repository}@{image.digest}")
    found = list[FoundSignature]()
    for one in listed:
        origin = f"{repository.name}@{one.digest}"
        try:
            manifest = repository.manifest(one.digest)
        except (ImageNotFoundError, CorruptContentError) as error:
            found.append(_describe_fault(origin, error))
            continue
        found += _read_content(repository, manifest, origin, read)
    return tuple(found)


def _read_content(
    repository: _Repository, stored: ImageManifest, origin: str, read: _ReadLayer
) -> tuple[FoundSignature, ...]:
    try:
        manifest = read_manifest(stored.content)
    except ValueError as error:
        return (_describe_fault(origin, error),)
    _check_number(manifest.layers, origin)
    found = list[FoundSignature]()
    for number, layer in enumerate(manifest.layers):
        name = origin if len(manifest.layers) == 1 else f"{origin}#{number}"
        try:
            found += read(layer, repository.blob(layer), manifest, name)
        # Other failures of the registry end the search: what it withholds might be decisive.
        except (ValueError, ImageNotFoundError, CorruptContentError) as error:
            found.append(_describe_fault(name, error))
    return tuple(found)


def _limit(found: tuple[FoundSignature, ...], image: SignedImage) -> tuple[FoundSignature, ...]:
    _check_number(found, f"{image.repository}@{image.digest}")
    return found


def _check_number(listed: Sequence[object], origin: str) -> None:
    if len(listed) > MOST_SIGNATURES:
        raise LookupFailedError(
            f"{origin} has {len(listed)} signatures or attestations, more than the"
            f" {MOST_SIGNATURES} that are read: remove those that are not needed"
        )


def _describe_fault(origin: str, error: Exception) -> FoundSignature:
    return FoundSignature(origin=origin, payload=b"", signed=b"", signature=b"", fault=str(error))
