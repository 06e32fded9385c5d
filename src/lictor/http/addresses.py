"""Which machines does a network address reach?"""

import asyncio
import socket
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
