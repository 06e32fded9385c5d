"""Does a URL point outside of private and loopback networks?"""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_PORT = re.compile(r"(?:\[.*\]|[^:]*)(?::[0-9]*)?")
_PRIVATE = tuple(
    ip_network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)


def is_external_url(url: str, resolve: Callable[[str], list[str]]) -> bool:
    """Say so for the host's address, or for all that `resolve` gives; ValueError for no URL."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in url):
        raise ValueError("the URL holds a control character")
    parts = urlsplit(url)
    # A host in brackets may hold an `@` itself.
    hosts = (parts.netloc.rpartition("@")[2], parts.netloc)
    if not any(map(_PORT.fullmatch, hosts)):
        raise ValueError(f"invalid port after host in {parts.netloc[:256]!r}")
    host = parts.hostname or ""
    if host == "localhost":
        return False
    try:
        addresses = [ip_address(host)]
    except ValueError:
        addresses = [ip_address(address) for address in resolve(host)]
    return not any(map(_is_inside, addresses))


def _is_inside(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback or any(address in block for block in _PRIVATE)
