"""Sends one request to a registry: with or without TLS, and with credentials if it wants them."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LookupFailedError, describe_os_error
from lictor.core.ports import RegistryAccess
from lictor.http.addresses import Chooser
from lictor.http.client import AnswerTooLargeError, ClientResponse
from lictor.images.authorization import PULL, PUSH, Authorizer, RegistryPermission
from lictor.images.credentials import Keychain, RegistryCredential
from lictor.images.pool import RegistryServer
from lictor.images.repository_name import Repository, is_loopback, split_host
from lictor.images.settings import RegistrySettings
from lictor.images.transport import RegistryRequest, Transport

# The size limit for responses to an upload.
_MOST_SAID = 64 * 1024
_LOGINS = 16
_MOST_SCHEMES = 1024
REFUSED = frozenset((401, 403))


class RepositoryRequest(msgspec.Struct, frozen=True):
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


class RegistrySession:
    """Sends requests for repositories. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings, keychain: Keychain) -> None:
        self._settings = settings
        self._keychain = keychain
        self._transport = Transport(settings)
        self._authorizer = Authorizer(self._transport.send)
        # Separate from the threads that resolve names: a slow helper must not block those.
        self._logins = ThreadPoolExecutor(_LOGINS, "registry-logins")
        # Whether registries that may lack TLS use it, once one of both has worked.
        self._known: dict[RegistryServer, RegistryServer] = {}

    def close(self) -> None:
        self._transport.close()
        self._logins.shutdown(wait=False, cancel_futures=True)

    async def send(self, wanted: RepositoryRequest) -> ClientResponse:
        """The response, of any status."""
        first, *others = self._list_servers(wanted)
        if not others:
            return await self._send_to(first, wanted)
        known = self._known.get(first)
        if known is not None:
            return await self._send_to(known, wanted)
        return await self.find_out(first, others[0], partial(self._send_to, wanted=wanted))

    def _list_servers(self, wanted: RepositoryRequest) -> list[RegistryServer]:
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

    async def find_out(
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

    async def _send_to(self, server: RegistryServer, wanted: RepositoryRequest) -> ClientResponse:
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
        response = await self.exchange(request)
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
            response = await self.exchange(request)
        if problem and response.status_code in REFUSED:
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

    async def exchange(self, request: RegistryRequest) -> ClientResponse:
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
