"""A folder instead of registries: an OCI image layout, as `crane` and `oras` write it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from lictor.core.errors import ImageNotFoundError, LookupFailedError, UsageError, describe_os_error
from lictor.core.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.core.raw import JsonObject
from lictor.images.manifests import read_descriptors, read_manifest, read_object
from lictor.images.repository_name import (
    Repository,
    check_digest,
    check_reference,
    is_digest,
    parse_repository,
)
from lictor.images.settings import RegistrySettings
from lictor.images.trust_roots import TrustRoots

_REF_NAME = "org.opencontainers.image.ref.name"
# What `cosign save` writes instead of names: one image, its signatures and attestations.
_KIND = "kind"
_SAVED = "dev.cosignproject.cosign/"
_SAVED_TAGS = {"sigs": "sig", "atts": "att"}
_MOST_ENTRIES = 100_000


class _Entry(msgspec.Struct, frozen=True):
    """A manifest listed in index.json."""

    descriptor: Descriptor
    # As written, without a tag, and in full; empty if there is only a tag, or nothing.
    repository: str
    full_name: str
    tag: str
    # cosign's type of the entry.
    saved_as: str = ""

    def is_of(self, wanted: Repository) -> bool:
        # A folder with one image has only the tag: it matches any repository.
        return self.repository in ("", wanted.path) or self.full_name == wanted.text


class OciLayout:
    """Implements `ports.Registries` from a folder with `oci-layout`, `index.json` and `blobs`."""

    def __init__(self, folder: Path, settings: RegistrySettings | None = None) -> None:
        self._folder = folder
        self._settings = settings or RegistrySettings()
        try:
            self._entries = tuple(_list_entries((folder / "index.json").read_bytes()))
        except (OSError, LookupFailedError) as error:
            why = f"index.json: {describe_os_error(error)}" if isinstance(error, OSError) else error
            raise UsageError(f"{folder} is not an OCI image layout: {why}") from error
        self._trust_roots = TrustRoots(_fetch_nothing)
        # By the digest of their subject; built on first use.
        self._referrers: dict[str, list[tuple[_Entry, Descriptor]]] | None = None

    def manifest(
        self,
        repository: str,
        tag_or_digest: str,
        access: RegistryAccess,  # noqa: ARG002
    ) -> ImageManifest:
        wanted = parse_repository(repository)
        check_reference(tag_or_digest)
        name = f"{wanted.text}{'@' if is_digest(tag_or_digest) else ':'}{tag_or_digest}"
        digest = (
            tag_or_digest if is_digest(tag_or_digest) else self._find_tag(wanted, tag_or_digest)
        )
        return read_manifest(self._read(digest, self._settings.manifest_bytes, name), digest, name)

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:  # noqa: ARG002
        check_reference(digest)
        name = f"{repository}@{digest}"
        content = self._read(digest, self._settings.blob_bytes, name)
        check_digest(content, digest, name)
        return content

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        wanted = parse_repository(repository)
        check_reference(digest)
        if self._referrers is None:
            self._referrers = self._collect_referrers()
        listed = self._referrers.get(digest, [])
        found = tuple(descriptor for entry, descriptor in listed if entry.is_of(wanted))
        if found:
            return found
        tag = digest.replace(":", "-", 1)
        try:
            index = self.manifest(repository, tag, access)
        except ImageNotFoundError:
            return ()
        return read_descriptors(index.content, f"{wanted.text}:{tag}")

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        return self._trust_roots.get(mirror, root, namespace)

    def _find_tag(self, wanted: Repository, tag: str) -> str:
        for entry in self._entries:
            if entry.tag == tag and entry.is_of(wanted):
                return entry.descriptor.digest
        only = self._find_only_image()
        if only:
            kind = tag.removeprefix(f"{only.replace(':', '-')}.")
            if kind == tag and not tag.startswith("sha256-"):
                return only
            for entry in self._entries:
                if kind != tag and kind == _SAVED_TAGS.get(entry.saved_as):
                    return entry.descriptor.digest
        raise ImageNotFoundError(f"{wanted.text}:{tag} is not in {self._folder}/index.json")

    def _find_only_image(self) -> str:
        """The digest of the image in a folder without names; empty if it is ambiguous."""
        images = [
            entry.descriptor.digest
            for entry in self._entries
            if not entry.repository
            and not entry.tag
            and entry.saved_as not in _SAVED_TAGS
            and "subject" not in self._read_document(entry)
        ]
        return images[0] if len(images) == 1 else ""

    def _read(self, digest: str, most_bytes: int, name: str) -> bytes:
        algorithm, _, value = digest.partition(":")
        path = self._folder / "blobs" / algorithm / value
        try:
            with path.open("rb") as file:
                content = file.read(most_bytes + 1)
        except FileNotFoundError:
            raise ImageNotFoundError(f"{name} is not in {self._folder}") from None
        except OSError as error:
            raise LookupFailedError(f"{name}: {error}") from error
        if len(content) > most_bytes:
            raise LookupFailedError(f"{name} has more than {most_bytes} bytes")
        return content

    def _collect_referrers(self) -> dict[str, list[tuple[_Entry, Descriptor]]]:
        found: dict[str, list[tuple[_Entry, Descriptor]]] = {}
        for entry in self._entries:
            document = self._read_document(entry)
            subject = document.get("subject")
            digest = subject.get("digest") if isinstance(subject, dict) else None
            if isinstance(digest, str):
                found.setdefault(digest, []).append((entry, _describe(entry, document)))
        return found

    def _read_document(self, entry: _Entry) -> JsonObject:
        digest = entry.descriptor.digest
        try:
            content = self._read(digest, self._settings.manifest_bytes, digest)
            return read_object(read_manifest(content, digest, digest).content, digest)
        except LookupFailedError:
            # The error is raised for this one only; the others are intact.
            return {}


def _fetch_nothing(url: str, namespace: str) -> tuple[int, bytes]:  # noqa: ARG001
    raise LookupFailedError(f"{url} is not available: --image-layout replaces all registries")


def _describe(entry: _Entry, document: JsonObject) -> Descriptor:
    """A referrer as the API of registries lists it."""
    config = document.get("config")
    implied = config.get("mediaType") if isinstance(config, dict) else None
    annotations = document.get("annotations")
    return msgspec.structs.replace(
        entry.descriptor,
        artifact_type=str(document.get("artifactType") or implied or ""),
        annotations=dict(annotations) if isinstance(annotations, dict) else {},
    )


def _list_entries(index: bytes) -> Iterator[_Entry]:
    for descriptor in read_descriptors(index, "index.json", _MOST_ENTRIES):
        repository, tag = _split_name(descriptor.annotations.get(_REF_NAME, ""))
        full_name = parse_repository(repository).text if repository else ""
        kind = descriptor.annotations.get(_KIND, "")
        saved_as = kind.removeprefix(_SAVED) if kind.startswith(_SAVED) else ""
        yield _Entry(descriptor, repository, full_name, tag, saved_as)


def _split_name(name: str) -> tuple[str, str]:
    """`REPOSITORY:TAG`, `REPOSITORY@DIGEST`, or only a tag."""
    if "@" in name:
        return name.partition("@")[0], ""
    before, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        return before, tag
    return (name, "") if "/" in name else ("", name)
