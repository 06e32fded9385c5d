"""Opens connections to registries: address rules, proxies, TLS."""

import asyncio
import contextlib
import os
import ssl
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

import msgspec

from lictor.core.errors import BlockedAddressError, LookupFailedError, UnknownHostError
from lictor.http.addresses import (
    Chooser,
    Destination,
    ResolvedHost,
    find_addresses,
    open_stream,
    resolve,
)
from lictor.http.client import ClientConnection, write_head
from lictor.images.pool import RegistryServer
from lictor.images.repository_name import is_loopback
from lictor.images.settings import RegistrySettings

# A name is resolved once for concurrent connections.
_NAME_SECONDS = 10.0
_MOST_NAMES = 1024
# Behind a proxy, names may not be resolvable here.
_PROXY_NAME_SECONDS = 2.0


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy; `authorization` is the value of its header."""

    host: str
    port: int
    authorization: str = ""


class ProxyChoice:
    """The proxy for a host, from HTTP_PROXY, HTTPS_PROXY and NO_PROXY, read once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._secure = _read(environment, "https_proxy")
        self._plain = _read(environment, "http_proxy")
        self._exempt = [
            entry.strip().lower()
            for entry in _read(environment, "no_proxy").split(",")
            if entry.strip()
        ]

    def find(self, host: str, port: int, *, is_secure: bool) -> Proxy | None:
        """The proxy for a host; None for a direct connection."""
        url = self._secure if is_secure else self._plain
        if not url or is_loopback(host) or self._is_exempt(host.lower(), port):
            return None
        return _parse_proxy(url)

    def _is_exempt(self, host: str, port: int) -> bool:
        return any(_matches(entry, host, port) for entry in self._exempt)


def _read(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_within(entry, host)
    if not entry.startswith("["):
        name, colon, number = entry.rpartition(":")
        if colon and ":" not in name and number.isdecimal():
            if int(number) != port:
                return False
            entry = name
    entry = entry.strip("[]").removeprefix("*").removeprefix(".")
    return host == entry or host.endswith(f".{entry}")


def _is_within(network: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def _parse_proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname:
        # Not shown: it may contain a password.
        raise LookupFailedError("HTTP_PROXY and HTTPS_PROXY must be http://HOST:PORT")
    return Proxy(parts.hostname, port, read_userinfo(parts.geturl()))


def read_userinfo(url: str) -> str:
    """The header for the user and password in a URL; empty if there are none."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


class Dialer:
    """Opens connections. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._proxies = ProxyChoice(os.environ)
        self._contexts: dict[tuple[bool, str], ssl.SSLContext] = {}
        self._own_authorities = frozenset(host for host, _ in settings.authorities)
        self._names: OrderedDict[tuple[str, int], tuple[float, asyncio.Task[ResolvedHost]]] = (
            OrderedDict()
        )

    def find_proxy(self, server: RegistryServer) -> Proxy | None:
        return self._proxies.find(server.host, server.port, is_secure=server.is_secure)

    async def dial(self, server: RegistryServer) -> ClientConnection:
        """Connect; raises BlockedAddressError if it is not allowed, OSError if it fails."""
        try:
            proxy = self.find_proxy(server)
            if proxy is not None:
                return await self._dial_proxy(server, proxy)
            context = self._context(server) if server.is_secure else None
            destination = self._find_destination(server, context)
            seconds = self._settings.connect_seconds
            return ClientConnection(*await open_stream(destination, seconds, self._resolve))
        except BlockedAddressError as error:
            raise self._explain(server, error) from error

    def _find_destination(
        self, server: RegistryServer, context: ssl.SSLContext | None
    ) -> Destination:
        blocked = self._settings.addresses.list_blocked(server.authority, server.chooser)
        return Destination(server.host, server.port, context, blocked=blocked)

    def _explain(self, server: RegistryServer, error: BlockedAddressError) -> BlockedAddressError:
        if (
            server.chooser is Chooser.OPERATOR
            or server.authority in self._settings.addresses.allowed
        ):
            return error
        return BlockedAddressError(
            f"{error}; an administrator can allow it: docs/operate/security.md"
        )

    async def _resolve(self, host: str, port: int) -> ResolvedHost:
        key = host, port
        until, task = self._names.get(key, (0.0, None))
        if task is None or time.monotonic() > until or (task.done() and task.exception()):
            task = asyncio.create_task(resolve(host, port))
            # Retrieve the exception: it is not logged if all callers have given up.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._names[key] = time.monotonic() + _NAME_SECONDS, task
            if len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return await asyncio.shield(task)

    async def _dial_proxy(self, server: RegistryServer, proxy: Proxy) -> ClientConnection:
        """Through a proxy, which resolves names itself: addresses known here are checked."""
        target = self._find_destination(server, None)
        with contextlib.suppress(UnknownHostError, TimeoutError):
            async with asyncio.timeout(_PROXY_NAME_SECONDS):
                await find_addresses(target.host, target.port, target.blocked, self._resolve)
        context = self._context(server) if server.is_secure else None
        place = Destination(proxy.host, proxy.port, blocked=self._settings.addresses.blocked)
        seconds = self._settings.connect_seconds
        reader, writer = await open_stream(place, seconds, self._resolve)
        if context is not None:
            await open_tunnel(reader, writer, (server.host, server.port), proxy, context)
        return ClientConnection(reader, writer)

    def _context(self, server: RegistryServer) -> ssl.SSLContext:
        own = server.authority if server.authority in self._own_authorities else ""
        key = server.is_verified, own
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = self._build_context(server)
        return found

    def _build_context(self, server: RegistryServer) -> ssl.SSLContext:
        # SSL_CERT_FILE and SSL_CERT_DIR are read by OpenSSL itself.
        context = ssl.create_default_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if self._settings.ca_file:
            try:
                context.load_verify_locations(cafile=self._settings.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise LookupFailedError(
                    f"the authorities in {self._settings.ca_file} cannot be read: {error}"
                ) from error
        for host, authority in self._settings.authorities:
            if host == server.authority:
                context.load_verify_locations(cadata=authority)
        if not server.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def open_tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: tuple[str, int],
    proxy: Proxy,
    context: ssl.SSLContext,
) -> None:
    """Open a tunnel through a proxy to a server (host and port), with TLS."""
    try:
        await _ask_proxy(reader, writer, server, proxy)
        await writer.start_tls(context, server_hostname=server[0])
    except BaseException:
        writer.transport.abort()
        raise


async def _ask_proxy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: tuple[str, int],
    proxy: Proxy,
) -> None:
    host = f"[{server[0]}]" if ":" in server[0] else server[0]
    target = f"{host}:{server[1]}"
    headers = [("host", target)]
    if proxy.authorization:
        headers.append(("proxy-authorization", proxy.authorization))
    writer.write(write_head("CONNECT", target, headers))
    await writer.drain()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} did not answer with HTTP") from error
    words = head.split(None, 2)
    if len(words) < 2 or words[1] != b"200":
        reply = head.partition(b"\r\n")[0][:100].decode(errors="replace")
        raise OSError(f"the proxy {proxy.host}:{proxy.port} refused: {reply}")
