"""Outbound connections: names are resolved, addresses checked, sockets opened.

docs/operate/security.md lists the blocked addresses.
"""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from lictor.core.errors import BlockedAddressError, LookupFailedError, UnknownHostError
from lictor.core.lang.networks import INSIDE, METADATA, find_blocked, read_address

if TYPE_CHECKING:
    from http.client import HTTPConnection

_MAX_HEAD = 64 * 1024


class Chooser(StrEnum):
    """Who chose an address."""

    # The user of a command, or a cluster administrator: flags, policies without a namespace.
    OPERATOR = "operator"
    # An object in a request, such as the image of a Pod.
    OBJECT = "object"
    # A policy of a namespace.
    NAMESPACE = "namespace"


class AddressRules(msgspec.Struct, frozen=True):
    """Networks and host names that must not be connected to."""

    blocked: tuple[str, ...] = METADATA
    # Additionally, for addresses chosen by an object or a namespaced policy.
    blocked_for_objects: tuple[str, ...] = INSIDE
    blocked_in_namespaces: tuple[str, ...] = INSIDE
    # Hosts, with the port if it is not 443, that an administrator named: treated as theirs.
    allowed: frozenset[str] = frozenset()

    def list_blocked(self, authority: str, chooser: Chooser) -> tuple[str, ...]:
        """The blocked entries for a host, by who chose it."""
        if chooser is Chooser.OPERATOR or authority in self.allowed:
            return self.blocked
        is_object = chooser is Chooser.OBJECT
        return self.blocked + (
            self.blocked_for_objects if is_object else self.blocked_in_namespaces
        )


# For the user of a command: they chose everything that is evaluated.
OPERATOR_RULES = AddressRules(blocked_for_objects=(), blocked_in_namespaces=())


class ResolvedHost(NamedTuple):
    """The addresses of a host, and the fully qualified names that lead to them."""

    addresses: tuple[str, ...]
    names: frozenset[str] = frozenset()


Resolve: TypeAlias = Callable[[str, int], Awaitable[ResolvedHost]]


async def resolve(host: str, port: int) -> ResolvedHost:
    """The addresses of a host; raises UnknownHostError if it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME
        )
    except (OSError, UnicodeError) as error:
        raise UnknownHostError(f"failed to resolve {host}: {error}") from error
    return _read_entries(host, found)


def _read_entries(host: str, found: Iterable[tuple[object, ...]]) -> ResolvedHost:
    entries = [(str(each[3]), each[4]) for each in found]
    addresses = dict.fromkeys(
        str(place[0]).partition("%")[0] for _, place in entries if isinstance(place, tuple)
    )
    if not addresses:
        raise UnknownHostError(f"no usable addresses resolved for {host}")
    return ResolvedHost(tuple(addresses), frozenset(name for name, _ in entries if name))


def check_host(host: str, blocked: tuple[str, ...]) -> None:
    """Raises BlockedAddressError for a blocked name or literal address."""
    entry = find_blocked(host, blocked)
    if entry:
        raise BlockedAddressError(f"connection to {host} blocked: {entry} is blocked")


def check_resolved(host: str, found: ResolvedHost, blocked: tuple[str, ...]) -> None:
    """Raises BlockedAddressError if one of the addresses, or the full name, is blocked."""
    for each in (*found.addresses, *found.names):
        entry = find_blocked(each, blocked)
        if entry:
            raise BlockedAddressError(
                f"connection to {host} blocked: resolved IP {each} falls in blocked range {entry}"
            )


async def find_addresses(
    host: str, port: int, blocked: tuple[str, ...] = METADATA, resolve: Resolve = resolve
) -> tuple[str, ...]:
    """The addresses to connect to, all checked: the name must not be resolved again."""
    check_host(host, blocked)
    written = read_address(host)
    found = ResolvedHost((written,)) if written else await resolve(host, port)
    check_resolved(host, found, blocked)
    return found.addresses


class Destination(msgspec.Struct, frozen=True):
    """The target of a connection, and its TLS settings."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    # For the certificate, if it differs from the host.
    server_name: str = ""
    blocked: tuple[str, ...] = METADATA


async def open_stream(
    destination: Destination, seconds: float | None = None, resolve: Resolve = resolve
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; raises BlockedAddressError if it is not allowed, OSError if it fails."""
    host, port = destination.host, destination.port
    addresses = await find_addresses(host, port, destination.blocked, resolve)
    name = (destination.server_name or host) if destination.context else None
    failure: OSError | None = None
    for address in addresses:
        try:
            # An unreachable address, as IPv6 often is, leaves time for the others.
            async with asyncio.timeout(seconds and seconds / len(addresses)):
                return await asyncio.open_connection(
                    address, port, limit=_MAX_HEAD, ssl=destination.context, server_hostname=name
                )
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    raise failure or OSError(f"no address of {host}")


# --- without an event loop


def open_socket(
    place: tuple[str, int],
    seconds: float | None,
    _source: object = None,
    *,
    blocked: tuple[str, ...] = METADATA,
) -> socket.socket:
    """The same for `http.client`, with the signature of `socket.create_connection`."""
    host, port = place
    failure: OSError | None = None
    for address in find_addresses_now(host, port, blocked):
        try:
            return socket.create_connection((address, port), seconds)
        except OSError as error:
            failure = error
    raise failure or OSError(f"no address of {host}")


def find_addresses_now(
    host: str, port: int, blocked: tuple[str, ...] = METADATA
) -> tuple[str, ...]:
    """Like `find_addresses`, but blocking; raises OSError for an unknown name."""
    check_host(host, blocked)
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    found = _read_entries(host, entries)
    check_resolved(host, found, blocked)
    return found.addresses


def build_connection(
    host: str,
    port: int | None,
    seconds: float,
    *,
    context: ssl.SSLContext | None = None,
    blocked: tuple[str, ...] = METADATA,
) -> "HTTPConnection":
    """An `http.client` connection opened with `open_socket`; with TLS if there is a context."""
    from http.client import HTTPConnection, HTTPSConnection

    if context is None:
        made = HTTPConnection(host, port, timeout=seconds)
    else:
        made = HTTPSConnection(host, port, timeout=seconds, context=context)
    # The only place where `http.client` connects; the tests fail if it moves.
    vars(made)["_create_connection"] = partial(open_socket, blocked=blocked)
    return made


# A name server that does not answer blocks a thread for half a minute.
_MOST_WAITING = 32
_LONGEST_NAME = 253


class HostResolver:
    """Resolves names for threads without an event loop."""

    def __init__(self) -> None:
        self._process = 0
        self._free = threading.BoundedSemaphore(_MOST_WAITING)

    def resolve(self, host: str, seconds: float) -> tuple[str, ...]:
        """The addresses of a host; raises LookupFailedError if there are none in time."""
        if not 0 < len(host) <= _LONGEST_NAME or not host.isprintable() or " " in host:
            raise LookupFailedError(f"{host[:_LONGEST_NAME]!r} is not a host name")
        if self._process != os.getpid():
            # The threads of a parent process do not exist here, and would never release their
            # slots.
            self._process = os.getpid()
            self._free = threading.BoundedSemaphore(_MOST_WAITING)
        if not self._free.acquire(blocking=False):
            raise LookupFailedError(f"{host} was not resolved: too many lookups are pending")
        future: Future[tuple[str, ...]] = Future()
        work = (host, future, self._free)
        threading.Thread(target=_resolve_name, args=work, daemon=True).start()
        try:
            return future.result(max(seconds, 0.0))
        except TimeoutError:
            raise LookupFailedError(f"{host} was not resolved within {seconds:.1f} s") from None


def _resolve_name(
    host: str, future: Future[tuple[str, ...]], free: threading.BoundedSemaphore
) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        future.set_result(_read_entries(host, found).addresses)
    except LookupFailedError as error:
        future.set_exception(error)
    except (OSError, UnicodeError) as error:
        future.set_exception(LookupFailedError(f"failed to resolve {host}: {error}"))
    finally:
        free.release()
