"""Questions to registries over HTTP: manifests, blobs and referrers of one repository."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from lictor.errors import ImageNotFoundError, LookupFailedError
from lictor.http.client import ClientConnection, ClientResponse, write_head
from lictor.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.registry.manifests import (
    ACCEPTED,
    MOST_DESCRIPTORS,
    OCI_INDEX,
    read_descriptors,
    read_manifest,
)
from lictor.registry.pool import ConnectionPool, Server
from lictor.registry.repository_name import Repository, check_digest, is_loopback, split_host
from lictor.registry.settings import RegistrySettings

T = TypeVar("T")

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MOST_REDIRECTS = 5
_MOST_PAGES = 20
# What registries without the referrers API say to a question for it.
_NO_REFERRERS = frozenset((400, 404, 405, 406))


class _Request(msgspec.Struct, frozen=True):
    """A GET of one path of a registry."""

    repository: Repository
    path: str
    access: RegistryAccess
    accept: str = "*/*"
    most_bytes: int = 0

    @property
    def name(self) -> str:
        return f"{self.repository.text}: {self.path.rpartition('/')[2]}"


class RegistryClient:
    """Asks registries. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._pool = ConnectionPool(settings, self._dial)
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}

    def close(self) -> None:
        self._pool.close()

    async def fetch_manifest(
        self, repository: Repository, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        request = _Request(
            repository,
            f"manifests/{tag_or_digest}",
            access,
            accept=ACCEPTED,
            most_bytes=self._settings.manifest_bytes,
        )
        response = await self._get(request)
        return read_manifest(response.content, tag_or_digest, request.name)

    async def fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        most = self._settings.blob_bytes
        request = _Request(repository, f"blobs/{digest}", access, most_bytes=most)
        content = (await self._get(request)).content
        check_digest(content, digest, request.name)
        return content

    async def fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        most = self._settings.manifest_bytes
        first = _Request(repository, f"referrers/{digest}", access, OCI_INDEX, most)
        response = await self._send(first)
        if response.status_code in _NO_REFERRERS:
            return await self._find_by_tag(repository, digest, access)
        found: list[Descriptor] = []
        request: _Request | None = first
        for _ in range(_MOST_PAGES):
            _check_status(response, first)
            found += read_descriptors(response.content, first.name)
            request = _find_next_page(response, first)
            if request is None:
                return tuple(found)
            if len(found) > MOST_DESCRIPTORS:
                break
            response = await self._send(request)
        raise LookupFailedError(f"{first.name}: more than {MOST_DESCRIPTORS} referrers")

    async def _find_by_tag(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        tag = digest.replace(":", "-", 1)
        try:
            index = await self.fetch_manifest(repository, tag, access)
        except ImageNotFoundError:
            return ()
        return read_descriptors(index.content, f"{repository.text}:{tag}")

    async def fetch_url(self, url: str, most_bytes: int) -> ClientResponse:
        """A GET of what is no registry, without credentials; redirects are not followed."""
        parts = urlsplit(url)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        server = Server(parts.hostname or "", port, is_secure)
        headers = [("host", server.authority), ("user-agent", "lictor"), ("accept", "*/*")]
        message = write_head("GET", parts.path or "/", headers)
        try:
            return await self._pool.exchange(server, message, most_bytes)
        except TimeoutError:
            raise LookupFailedError(f"{server.authority} does not answer") from None
        except OSError as error:
            raise LookupFailedError(f"{server.authority}: {error}") from error

    async def share(self, key: Hashable, fetch: Callable[[], Coroutine[None, None, T]]) -> T:
        """What several ask for at the same time is fetched once."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._limit(fetch()))
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        # One who gives up does not take the answer from the others.
        found: T = await asyncio.shield(flight)
        return found

    async def _limit(self, work: Coroutine[None, None, T]) -> T:
        seconds = self._settings.question_seconds
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise LookupFailedError(f"the registry gave no answer within {seconds:g} s") from None

    async def _get(self, request: _Request) -> ClientResponse:
        response = await self._send(request)
        _check_status(response, request)
        return response

    async def _send(self, request: _Request) -> ClientResponse:
        """The answer at the end of all redirects, whatever its status."""
        server = _find_server(request)
        target = f"/v2/{request.repository.path}/{request.path}"
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._exchange(server, target, request)
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not location:
                return response
            server, target = _follow(server, target, location, request)
        raise LookupFailedError(f"{request.name}: more than {_MOST_REDIRECTS} redirects")

    async def _exchange(self, server: Server, target: str, request: _Request) -> ClientResponse:
        headers = [
            ("host", server.authority),
            ("user-agent", "lictor"),
            ("accept", request.accept),
        ]
        message = write_head("GET", target, headers)
        try:
            return await self._pool.exchange(server, message, request.most_bytes)
        except TimeoutError:
            raise LookupFailedError(f"{request.name}: {server.authority} does not answer") from None
        except OSError as error:
            raise LookupFailedError(f"{request.name}: {server.authority}: {error}") from error

    async def _dial(self, server: Server) -> ClientConnection:
        context = ssl.create_default_context() if server.is_secure else None
        reader, writer = await asyncio.open_connection(
            server.host, server.port, limit=64 * 1024, ssl=context
        )
        return ClientConnection(reader, writer)


def _find_server(request: _Request) -> Server:
    host, port = split_host(request.repository.registry)
    is_secure = not is_loopback(host)
    return Server(host, port or (443 if is_secure else 80), is_secure)


def _follow(server: Server, target: str, location: str, request: _Request) -> tuple[Server, str]:
    scheme = "https" if server.is_secure else "http"
    url = urlsplit(urljoin(f"{scheme}://{server.authority}{target}", location))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise LookupFailedError(f"{request.name}: a redirect to {location[:200]!r}")
    is_secure = url.scheme == "https"
    if server.is_secure and not is_secure:
        raise LookupFailedError(f"{request.name}: a redirect from HTTPS to HTTP is not followed")
    port = url.port or (443 if is_secure else 80)
    path = url.path or "/"
    return Server(url.hostname, port, is_secure), f"{path}?{url.query}" if url.query else path


def _find_next_page(response: ClientResponse, first: _Request) -> _Request | None:
    link = response.headers.get("link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    target = link.partition("<")[2].partition(">")[0]
    query = urlsplit(target).query
    if not query:
        raise LookupFailedError(f"{first.name}: the registry names no next page")
    return msgspec.structs.replace(first, path=f"{first.path}?{query}")


def _check_status(response: ClientResponse, request: _Request) -> None:
    status = response.status_code
    if status == 200:
        return
    said = response.content[:300].decode(errors="replace").strip()
    message = f"{request.name}: the registry answered {status}: {said}"
    if status == 404:
        raise ImageNotFoundError(message)
    raise LookupFailedError(message)
