"""`ports.Registries` for threads without an event loop."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import TypeAlias, TypeVar

import msgspec

from lictor.core.errors import ImageNotFoundError
from lictor.core.ports import Descriptor, ImageManifest, Registries, RegistryAccess
from lictor.images.client import RegistryClient
from lictor.images.credentials import CredentialSources, Keychain
from lictor.images.event_loop import LoopThread
from lictor.images.repository_name import (
    Repository,
    check_reference,
    compute_digest,
    is_digest,
    parse_repository,
)
from lictor.images.settings import RegistrySettings
from lictor.images.trust_roots import TrustRoots
from lictor.images.waiting import find_registry

T = TypeVar("T")

_MOST_TAGS = 10_000
# The cache key; other credentials make another key.
_Key: TypeAlias = tuple[str, Repository, str, RegistryAccess]
# What may change at any time.
_Changing: TypeAlias = ImageManifest | tuple[Descriptor, ...]


class RemoteRegistries:
    """Reads registries over the network; thread-safe.

    `remaining` returns the seconds that the caller has left.
    """

    def __init__(
        self,
        settings: RegistrySettings | None = None,
        sources: CredentialSources | None = None,
        *,
        remaining: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._settings = chosen = settings or RegistrySettings()
        self._remaining = remaining
        keychain = Keychain(sources or CredentialSources())
        self._thread = LoopThread("registries", lambda: RegistryClient(chosen, keychain))
        self._contents = _ContentCache(chosen.cached_bytes)
        self._tags = _TagCache(chosen.tag_seconds)
        self._trust_roots = TrustRoots(
            self.fetch_url, usual=(chosen.trust_mirror, chosen.trust_root), remaining=remaining
        )

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        parsed = parse_repository(repository)
        check_reference(tag_or_digest)
        key = ("manifest", parsed, tag_or_digest, access)
        if is_digest(tag_or_digest):
            found = self._contents.get(key)
            if isinstance(found, ImageManifest):
                return found
            return self._ask(key, lambda client: self._fetch_pinned(client, key))
        known = self._tags.get(key)
        if isinstance(known, ImageManifest):
            return known
        return self._ask(key, lambda client: self._fetch_tagged(client, key))

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:
        parsed = parse_repository(repository)
        check_reference(digest)
        key = ("blob", parsed, digest, access)
        found = self._contents.get(key)
        if isinstance(found, bytes):
            return found
        return self._ask(key, lambda client: self._fetch_blob(client, key))

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        parsed = parse_repository(repository)
        check_reference(digest)
        key = ("referrers", parsed, digest, access)
        known = self._tags.get(key)
        if isinstance(known, tuple):
            return known
        return self._ask(key, lambda client: self._fetch_referrers(client, key))

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        return self._trust_roots.get(mirror, root, namespace)

    def fetch_file(self, url: str, namespace: str = "") -> bytes:
        """The content of a URL; `namespace`: of the policy that names it."""
        return self._ask(("file", url, namespace), lambda client: client.fetch_file(url, namespace))

    def push_blob(self, repository: str, content: bytes, access: RegistryAccess) -> None:
        parsed = parse_repository(repository)
        key = ("push", parsed, compute_digest(content), access)
        self._ask(key, lambda client: client.push_blob(parsed, content, access))

    def push_manifest(
        self, repository: str, tag_or_digest: str, content: bytes, access: RegistryAccess
    ) -> None:
        parsed = parse_repository(repository)
        check_reference(tag_or_digest)
        key = ("push", parsed, f"{tag_or_digest}={compute_digest(content)}", access)
        self._ask(key, lambda client: client.push_manifest(parsed, tag_or_digest, content, access))
        self._tags.clear()

    def fetch_url(self, url: str, namespace: str = "") -> tuple[int, bytes]:
        """The status and the body of a URL, with the credentials in the URL."""
        key = ("url", url, namespace)
        response = self._ask(key, lambda client: client.fetch_url(url, namespace))
        return response.status_code, response.content

    # --- on the thread of the event loop; content is cached before it is returned

    async def _fetch_pinned(self, client: RegistryClient, key: _Key) -> ImageManifest:
        _, parsed, digest, access = key
        # Another caller may have fetched it meanwhile.
        known = self._contents.get(key)
        if isinstance(known, ImageManifest):
            return known
        manifest = await client.fetch_manifest(parsed, digest, access)
        self._contents.put(key, manifest, len(manifest.content))
        return manifest

    async def _fetch_tagged(self, client: RegistryClient, key: _Key) -> ImageManifest:
        _, parsed, tag, access = key
        try:
            manifest = await client.fetch_manifest(parsed, tag, access)
        except ImageNotFoundError as error:
            self._tags.put(key, error)
            raise
        self._tags.put(key, manifest)
        return manifest

    async def _fetch_referrers(self, client: RegistryClient, key: _Key) -> tuple[Descriptor, ...]:
        _, parsed, digest, access = key
        found = await client.fetch_referrers(parsed, digest, access)
        self._tags.put(key, found)
        return found

    async def _fetch_blob(self, client: RegistryClient, key: _Key) -> bytes:
        _, parsed, digest, access = key
        known = self._contents.get(key)
        if isinstance(known, bytes):
            return known
        content = await client.fetch_blob(parsed, digest, access)
        self._contents.put(key, content, len(content))
        return content

    def _ask(
        self,
        key: tuple[Hashable, ...],
        fetch: Callable[[RegistryClient], Coroutine[None, None, T]],
    ) -> T:
        seconds = min(self._remaining(), self._settings.question_seconds)
        return self._thread.ask(
            find_registry(key),
            lambda client: client.shared.ask(key, lambda: fetch(client)),
            seconds,
        )


class TrustingRegistries(msgspec.Struct, frozen=True):
    """Registries whose Sigstore trust root is read from a file."""

    registries: Registries
    root: bytes

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        return self.registries.manifest(repository, tag_or_digest, access)

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:
        return self.registries.blob(repository, digest, access)

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        return self.registries.referrers(repository, digest, access)

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:  # noqa: ARG002
        return self.root


class _ContentCache:
    """Content with a digest is immutable; the most recent is cached, by credentials."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._kept: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> object:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: object, content: object, size: int) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += size - (before[1] if before else 0)
            self._kept[key] = content, size
            while self._size > self._most_bytes:
                _, (_, freed) = self._kept.popitem(last=False)
                self._size -= freed


class _TagCache:
    """Recent results of tags, also missing ones, and of referrers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[object, tuple[float, _Changing | ImageNotFoundError]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def get(self, key: object) -> _Changing | None:
        with self._lock:
            until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() >= until:
            return None
        if isinstance(found, ImageNotFoundError):
            raise found
        return found

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

    def put(self, key: object, found: _Changing | ImageNotFoundError) -> None:
        if not self._seconds:
            return
        with self._lock:
            self._kept[key] = time.monotonic() + self._seconds, found
            if len(self._kept) > _MOST_TAGS:
                self._kept.popitem(last=False)
