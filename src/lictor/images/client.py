"""HTTP requests to registries: manifests, blobs and referrers of one repository."""

import contextlib
from collections.abc import Callable, Coroutine
from typing import NoReturn, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from msgspec.structs import replace

from lictor.core.errors import ImageNotFoundError, LookupFailedError
from lictor.core.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.http.addresses import Chooser
from lictor.http.client import ClientResponse
from lictor.images.credentials import Keychain
from lictor.images.dialing import read_userinfo
from lictor.images.manifests import (
    ACCEPTED,
    MOST_DESCRIPTORS,
    OCI_INDEX,
    OCI_MANIFEST,
    read_descriptors,
    read_manifest,
)
from lictor.images.pool import RegistryServer
from lictor.images.registry_session import REFUSED, RegistrySession, RepositoryRequest
from lictor.images.repository_name import (
    Repository,
    check_digest,
    compute_digest,
)
from lictor.images.settings import RegistrySettings
from lictor.images.transport import RegistryRequest, split_url
from lictor.images.waiting import SharedRequests

T = TypeVar("T")

_CODES = (
    "BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "DENIED", "DIGEST_INVALID", "MANIFEST_BLOB_UNKNOWN",
    "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN", "SIZE_INVALID",
    "TOOMANYREQUESTS", "UNAUTHORIZED", "UNSUPPORTED",
)  # fmt: skip

_MOST_PAGES = 20
# The statuses of registries without the referrers API.
_NO_REFERRERS = frozenset((400, 404, 405, 406))


class RegistryClient:
    """A client of registries. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings, keychain: Keychain) -> None:
        self._settings = settings
        self._session = RegistrySession(settings, keychain)
        self.shared = SharedRequests(settings.question_seconds)

    def close(self) -> None:
        self._session.close()

    async def fetch_manifest(
        self, repository: Repository, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        return await self._try_mirrors(
            repository, lambda source: self._fetch_manifest(source, tag_or_digest, access)
        )

    async def _fetch_manifest(
        self, repository: Repository, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        most = self._settings.manifest_bytes
        wanted = RepositoryRequest(repository, f"manifests/{tag_or_digest}", access, ACCEPTED, most)
        return read_manifest(await self._get(wanted), tag_or_digest, wanted.name)

    async def fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        async def fetch(source: Repository) -> bytes:
            most = self._settings.blob_bytes
            wanted = RepositoryRequest(source, f"blobs/{digest}", access, most_bytes=most)
            content = await self._get(wanted)
            check_digest(content, digest, wanted.name)
            return content

        return await self._try_mirrors(repository, fetch)

    async def fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        async def fetch(source: Repository) -> tuple[Descriptor, ...]:
            found = await self._fetch_referrers(source, digest, access)
            if not found and source is not repository:
                # A mirror may have the image but not its signatures.
                raise ImageNotFoundError(f"{source.text} has no referrers of {digest}")
            return found

        return await self._try_mirrors(repository, fetch)

    async def _fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        most = self._settings.manifest_bytes
        wanted = RepositoryRequest(repository, f"referrers/{digest}", access, OCI_INDEX, most)
        response = await self._session.send(wanted)
        if response.status_code in _NO_REFERRERS:
            return await self._find_by_tag(repository, digest, access)
        found: list[Descriptor] = []
        for _ in range(_MOST_PAGES):
            _check_answer(response, wanted.name)
            found += read_descriptors(response.content, wanted.name)
            if len(found) > MOST_DESCRIPTORS:
                break
            following = _find_next_page(response, wanted)
            if following is None:
                return tuple(found)
            response = await self._session.send(following)
        raise LookupFailedError(f"{wanted.name}: more than {MOST_DESCRIPTORS} referrers")

    async def _find_by_tag(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        tag = digest.replace(":", "-", 1)
        try:
            index = await self._fetch_manifest(repository, tag, access)
        except ImageNotFoundError:
            return ()
        return read_descriptors(index.content, f"{repository.text}:{tag}")

    async def fetch_url(self, url: str, namespace: str) -> ClientResponse:
        """A GET of a URL, with the user in the URL; `namespace`: of the policy that names it."""
        server, target = _read_url(url, namespace)
        login = read_userinfo(url)
        most = self._settings.manifest_bytes
        request = RegistryRequest(server, target, url, authorization=login, most_bytes=most)
        return await self._session.exchange(request)

    async def fetch_file(self, url: str, namespace: str) -> bytes:
        """Fetch a URL without credentials; hosts that may lack TLS are tried without it."""
        server, target = _read_url(url, namespace)
        is_insecure = self._settings.is_insecure(server.authority)
        if not server.is_secure and not is_insecure:
            raise LookupFailedError(
                f"{url}: plain HTTP is not allowed for {server.authority}: use https://, or add "
                "it in insecure_sources"
            )

        async def send(chosen: RegistryServer) -> ClientResponse:
            most = self._settings.blob_bytes
            return await self._session.exchange(
                RegistryRequest(chosen, target, url, most_bytes=most)
            )

        if not is_insecure or not server.is_secure:
            response = await send(server)
        else:
            unchecked = replace(server, is_verified=False)
            port = 80 if server.port == 443 else server.port
            plain = replace(unchecked, is_secure=False, port=port)
            response = await self._session.find_out(unchecked, plain, send)
        _check_answer(response, url)
        return response.content

    async def push_blob(
        self, repository: Repository, content: bytes, access: RegistryAccess
    ) -> None:
        """Upload a blob in one request, which every registry supports."""
        begin = RepositoryRequest(repository, "blobs/uploads/", access, method="POST", body=b"")
        response = await self._session.send(begin)
        if response.status_code != 202:
            _refuse_upload(response, begin)
        path = _find_upload(response, begin) + f"digest={quote(compute_digest(content))}"
        wanted = replace(begin, path=path, method="PUT", body=content)
        response = await self._session.send(wanted)
        if response.status_code not in (201, 202, 204):
            _refuse_upload(response, wanted)

    async def push_manifest(
        self, repository: Repository, tag_or_digest: str, content: bytes, access: RegistryAccess
    ) -> None:
        """Upload a manifest whose blobs exist."""
        path = f"manifests/{tag_or_digest}"
        wanted = RepositoryRequest(
            repository, path, access, method="PUT", body=content, content_type=OCI_MANIFEST
        )
        response = await self._session.send(wanted)
        if response.status_code not in (201, 202):
            _refuse_upload(response, wanted)

    async def _try_mirrors(
        self, repository: Repository, fetch: Callable[[Repository], Coroutine[None, None, T]]
    ) -> T:
        """The response of a mirror, otherwise of the registry itself."""
        for registry, mirror in self._settings.mirrors:
            if registry == repository.registry:
                path = f"{mirror.path}/{repository.path}" if mirror.path else repository.path
                with contextlib.suppress(LookupFailedError):
                    return await fetch(Repository(mirror.registry, path))
        return await fetch(repository)

    async def _get(self, wanted: RepositoryRequest) -> bytes:
        response = await self._session.send(wanted)
        _check_answer(response, wanted.name)
        return response.content


def _read_url(url: str, namespace: str) -> tuple[RegistryServer, str]:
    chooser = Chooser.NAMESPACE if namespace else Chooser.OPERATOR
    return split_url(url, url, RegistryServer("", 0, chooser=chooser))


def _find_next_page(response: ClientResponse, first: RepositoryRequest) -> RepositoryRequest | None:
    link = response.headers.get("link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    query = urlsplit(link.partition("<")[2].partition(">")[0]).query
    if not query:
        raise LookupFailedError(f"{first.name}: the registry names no next page")
    return replace(first, path=f"{first.path}?{query}")


def _find_upload(response: ClientResponse, wanted: RepositoryRequest) -> str:
    """The upload path, with the start of a query."""
    location = response.headers.get("location", "")
    base = f"https://{wanted.repository.registry}{wanted.target}"
    try:
        parts = urlsplit(urljoin(base, location)) if location else urlsplit("")
        is_same = parts.hostname == urlsplit(base).hostname
    except ValueError:
        is_same = False
    if not is_same:
        raise LookupFailedError(
            f"{wanted.name}: the registry redirects the upload to {location[:200]!r}"
        )
    return f"{parts.path}?{parts.query}&" if parts.query else f"{parts.path}?"


def _refuse_upload(response: ClientResponse, wanted: RepositoryRequest) -> NoReturn:
    status = response.status_code
    message = f"{wanted.name}: the registry refused the upload: HTTP {status} {_quote(response)}"
    if status in REFUSED:
        message += "; log in with `docker login` as a user with write access"
    raise LookupFailedError(message)


def _quote(response: ClientResponse) -> str:
    return response.content[:300].decode(errors="replace").strip()


def _find_codes(response: ClientResponse) -> str:
    """The error codes of the OCI specification in a response, and no other text of it."""
    found = sorted(code for code in _CODES if code.encode() in response.content[:4096])
    return f" ({', '.join(found)})" if found else ""


def _check_answer(response: ClientResponse, name: str) -> None:
    """Raises LookupFailedError, or ImageNotFoundError, unless the request succeeded."""
    status = response.status_code
    if status == 200:
        return
    # Without the body: the author of the address could read what is meant for lictor only.
    message = f"{name}: the registry returned HTTP {status}{_find_codes(response)}"
    if status == 404:
        raise ImageNotFoundError(f"{name} not found: the registry returned HTTP 404")
    if status in REFUSED:
        message += (
            "; credentials come from imageRegistryCredentials, --imagePullSecrets or `docker login`"
        )
    raise LookupFailedError(message)
