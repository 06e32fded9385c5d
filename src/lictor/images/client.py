"""HTTP requests to registries: manifests, blobs and referrers of one repository."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec.structs import replace

from lictor.core.errors import ImageNotFoundError, LookupFailedError, describe_os_error
from lictor.core.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.http.addresses import Chooser
from lictor.http.client import AnswerTooLargeError, ClientResponse
from lictor.images.authorization import PULL, PUSH, Authorizer, RegistryPermission
from lictor.images.credentials import Keychain, RegistryCredential
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
from lictor.images.repository_name import (
    Repository,
    check_digest,
    compute_digest,
    is_loopback,
    split_host,
)
from lictor.images.settings import RegistrySettings
from lictor.images.transport import RegistryRequest, Transport, split_url
from lictor.images.waiting import SharedRequests

T = TypeVar("T")

_CODES = (
    "BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "DENIED", "DIGEST_INVALID", "MANIFEST_BLOB_UNKNOWN",
    "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN", "SIZE_INVALID",
    "TOOMANYREQUESTS", "UNAUTHORIZED", "UNSUPPORTED",
)  # fmt: skip

_MOST_PAGES = 20
# The size limit for responses to an upload.
_MOST_SAID = 64 * 1024
_LOGINS = 16
_MOST_SCHEMES = 1024
_REFUSED = frozenset((401, 403))
# The statuses of registries without the referrers API.
_NO_REFERRERS = frozenset((400, 404, 405, 406))


class _RepositoryRequest(msgspec.Struct, frozen=True):
    """A request for one path of a repository; with a body, an upload."""

    repository: Repository
    path: str
    access: RegistryAccess
    accept: str = "*/*"
    most_bytes: int = _MOST_SAID
    method: str = "GET"
    body: bytes | None = None
    content_type: str = "application/octet-stream"

    @property
    def name(self) -> str:
        last = self.path.rpartition("/")[2].partition("?")[0]
        return f"{self.repository.text}{'@' if ':' in last else ':'}{last}"

    @property
    def target(self) -> str:
        path = self.path
        return path if path.startswith("/") else f"/v2/{self.repository.path}/{path}"


class RegistryClient:
    """A client of registries. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings, keychain: Keychain) -> None:
        self._settings = settings
        self._keychain = keychain
        self._transport = Transport(settings)
        self._authorizer = Authorizer(self._transport.send)
        # Separate from the threads that resolve names: a slow helper must not block those.
        self._logins = ThreadPoolExecutor(_LOGINS, "registry-logins")
        self.shared = SharedRequests(settings.question_seconds)
        # Whether registries that may lack TLS use it, once one of both has worked.
        self._known: dict[RegistryServer, RegistryServer] = {}

    def close(self) -> None:
        self._transport.close()
        self._logins.shutdown(wait=False, cancel_futures=True)

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
        wanted = _RepositoryRequest(
            repository, f"manifests/{tag_or_digest}", access, ACCEPTED, most
        )
        return read_manifest(await self._get(wanted), tag_or_digest, wanted.name)

    async def fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        return await self._try_mirrors(
            repository, lambda source: self._fetch_blob(source, digest, access)
        )

    async def _fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        most = self._settings.blob_bytes
        wanted = _RepositoryRequest(repository, f"blobs/{digest}", access, most_bytes=most)
        content = await self._get(wanted)
        check_digest(content, digest, wanted.name)
        return content

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
        wanted = _RepositoryRequest(repository, f"referrers/{digest}", access, OCI_INDEX, most)
        response = await self._send(wanted)
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
            response = await self._send(following)
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
        return await self._exchange(request)

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
            return await self._exchange(RegistryRequest(chosen, target, url, most_bytes=most))

        if not is_insecure or not server.is_secure:
            response = await send(server)
        else:
            unchecked = replace(server, is_verified=False)
            port = 80 if server.port == 443 else server.port
            plain = replace(unchecked, is_secure=False, port=port)
            response = await self._find_out(unchecked, plain, send)
        _check_answer(response, url)
        return response.content

    async def push_blob(
        self, repository: Repository, content: bytes, access: RegistryAccess
    ) -> None:
        """Upload a blob in one request, which every registry supports."""
        begin = _RepositoryRequest(repository, "blobs/uploads/", access, method="POST", body=b"")
        response = await self._send(begin)
        if response.status_code != 202:
            _refuse_upload(response, begin)
        path = _find_upload(response, begin) + f"digest={quote(compute_digest(content))}"
        wanted = replace(begin, path=path, method="PUT", body=content)
        response = await self._send(wanted)
        if response.status_code not in (201, 202, 204):
            _refuse_upload(response, wanted)

    async def push_manifest(
        self, repository: Repository, tag_or_digest: str, content: bytes, access: RegistryAccess
    ) -> None:
        """Upload a manifest whose blobs exist."""
        path = f"manifests/{tag_or_digest}"
        wanted = _RepositoryRequest(
            repository, path, access, method="PUT", body=content, content_type=OCI_MANIFEST
        )
        response = await self._send(wanted)
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

    async def _get(self, wanted: _RepositoryRequest) -> bytes:
        response = await self._send(wanted)
        _check_answer(response, wanted.name)
        return response.content

    async def _send(self, wanted: _RepositoryRequest) -> ClientResponse:
        """The response, of any status."""
        first, *others = self._list_servers(wanted)
        if not others:
            return await self._send_to(first, wanted)
        known = self._known.get(first)
        if known is not None:
            return await self._send_to(known, wanted)
        return await self._find_out(first, others[0], partial(self._send_to, wanted=wanted))

    def _list_servers(self, wanted: _RepositoryRequest) -> list[RegistryServer]:
        """The server, and if TLS is optional, the alternative without it."""
        registry, access = wanted.repository.registry, wanted.access
        host, port = split_host(registry)
        is_insecure = access.allow_insecure or self._settings.is_insecure(registry)
        secure = RegistryServer(
            host, port or 443, is_verified=not is_insecure, chooser=_find_chooser(registry, access)
        )
        plain = replace(secure, port=port or 80, is_secure=False, is_verified=False)
        if is_loopback(host) and self._settings.plain_loopback:
            return [plain, secure]
        return [secure, plain] if is_insecure else [secure]

    async def _find_out(
        self,
        first: RegistryServer,
        other: RegistryServer,
        send: Callable[[RegistryServer], Awaitable[ClientResponse]],
    ) -> ClientResponse:
        """Try both with and without TLS, and remember which worked."""
        chosen = first
        try:
            response = await send(first)
            # The response of a TLS server to a plain HTTP request.
            is_wrong = response.status_code == 400 and not first.is_secure
        except LookupFailedError as error:
            cause = error.__cause__
            if isinstance(cause, AnswerTooLargeError) or not isinstance(
                cause, ConnectionError | ssl.SSLError
            ):
                raise
            is_wrong = True
        if is_wrong:
            chosen, response = other, await send(other)
        if len(self._known) >= _MOST_SCHEMES:
            self._known.clear()
        self._known[first] = chosen
        return response

    async def _send_to(self, server: RegistryServer, wanted: _RepositoryRequest) -> ClientResponse:
        repository, access = wanted.repository, wanted.access
        actions = PULL if wanted.method == "GET" else PUSH
        permission = RegistryPermission(server, repository, access, actions)
        known = self._authorizer.recall(permission)
        request = RegistryRequest(
            server,
            wanted.target,
            wanted.name,
            accept=wanted.accept,
            authorization=known,
            most_bytes=wanted.most_bytes,
            method=wanted.method,
            body=wanted.body,
            content_type=wanted.content_type,
            is_repeatable=wanted.method == "GET",
        )
        response = await self._exchange(request)
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code != 401 or not challenge:
            return response
        self._authorizer.forget(permission)
        credential, problem = await self._find_credential(repository, access)
        try:
            header = await self._authorizer.meet(challenge, request, permission, credential)
        except LookupFailedError as error:
            raise LookupFailedError(f"{wanted.name}: {problem}" if problem else error) from error
        if header and header != known:
            request = replace(request, authorization=header)
            response = await self._exchange(request)
        if problem and response.status_code in _REFUSED:
            raise LookupFailedError(f"{wanted.name}: {problem}")
        return response

    async def _find_credential(
        self, repository: Repository, access: RegistryAccess
    ) -> tuple[RegistryCredential | None, str]:
        """A credential, and why there is none: public content can be read anyway."""
        # Reads files, runs programs, reads Secrets: not on this thread.
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._logins, self._keychain.find, repository, access
            )
        except LookupFailedError as error:
            return None, str(error)
        return found, ""

    async def _exchange(self, request: RegistryRequest) -> ClientResponse:
        authority = request.server.authority
        try:
            return await self._transport.send(request)
        except TimeoutError:
            raise LookupFailedError(f"{request.name}: {authority} does not answer") from None
        except ssl.SSLCertVerificationError as error:
            raise LookupFailedError(
                f"{request.name}: the certificate of {authority} is not trusted "
                f"({error.verify_message}); SSL_CERT_FILE or --registryCA names other authorities"
            ) from error
        except OSError as error:
            raise LookupFailedError(
                f"{request.name}: {authority}: {describe_os_error(error)}"
            ) from error


def _find_chooser(registry: str, access: RegistryAccess) -> Chooser:
    if access.namespace:
        return Chooser.NAMESPACE
    is_named = access.named is None or registry in access.named
    return Chooser.OPERATOR if is_named else Chooser.OBJECT


def _read_url(url: str, namespace: str) -> tuple[RegistryServer, str]:
    chooser = Chooser.NAMESPACE if namespace else Chooser.OPERATOR
    return split_url(url, url, RegistryServer("", 0, chooser=chooser))


def _find_next_page(
    response: ClientResponse, first: _RepositoryRequest
) -> _RepositoryRequest | None:
    link = response.headers.get("link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    query = urlsplit(link.partition("<")[2].partition(">")[0]).query
    if not query:
        raise LookupFailedError(f"{first.name}: the registry names no next page")
    return replace(first, path=f"{first.path}?{query}")


def _find_upload(response: ClientResponse, wanted: _RepositoryRequest) -> str:
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


def _refuse_upload(response: ClientResponse, wanted: _RepositoryRequest) -> NoReturn:
    status = response.status_code
    message = f"{wanted.name}: the registry refused the upload: HTTP {status} {_quote(response)}"
    if status in _REFUSED:
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
    if status in _REFUSED:
        message += (
            "; credentials come from imageRegistryCredentials, --imagePullSecrets or `docker login`"
        )
    raise LookupFailedError(message)
