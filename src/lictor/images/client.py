"""Questions to registries over HTTP: manifests, blobs and referrers of one repository."""

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
from lictor.images.waiting import SharedQuestions

T = TypeVar("T")

_CODES = (
    "BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "DENIED", "DIGEST_INVALID", "MANIFEST_BLOB_UNKNOWN",
    "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN", "SIZE_INVALID",
    "TOOMANYREQUESTS", "UNAUTHORIZED", "UNSUPPORTED",
)  # fmt: skip

_MOST_PAGES = 20
# What a registry has to say to something that was sent to it.
_MOST_SAID = 64 * 1024
_LOGINS = 16
_MOST_SCHEMES = 1024
_REFUSED = frozenset((401, 403))
# What registries without the referrers API say to a question for it.
_NO_REFERRERS = frozenset((400, 404, 405, 406))


class _Question(msgspec.Struct, frozen=True):
    """A GET of one path of a repository; with a body, what is to be written there."""

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
    """Asks registries. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings, keychain: Keychain) -> None:
        self._settings = settings
        self._keychain = keychain
        self._transport = Transport(settings)
        self._authorizer = Authorizer(self._transport.send)
        # Apart from the threads that resolve names: a slow helper must not hold those.
        self._logins = ThreadPoolExecutor(_LOGINS, "registry-logins")
        self.shared = SharedQuestions(settings.question_seconds)
        # How registries are spoken to that may do without TLS, once one of both ways has worked.
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
        question = _Question(repository, f"manifests/{tag_or_digest}", access, ACCEPTED, most)
        return read_manifest(await self._get(question), tag_or_digest, question.name)

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
        question = _Question(repository, f"blobs/{digest}", access, most_bytes=most)
        content = await self._get(question)
        check_digest(content, digest, question.name)
        return content

    async def fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        async def fetch(source: Repository) -> tuple[Descriptor, ...]:
            found = await self._fetch_referrers(source, digest, access)
            if not found and source is not repository:
                # A mirror may know the image and not its signatures.
                raise ImageNotFoundError(f"{source.text} has no referrers of {digest}")
            return found

        return await self._try_mirrors(repository, fetch)

    async def _fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        most = self._settings.manifest_bytes
        question = _Question(repository, f"referrers/{digest}", access, OCI_INDEX, most)
        response = await self._send(question)
        if response.status_code in _NO_REFERRERS:
            return await self._find_by_tag(repository, digest, access)
        found: list[Descriptor] = []
        for _ in range(_MOST_PAGES):
            _check_answer(response, question.name)
            found += read_descriptors(response.content, question.name)
            if len(found) > MOST_DESCRIPTORS:
                break
            following = _find_next_page(response, question)
            if following is None:
                return tuple(found)
            response = await self._send(following)
        raise LookupFailedError(f"{question.name}: more than {MOST_DESCRIPTORS} referrers")

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
        """A GET of what is no registry, as the user in the URL; `namespace`: of who names it."""
        server, target = _read_url(url, namespace)
        login = read_userinfo(url)
        most = self._settings.manifest_bytes
        request = RegistryRequest(server, target, url, authorization=login, most_bytes=most)
        return await self._exchange(request)

    async def fetch_file(self, url: str, namespace: str) -> bytes:
        """What a URL leads to, without credentials; hosts that may do without TLS are tried so."""
        server, target = _read_url(url, namespace)
        is_insecure = self._settings.is_insecure(server.authority)
        if not server.is_secure and not is_insecure:
            raise LookupFailedError(
                f"{url}: plain HTTP is not spoken with {server.authority}: write https://, or name "
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
        """Write a blob in one piece: the way of sending that every registry understands."""
        begin = _Question(repository, "blobs/uploads/", access, method="POST", body=b"")
        response = await self._send(begin)
        if response.status_code != 202:
            _refuse_upload(response, begin)
        path = _find_upload(response, begin) + f"digest={quote(compute_digest(content))}"
        question = replace(begin, path=path, method="PUT", body=content)
        response = await self._send(question)
        if response.status_code not in (201, 202, 204):
            _refuse_upload(response, question)

    async def push_manifest(
        self, repository: Repository, tag_or_digest: str, content: bytes, access: RegistryAccess
    ) -> None:
        """Write a manifest whose blobs are there."""
        path = f"manifests/{tag_or_digest}"
        question = _Question(
            repository, path, access, method="PUT", body=content, content_type=OCI_MANIFEST
        )
        response = await self._send(question)
        if response.status_code not in (201, 202):
            _refuse_upload(response, question)

    async def _try_mirrors(
        self, repository: Repository, fetch: Callable[[Repository], Coroutine[None, None, T]]
    ) -> T:
        """What the mirrors have, or else the registry itself."""
        for registry, mirror in self._settings.mirrors:
            if registry == repository.registry:
                path = f"{mirror.path}/{repository.path}" if mirror.path else repository.path
                with contextlib.suppress(LookupFailedError):
                    return await fetch(Repository(mirror.registry, path))
        return await fetch(repository)

    async def _get(self, question: _Question) -> bytes:
        response = await self._send(question)
        _check_answer(response, question.name)
        return response.content

    async def _send(self, question: _Question) -> ClientResponse:
        """The answer, whatever its status."""
        first, *others = self._list_servers(question)
        if not others:
            return await self._send_to(first, question)
        known = self._known.get(first)
        if known is not None:
            return await self._send_to(known, question)
        return await self._find_out(first, others[0], partial(self._send_to, question=question))

    def _list_servers(self, question: _Question) -> list[RegistryServer]:
        """The server, and where TLS is not a must, the other way to speak with it."""
        registry, access = question.repository.registry, question.access
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
        """Try both ways to speak with a server, and remember which it was."""
        chosen = first
        try:
            response = await send(first)
            # What a server with TLS says to one who speaks without.
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

    async def _send_to(self, server: RegistryServer, question: _Question) -> ClientResponse:
        repository, access = question.repository, question.access
        actions = PULL if question.method == "GET" else PUSH
        permission = RegistryPermission(server, repository, access, actions)
        known = self._authorizer.recall(permission)
        request = RegistryRequest(
            server,
            question.target,
            question.name,
            accept=question.accept,
            authorization=known,
            most_bytes=question.most_bytes,
            method=question.method,
            body=question.body,
            content_type=question.content_type,
            is_repeatable=question.method == "GET",
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
            raise LookupFailedError(f"{question.name}: {problem}" if problem else error) from error
        if header and header != known:
            request = replace(request, authorization=header)
            response = await self._exchange(request)
        if problem and response.status_code in _REFUSED:
            raise LookupFailedError(f"{question.name}: {problem}")
        return response

    async def _find_credential(
        self, repository: Repository, access: RegistryAccess
    ) -> tuple[RegistryCredential | None, str]:
        """A credential, and why none could be had: what everyone may read is read all the same."""
        # Files are read, programs run, and Secrets asked for: not on this thread.
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


def _find_next_page(response: ClientResponse, first: _Question) -> _Question | None:
    link = response.headers.get("link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    query = urlsplit(link.partition("<")[2].partition(">")[0]).query
    if not query:
        raise LookupFailedError(f"{first.name}: the registry names no next page")
    return replace(first, path=f"{first.path}?{query}")


def _find_upload(response: ClientResponse, question: _Question) -> str:
    """The path, with the beginning of a query, at which the registry awaits a blob."""
    location = response.headers.get("location", "")
    base = f"https://{question.repository.registry}{question.target}"
    try:
        parts = urlsplit(urljoin(base, location)) if location else urlsplit("")
        is_same = parts.hostname == urlsplit(base).hostname
    except ValueError:
        is_same = False
    if not is_same:
        raise LookupFailedError(
            f"{question.name}: the registry wants the content to be sent to {location[:200]!r}"
        )
    return f"{parts.path}?{parts.query}&" if parts.query else f"{parts.path}?"


def _refuse_upload(response: ClientResponse, question: _Question) -> NoReturn:
    status = response.status_code
    message = f"{question.name}: the registry did not take it: {status} {_quote(response)}"
    if status in _REFUSED:
        message += "; are the credentials of `docker login` those of someone who may write there?"
    raise LookupFailedError(message)


def _quote(response: ClientResponse) -> str:
    return response.content[:300].decode(errors="replace").strip()


def _find_codes(response: ClientResponse) -> str:
    """The codes of the OCI specification that an answer names, and no other text of it."""
    found = sorted(code for code in _CODES if code.encode() in response.content[:4096])
    return f" ({', '.join(found)})" if found else ""


def _check_answer(response: ClientResponse, name: str) -> None:
    """LookupFailedError, or ImageNotFoundError, for what is no success."""
    status = response.status_code
    if status == 200:
        return
    # Without the body: who chose the address could read there what is meant for lictor only.
    message = f"{name}: the registry answered {status}{_find_codes(response)}"
    if status == 404:
        raise ImageNotFoundError(message)
    if status in _REFUSED:
        message += (
            "; credentials come from imageRegistryCredentials, --imagePullSecrets or `docker login`"
        )
    raise LookupFailedError(message)
