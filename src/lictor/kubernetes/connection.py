"""HTTP to one API server: TLS, authentication, connection pools that detect a dead peer."""

import asyncio
import contextlib
import socket
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar
from urllib.parse import quote

import httpcore2
import httpx2
import msgspec

from lictor.core.errors import UnknownHostError, UnreachableError, describe_os_error
from lictor.core.lang.networks import METADATA
from lictor.core.raw import Json
from lictor.http.addresses import find_addresses
from lictor.http.client import ClientResponse, HttpClient
from lictor.kubernetes.config import ClusterConfig

Params: TypeAlias = Mapping[str, str | int]
Headers: TypeAlias = list[tuple[str, str]]
T = TypeVar("T")

TIMEOUT = 10.0
_CONNECTIONS = 64
# Credentials are read again after this time, not for each request.
_REMEMBER = 1.0
# How long requests on connections with the previous certificate may still take.
_GRACE = 120.0
# A peer that vanished (a node that lost power) is detected within half a minute.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000,
}  # fmt: skip


_AGENT = ("user-agent", "lictor")
_COMMON: Headers = [("accept", "application/json"), _AGENT]


class ApiRequest(msgspec.Struct, frozen=True):
    """One HTTP request; `limit` is the timeout for each of its steps in seconds."""

    method: str
    path: str
    content: bytes | None = None
    content_type: str = "application/json"
    params: Params | None = None
    limit: float = TIMEOUT
    # The requested content type; empty is plain JSON.
    accept: str = ""


class ApiConnection:
    """Sends requests to one API server. Belongs to one event loop."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._fixed = _list_fixed_headers(config)
        self._extensions = (
            {"sni_hostname": config.tls_server_name} if config.tls_server_name else {}
        )
        self._pair = (config.certificate, config.key)
        self._open()
        # Reading a token may run a program: not on the loop, nor on threads that wait for it.
        self._reader: ThreadPoolExecutor | None = None
        self._former: set[asyncio.Task[None]] = set()
        # Cached authentication headers, for a burst of requests.
        self._known: tuple[tuple[str, str], ...] = ()
        self._known_until = 0.0

    def _open(self) -> None:
        context = build_ssl_context(self._config, self._pair)
        self._http = _build_http(self._config, context, _CONNECTIONS)
        # Plain requests use the fast client, unless there is a proxy.
        self._wire = None if self._config.proxy else _build_wire(self._config, context)
        # A watch keeps its connection for minutes: it must not starve the other requests.
        self._watches = _build_http(self._config, context, None)

    async def close(self) -> None:
        for task in self._former:
            task.cancel()
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)
        if self._wire is not None:
            await self._wire.close()
        await self._http.aclose()
        await self._watches.aclose()

    async def send(
        self, outgoing: ApiRequest, *, renew: bool = False
    ) -> httpx2.Response | ClientResponse:
        """Send a request and read the response, of any status; UnreachableError without one."""
        _check_path(outgoing.path)
        headers = await self._prepare(renew=renew)
        if outgoing.content is not None:
            headers.append(("content-type", outgoing.content_type))
        if outgoing.accept:
            headers.append(("accept", outgoing.accept))
        try:
            try:
                return await self._send_once(outgoing, headers)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, ConnectionError):
                # The server may close an idle connection just when it is reused.
                if outgoing.method != "GET":
                    raise
                return await self._send_once(outgoing, headers)
        except (httpx2.HTTPError, OSError) as error:
            raise _unreachable(f"{outgoing.method} {outgoing.path}", error) from error

    async def _send_once(
        self, outgoing: ApiRequest, headers: Headers
    ) -> httpx2.Response | ClientResponse:
        if self._wire is not None:
            return await self._wire.send(
                outgoing.method,
                outgoing.path,
                content=outgoing.content,
                params=outgoing.params,
                headers=_COMMON + headers if not outgoing.accept else [_AGENT, *headers],
                limit=outgoing.limit,
            )
        return await self._http.request(
            outgoing.method,
            outgoing.path,
            content=outgoing.content,
            params=outgoing.params,
            headers=headers,
            timeout=outgoing.limit,
            extensions=self._extensions,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params, read_timeout: float
    ) -> AsyncIterator[httpx2.Response]:
        """A GET with a streamed response."""
        _check_path(path)
        headers = await self._prepare()
        try:
            async with self._watches.stream(
                "GET",
                path,
                params=params,
                headers=headers,
                timeout=httpx2.Timeout(TIMEOUT, read=read_timeout),
                extensions=self._extensions,
            ) as response:
                yield response
        except (httpx2.HTTPError, OSError) as error:
            raise _unreachable(f"watch of {path}", error) from error

    async def _prepare(self, *, renew: bool = False) -> Headers:
        """The authentication headers; also activates a new client certificate."""
        identity, token = self._config.identity, self._config.token
        if not renew and time.monotonic() < self._known_until:
            return list(self._known)
        if identity is not None:
            pair = await self._read(identity, renew)
            if pair[0] and pair != self._pair:
                self._change_pair(pair)
        headers = list(self._fixed)
        if token is not None:
            text = await self._read(token, renew)
            if text:
                headers.append(("authorization", f"Bearer {text}"))
        self._known, self._known_until = tuple(headers), time.monotonic() + _REMEMBER
        return headers

    async def _read(self, source: Callable[[bool], T], renew: bool) -> T:  # noqa: FBT001
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, "credentials")
        return await asyncio.get_running_loop().run_in_executor(self._reader, source, renew)

    def _change_pair(self, pair: tuple[str, str]) -> None:
        """Use new connections with another certificate; requests in progress may finish."""
        former = [client.aclose for client in (self._http, self._watches)]
        if self._wire is not None:
            former.append(self._wire.close)
        self._pair = pair
        self._open()
        task = asyncio.get_running_loop().create_task(_close_later(former))
        self._former.add(task)
        task.add_done_callback(self._former.discard)


async def _close_later(closers: Iterable[Callable[[], Awaitable[None]]]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(_GRACE)
    for close in closers:
        await close()


def build_ssl_context(config: ClusterConfig, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
    """TLS for the API server: its authority, and the client certificate if there is one."""
    try:
        context = ssl.create_default_context(cadata=config.ca or None)
        # Cluster authorities often lack extensions that newer Pythons require; Go does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not config.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = pair or (config.certificate, config.key)
        if certificate:
            # The ssl module reads keys from files only.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(f"{certificate.strip()}\n{key.strip()}\n")
                file.flush()
                context.load_cert_chain(file.name, password=_refuse_password)
    except ssl.SSLError as error:
        why = error.reason or error
        raise UnreachableError(
            f"{config.server}: the certificates to connect with cannot be used: {why}"
        ) from error
    return context


def _refuse_password() -> str:
    # Otherwise OpenSSL would prompt on the terminal.
    raise UnreachableError("the client key is encrypted; give one without a password")


def _build_http(
    config: ClusterConfig, context: ssl.SSLContext, connections: int | None
) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    transport = build_transport(context, limits, config.proxy or None)
    return httpx2.AsyncClient(
        base_url=config.server,
        transport=transport,
        trust_env=False,
        headers={"accept": "application/json", "user-agent": "lictor"},
        timeout=TIMEOUT,
    )


def build_transport(
    context: ssl.SSLContext,
    limits: httpx2.Limits,
    proxy: httpx2.Proxy | str | None = None,
    blocked: tuple[str, ...] = METADATA,
) -> httpx2.AsyncHTTPTransport:
    """An httpx2 transport that connects, also to its proxy, through `http.addresses`."""
    transport = httpx2.AsyncHTTPTransport(
        verify=context,
        trust_env=False,
        limits=limits,
        proxy=proxy,
        socket_options=list_socket_options(),
    )
    # httpx2 has no argument for this; the tests fail if it moves.
    pool = transport._pool  # noqa: SLF001
    pool._network_backend = _CheckedBackend(pool._network_backend, blocked)  # noqa: SLF001
    return transport


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses, and resolves no name a second time."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend, blocked: tuple[str, ...]) -> None:
        self._inner = inner
        self._blocked = blocked

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore2's signature)
        local_address: str | None = None,
        socket_options: Json = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception | None = None
        try:
            addresses = await find_addresses(host, port, self._blocked)
        except UnknownHostError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"no address of {host}")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _build_wire(config: ClusterConfig, context: ssl.SSLContext) -> HttpClient:
    return HttpClient(
        config.server,
        context,
        connections=_CONNECTIONS,
        server_name=config.tls_server_name,
        socket_options=list_socket_options(),
    )


def list_socket_options() -> list[tuple[int, int, int]]:
    """TCP keepalive options, as far as the kernel supports them."""
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ]
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _list_fixed_headers(config: ClusterConfig) -> Headers:
    headers: Headers = []
    if config.username:
        pair = b64encode(f"{config.username}:{config.password}".encode()).decode()
        headers.append(("authorization", f"Basic {pair}"))
    if config.impersonate:
        headers.append(("impersonate-user", config.impersonate))
        headers += [("impersonate-group", group) for group in config.impersonate_groups]
        if config.impersonate_uid:
            headers.append(("impersonate-uid", config.impersonate_uid))
        for name, values in config.impersonate_extra.items():
            headers += [(f"impersonate-extra-{quote(name, safe='')}", value) for value in values]
    return headers


def _check_path(path: str) -> None:
    """Require a path, not a URL: with one, the credentials would go to another host."""
    if not path.startswith("/") or path.startswith("//"):
        raise UnreachableError(f"{path!r} is not a path of the API server")


def _unreachable(what: str, error: Exception) -> UnreachableError:
    if isinstance(error, OSError) and error.errno:
        return UnreachableError(f"{what}: {describe_os_error(error)}")
    return UnreachableError(f"{what}: {type(error).__name__} {error}".rstrip())
