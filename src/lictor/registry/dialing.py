"""How a connection to a registry is made: names resolved and looked at, proxies, TLS."""

import asyncio
import os
import socket
import ssl
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

import msgspec

from lictor.errors import LookupFailedError
from lictor.http.addresses import list_meanings, resolve
from lictor.http.client import ClientConnection, write_head
from lictor.registry.pool import RegistryServer
from lictor.registry.repository_name import is_loopback
from lictor.registry.settings import RegistrySettings

_MAX_HEAD = 64 * 1024
# A name is resolved once for the connections that are made in one go.
_NAME_SECONDS = 10.0
_MOST_NAMES = 1024


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy; `authorization` is what its header of that name wants."""

    host: str
    port: int
    authorization: str = ""


class ProxyChoice:
    """Which proxy leads to a host? HTTP_PROXY, HTTPS_PROXY and NO_PROXY, read once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._secure = _read(environment, "https_proxy")
        self._plain = _read(environment, "http_proxy")
        self._exempt = [
            entry.strip().lower()
            for entry in _read(environment, "no_proxy").split(",")
            if entry.strip()
        ]

    def find(self, host: str, port: int, *, is_secure: bool) -> Proxy | None:
        """The proxy on the way to a host; None where there is none."""
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
        # Not shown: it may hold a password.
        raise LookupFailedError("HTTP_PROXY and HTTPS_PROXY must be http://HOST:PORT")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, port, authorization)


class Dialer:
    """Makes connections. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._proxies = ProxyChoice(os.environ)
        self._contexts: dict[tuple[bool, str], ssl.SSLContext] = {}
        self._own_authorities = frozenset(host for host, _ in settings.authorities)
        self._names: OrderedDict[tuple[str, int], tuple[float, asyncio.Task[list[str]]]] = (
            OrderedDict()
        )

    def find_proxy(self, server: RegistryServer) -> Proxy | None:
        return self._proxies.find(server.host, server.port, is_secure=server.is_secure)

    async def dial(self, server: RegistryServer) -> ClientConnection:
        """A connection; LookupFailedError where none may be made, OSError where none can."""
        proxy = self.find_proxy(server)
        if proxy is not None:
            return await self._dial_proxy(server, proxy)
        failure: OSError | None = None
        addresses = await self._find_addresses(server)
        context = self._context(server) if server.is_secure else None
        for address in addresses:
            try:
                # One that leads nowhere, as IPv6 often does, leaves time for the others.
                async with asyncio.timeout(self._settings.connect_seconds / len(addresses)):
                    reader, writer = await asyncio.open_connection(
                        address,
                        server.port,
                        limit=_MAX_HEAD,
                        ssl=context,
                        server_hostname=server.host if context else None,
                    )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
            else:
                return ClientConnection(reader, writer)
        raise failure or OSError(f"no address of {server.host}")

    async def _find_addresses(self, server: RegistryServer) -> list[str]:
        """The addresses to try, all of which were looked at: no name is resolved again."""
        self._check_name(server)
        addresses = await self._resolve(server.host, server.port)
        for address in addresses:
            self._check_address(server, address)
        return addresses

    async def _resolve(self, host: str, port: int) -> list[str]:
        written = _read_address(host)
        if written is not None:
            return [written]
        key = host, port
        until, task = self._names.get(key, (0.0, None))
        if task is None or time.monotonic() > until or (task.done() and task.exception()):
            task = asyncio.create_task(resolve(host, port))
            # Looked at, so that nobody is told of it where all who asked have given up.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._names[key] = time.monotonic() + _NAME_SECONDS, task
            if len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return await asyncio.shield(task)

    def _check_name(self, server: RegistryServer) -> None:
        host = server.host.lower().rstrip(".")
        if host in self._list_blocked(server):
            raise LookupFailedError(f"registry {server.authority} is not asked: {host} is blocked")

    def _check_address(self, server: RegistryServer, address: str) -> None:
        # With it comes a whole language, which policy servers need for nothing else.
        from lictor.lang.cel.library.http import find_blocked_network

        blocked = self._list_blocked(server)
        for meant in list_meanings(address):
            network = find_blocked_network(meant, blocked)
            if network:
                raise LookupFailedError(
                    f"registry {server.authority} is not asked: its address {address} is in "
                    f"{network}; --registryAllowlist={server.authority} lets it be asked"
                )

    def _list_blocked(self, server: RegistryServer) -> tuple[str, ...]:
        rules = self._settings.addresses
        if server.authority in rules.allowed:
            return ()
        return rules.blocked if server.is_trusted else rules.blocked + rules.blocked_in_namespaces

    async def _dial_proxy(self, server: RegistryServer, proxy: Proxy) -> ClientConnection:
        """Through a proxy, which resolves names by itself: written addresses are looked at."""
        self._check_name(server)
        written = _read_address(server.host)
        if written is not None:
            self._check_address(server, written)
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port, limit=_MAX_HEAD)
        if server.is_secure:
            try:
                await open_tunnel(reader, writer, (server.host, server.port), proxy)
                await writer.start_tls(self._context(server), server_hostname=server.host)
            except BaseException:
                writer.transport.abort()
                raise
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


def _read_address(host: str) -> str | None:
    """The address that a host is written as; None for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        # Such as 2130706433 or 0x7f.1, which many programs take for addresses.
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


async def open_tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: tuple[str, int],
    proxy: Proxy,
) -> None:
    """Ask a proxy to pass everything on to a server (host and port) from now on."""
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
        raise OSError(f"the proxy {proxy.host}:{proxy.port} answered no HTTP") from error
    words = head.split(None, 2)
    if len(words) < 2 or words[1] != b"200":
        said = head.partition(b"\r\n")[0][:100].decode(errors="replace")
        raise OSError(f"the proxy {proxy.host}:{proxy.port} refused: {said}")
