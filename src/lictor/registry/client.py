"""Questions to registries over HTTP: manifests, blobs and referrers of one repository."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from lictor.errors import ImageNotFoundError, LookupFailedError
from lictor.http.client import AnswerTooLargeError, ClientResponse
from lictor.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.registry.authorization import Authorizer
from lictor.registry.credentials import Keychain
from lictor.registry.manifests import (
    ACCEPTED,
    MOST_DESCRIPTORS,
    OCI_INDEX,
    read_descriptors,
    read_manifest,
)
from lictor.registry.pool import RegistryServer
from lictor.registry.repository_name import Repository, check_digest, is_loopback, split_host
from lictor.registry.settings import RegistrySettings
from lictor.registry.transport import RegistryRequest, Transport, split_url
from lictor.registry.waiting import WaitingLines

T = TypeVar("T")

_MOST_PAGES = 20
_LOGINS = 16
_MOST_SCHEMES = 1024
_REFUSED = frozenset((401, 403))
# What registries without the referrers API say to a question for it.
_NO_REFERRERS = frozenset((400, 404, 405, 406))


class _Question(msgspec.Struct, frozen=True):
    """A GET of one path of a repository."""

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

    def __init__(self, settings: RegistrySettings, keychain: Keychain) -> None:
        self._settings = settings
        self._keychain = keychain
        self._transport = Transport(settings)
        self._authorizer = Authorizer(self._transport.send)
        # Apart from the threads that resolve names: a slow helper must not hold those.
        self._logins = ThreadPoolExecutor(_LOGINS, "registry-logins")
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}
        self._lines = WaitingLines()
        # How registries are spoken to that may do without TLS, once one of both ways has worked.
        self._known: dict[RegistryServer, RegistryServer] = {}

    def close(self) -> None:
        self._transport.close()
        self._logins.shutdown(wait=False, cancel_futures=True)

    async def fetch_manifest(
        self, repository: Repository, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        return await self._try_places(
            repository, lambda place: self._fetch_manifest(place, tag_or_digest, access)
        )

    async def _fetch_manifest(
        self, repository: Repository, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        most = self._settings.manifest_bytes
        path = f"manifests/{tag_or_digest}"
        question = _Question(repository, path, access, ACCEPTED, most)
        response = await self._get(question)
        return read_manifest(response.content, tag_or_digest, question.name)

    async def fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        return await self._try_places(
            repository, lambda place: self._fetch_blob(place, digest, access)
        )

    async def _fetch_blob(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> bytes:
        most = self._settings.blob_bytes
        question = _Question(repository, f"blobs/{digest}", access, most_bytes=most)
        content = (await self._get(question)).content
        check_digest(content, digest, question.name)
        return content

    async def fetch_referrers(
        self, repository: Repository, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        async def fetch(place: Repository) -> tuple[Descriptor, ...]:
            found = await self._fetch_referrers(place, digest, access)
            if not found and place is not repository:
                # A mirror may know the image and not its signatures.
                raise ImageNotFoundError(f"{place.text} has no referrers of {digest}")
            return found

        return await self._try_places(repository, fetch)

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
            _check_status(response, question)
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
        """A GET of what is no registry, without credentials; `namespace`: of who names the URL."""
        server, target = split_url(url, url, RegistryServer("", 0, is_trusted=not namespace))
        most = self._settings.manifest_bytes
        return await self._exchange(RegistryRequest(server, target, url, most_bytes=most))

    async def _try_places(
        self, repository: Repository, fetch: Callable[[Repository], Coroutine[None, None, T]]
    ) -> T:
        """What the mirrors have, or else the registry itself."""
        for mirror in self._list_mirrors(repository):
            try:
                return await fetch(mirror)
            except LookupFailedError:
                continue
        return await fetch(repository)

    def _list_mirrors(self, repository: Repository) -> Iterator[Repository]:
        for registry, place in self._settings.mirrors:
            if registry == repository.registry:
                path = f"{place.path}/{repository.path}" if place.path else repository.path
                yield Repository(place.registry, path)

    async def share(
        self, key: tuple[Hashable, ...], fetch: Callable[[], Coroutine[None, None, T]]
    ) -> T:
        """What several ask for at the same time is fetched once."""
        place = find_place(key)
        with self._lines.wait(place):
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = asyncio.create_task(self._limit(place, fetch()))
                flight.add_done_callback(lambda _: self._flights.pop(key, None))
                flight.add_done_callback(
                    lambda done: self._lines.note_end(place, is_answer=_is_answer(done))
                )
            # One who gives up does not take the answer from the others.
            found: T = await asyncio.shield(flight)
            return found

    async def _limit(self, place: str, work: Coroutine[None, None, T]) -> T:
        seconds = self._settings.question_seconds
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise LookupFailedError(f"{place} gave no answer within {seconds:g} s") from None

    async def _get(self, question: _Question) -> ClientResponse:
        response = await self._send(question)
        _check_status(response, question)
        return response

    async def _send(self, question: _Question) -> ClientResponse:
        """The answer, whatever its status."""
        first, *others = self._list_servers(question)
        if not others:
            return await self._send_to(first, question)
        known = self._known.get(first)
        if known is not None:
            return await self._send_to(known, question)
        return await self._find_out(first, others[0], question)

    def _list_servers(self, question: _Question) -> list[RegistryServer]:
        """The server, and where TLS is not a must, the other way to speak with it."""
        registry, access = question.repository.registry, question.access
        host, port = split_host(registry)
        is_insecure = access.allow_insecure or self._settings.is_insecure(registry)
        trusted = not access.namespace
        secure = RegistryServer(
            host, port or 443, is_secure=True, is_verified=not is_insecure, is_trusted=trusted
        )
        plain = RegistryServer(
            host, port or 80, is_secure=False, is_verified=False, is_trusted=trusted
        )
        if is_loopback(host):
            return [plain, secure]
        return [secure, plain] if is_insecure else [secure]

    async def _find_out(
        self, first: RegistryServer, other: RegistryServer, question: _Question
    ) -> ClientResponse:
        """Try both ways to speak with a server, and remember which it was."""
        chosen = first
        try:
            response = await self._send_to(first, question)
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
            chosen, response = other, await self._send_to(other, question)
        if len(self._known) >= _MOST_SCHEMES:
            self._known.clear()
        self._known[first] = chosen
        return response

    async def _send_to(self, server: RegistryServer, question: _Question) -> ClientResponse:
        repository, access = question.repository, question.access
        known = self._authorizer.recall(server, repository, access)
        request = RegistryRequest(
            server,
            f"/v2/{repository.path}/{question.path}",
            question.name,
            accept=question.accept,
            authorization=known,
            most_bytes=question.most_bytes,
        )
        response = await self._exchange(request)
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code != 401 or not challenge:
            return response
        self._authorizer.forget(server, repository, access)
        loop = asyncio.get_running_loop()
        credential, problem = None, ""
        try:
            # Files are read, programs run, and Secrets asked for: not on this thread.
            credential = await loop.run_in_executor(
                self._logins, self._keychain.find, repository, access
            )
        except LookupFailedError as error:
            # What everyone may read is read all the same.
            problem = str(error)
        try:
            header = await self._authorizer.meet(challenge, request, repository, access, credential)
        except LookupFailedError as error:
            raise LookupFailedError(f"{question.name}: {problem}" if problem else error) from error
        if header and header != known:
            request = msgspec.structs.replace(request, authorization=header)
            response = await self._exchange(request)
        if problem and response.status_code in _REFUSED:
            raise LookupFailedError(f"{question.name}: {problem}")
        return response

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
            raise LookupFailedError(f"{request.name}: {authority}: {error}") from error


def _find_next_page(response: ClientResponse, first: _Question) -> _Question | None:
    link = response.headers.get("link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    query = urlsplit(link.partition("<")[2].partition(">")[0]).query
    if not query:
        raise LookupFailedError(f"{first.name}: the registry names no next page")
    return msgspec.structs.replace(first, path=f"{first.path}?{query}")


def find_place(key: tuple[Hashable, ...]) -> str:
    """The registry, or the host of a URL, that a question is for."""
    asked = key[1]
    if isinstance(asked, Repository):
        return asked.registry
    return urlsplit(str(asked)).netloc


def _is_answer(done: asyncio.Task[Any]) -> bool:
    """Did somebody say something, if only that it is not there?"""
    if done.cancelled():
        return False
    error = done.exception()
    return error is None or isinstance(error, ImageNotFoundError)


def _check_status(response: ClientResponse, question: _Question) -> None:
    status = response.status_code
    if status == 200:
        return
    said = response.content[:300].decode(errors="replace").strip()
    message = f"{question.name}: the registry answered {status}: {said}"
    if status == 404:
        raise ImageNotFoundError(message)
    if status in _REFUSED:
        message += (
            "; credentials come from imageRegistryCredentials, --imagePullSecrets or `docker login`"
        )
    raise LookupFailedError(message)
