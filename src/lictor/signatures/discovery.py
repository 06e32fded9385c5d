"""Which signatures and attestations made with cosign lie beside an image?

What cannot be read is listed with its fault: it proves nothing, and hides no other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from lictor.errors import CorruptContentError, ImageNotFoundError, LookupFailedError
from lictor.ports import Descriptor, ImageManifest, Registries, RegistryAccess
from lictor.signatures.layer_formats import (
    read_attestation_layer,
    read_layers,
    read_signature_layer,
)
from lictor.signatures.records import FoundSignature, SignatureLocation, SignedImage

# More are not read and not passed over either: the image cannot be verified then.
MOST_SIGNATURES = 100
_LARGEST_PAYLOAD = 16 * 1024 * 1024

_ReadLayer: TypeAlias = Callable[[Descriptor, bytes, str], tuple[FoundSignature, ...]]


@dataclass(frozen=True, slots=True)
class _Repository:
    """Where to look, with whose credentials."""

    registries: Registries
    name: str
    access: RegistryAccess

    def manifest(self, tag_or_digest: str) -> ImageManifest:
        return self.registries.manifest(self.name, tag_or_digest, self.access)

    def blob(self, layer: Descriptor) -> bytes:
        if layer.size > _LARGEST_PAYLOAD:
            raise ValueError(f"it has {layer.size} bytes, more than {_LARGEST_PAYLOAD}")
        return self.registries.blob(self.name, layer.digest, self.access)


def find_signatures(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundSignature, ...]:
    """Signatures in cosign's first format, by the tag `sha256-….sig`."""
    return _find_by_tag(
        _open(registries, image, location), f"{_tag(image, location)}.sig", _read_signature
    )


def find_attestations(
    registries: Registries, image: SignedImage, location: SignatureLocation
) -> tuple[FoundSignature, ...]:
    """Signed statements in cosign's first format, by the tag `sha256-….att`."""
    return _find_by_tag(
        _open(registries, image, location), f"{_tag(image, location)}.att", read_attestation_layer
    )


def _open(registries: Registries, image: SignedImage, location: SignatureLocation) -> _Repository:
    return _Repository(registries, location.repository or image.repository, location.access)


def _tag(image: SignedImage, location: SignatureLocation) -> str:
    return f"{location.tag_prefix}{image.digest.replace(':', '-')}"


def _read_signature(layer: Descriptor, content: bytes, origin: str) -> tuple[FoundSignature, ...]:
    return (read_signature_layer(layer, content, origin),)


def _find_by_tag(repository: _Repository, tag: str, read: _ReadLayer) -> tuple[FoundSignature, ...]:
    origin = f"{repository.name}:{tag}"
    try:
        manifest = repository.manifest(tag)
    except ImageNotFoundError:
        return ()
    except CorruptContentError as error:
        return (_describe_fault(origin, error),)
    return _read_manifest(repository, manifest, origin, read)


def _read_manifest(
    repository: _Repository, manifest: ImageManifest, origin: str, read: _ReadLayer
) -> tuple[FoundSignature, ...]:
    try:
        layers = read_layers(manifest.content)
    except ValueError as error:
        return (_describe_fault(origin, error),)
    if len(layers) > MOST_SIGNATURES:
        raise _refuse_number(origin, len(layers))
    found = list[FoundSignature]()
    for number, layer in enumerate(layers):
        name = origin if len(layers) == 1 else f"{origin}#{number}"
        try:
            found += read(layer, repository.blob(layer), name)
        # Other failures of the registry end the search: what it kept back might count.
        except (ValueError, ImageNotFoundError, CorruptContentError) as error:
            found.append(_describe_fault(name, error))
    return tuple(found)


def _refuse_number(origin: str, number: int) -> LookupFailedError:
    return LookupFailedError(
        f"{origin} has {number} signatures, more than the {MOST_SIGNATURES} that are read:"
        " remove those that nobody needs"
    )


def _describe_fault(origin: str, error: Exception) -> FoundSignature:
    return FoundSignature(origin=origin, payload=b"", signed=b"", signature=b"", fault=str(error))
