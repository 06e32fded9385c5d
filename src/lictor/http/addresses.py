"""Which machines does a network address reach, and which addresses has a host?"""

import asyncio
import os
import socket
import threading
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from lictor.errors import LookupFailedError

_NAT64 = ip_network("64:ff9b::/96")


def list_meanings(text: str) -> list[str]:
    """The address, and those of machines that it reaches under another name."""
    address = ip_address(text)
    meanings: list[IPv4Address | IPv6Address | None] = [address]
    if address.is_unspecified:
        # To connect to nowhere is to connect to oneself.
        meanings += [ip_address("127.0.0.1"), ip_address("::1")]
    if isinstance(address, IPv6Address):
        meanings += [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            meanings.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [str(meant) for meant in meanings if meant is not None]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host; LookupFailedError where it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LookupFailedError(f"failed to resolve {host}: {error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if not addresses:
        raise LookupFailedError(f"no usable addresses resolved for {host}")
    return addresses


# A name server that does not answer holds a thread for half a minute.
_MOST_WAITING = 32
_LONGEST_NAME = 253


class HostResolver:
    """Resolves names for whoever asks from a thread without an event loop."""

    def __init__(self) -> None:
        self._process = 0
        self._free = threading.BoundedSemaphore(_MOST_WAITING)

    def resolve(self, host: str, seconds: float) -> tuple[str, ...]:
        """The addresses of a host; LookupFailedError where there are none in that time."""
        if not 0 < len(host) <= _LONGEST_NAME or not host.isprintable() or " " in host:
            raise LookupFailedError(f"{host[:_LONGEST_NAME]!r} is no name of a host")
        if self._process != os.getpid():
            # The threads of a parent are not here, and would never give back what they hold.
            self._process = os.getpid()
            self._free = threading.BoundedSemaphore(_MOST_WAITING)
        if not self._free.acquire(blocking=False):
            raise LookupFailedError(f"{host} is not resolved: too many names are waited for")
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
        addresses = tuple(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))
        if not addresses:
            raise LookupFailedError(f"{host} has no addresses")
        future.set_result(addresses)
    except (OSError, UnicodeError) as error:
        future.set_exception(LookupFailedError(f"failed to resolve {host}: {error}"))
    except LookupFailedError as error:
        future.set_exception(error)
    finally:
        free.release()
