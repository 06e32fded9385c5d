"""Internet addresses and networks: ip('...') and cidr('...')."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar, TypeAlias

from cel2.faults import CelError
from cel2.functions import Library, succeeds
from cel2.values import StrictOpaque

Address: TypeAlias = IPv4Address | IPv6Address
_BITS = re.compile(r"0|[1-9][0-9]{0,2}")
_LINK_LOCAL_MULTICAST = IPv4Network("224.0.0.0/24")
_BROADCAST = IPv4Address("255.255.255.255")


class IP(StrictOpaque):
    """An address."""

    address: Address
    type_name: ClassVar[str] = "net.IP"


class CIDR(StrictOpaque):
    """An address with the length of its network's prefix; bits behind the prefix are kept."""

    address: Address
    bits: int
    type_name: ClassVar[str] = "net.CIDR"

    @property
    def network(self) -> IPv4Network | IPv6Network:
        return ip_network((self.address, self.bits), strict=False)


@lru_cache(maxsize=2048)
def _parse_ip(text: str) -> IP:
    try:
        address = ip_address(text)
    except ValueError:
        raise CelError(
            f'IP Address "{text}" parse error during conversion from string:'
            f' ParseAddr("{text}"): unable to parse IP'
        ) from None
    if isinstance(address, IPv6Address):
        if "%" in text:
            raise CelError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped:
            raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return IP(address)


@lru_cache(maxsize=2048)
def _parse_cidr(text: str) -> CIDR:
    head, slash, bits = text.rpartition("/")
    if not slash:
        raise _cidr_error(text, "no '/'")
    try:
        address = ip_address(head)
    except ValueError:
        raise _cidr_error(text, f'ParseAddr("{head}"): unable to parse IP') from None
    if "%" in head:
        raise _cidr_error(text, "IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits):
        raise _cidr_error(text, f'bad bits after slash: "{bits}"')
    if int(bits) > address.max_prefixlen:
        raise _cidr_error(text, "prefix length out of range")
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return CIDR(address, int(bits))


def _cidr_error(text: str, reason: str) -> CelError:
    message = "network address parse error during conversion from string"
    return CelError(f'{message}: {message}: netip.ParsePrefix("{text}"): {reason}')


def _is_link_local_multicast(ip: IP) -> bool:
    address = ip.address
    if isinstance(address, IPv4Address):
        return address in _LINK_LOCAL_MULTICAST
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def _is_global_unicast(ip: IP) -> bool:
    address = ip.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == _BROADCAST
    )


def _contains_ip(cidr: CIDR, ip: IP) -> bool:
    return ip.address in cidr.network


def _contains_cidr(outer: CIDR, inner: CIDR) -> bool:
    return (
        outer.address.version == inner.address.version
        and outer.bits <= inner.bits
        and inner.address in outer.network
    )


def _masked(cidr: CIDR) -> CIDR:
    return CIDR(cidr.network.network_address, cidr.bits)


IPS = Library(
    ("ip(string) -> net.IP", _parse_ip),
    ("net.IP::family() -> int", lambda ip: ip.address.version),
    ("ip.isCanonical(string) -> bool", lambda text: str(_parse_ip(text).address) == text),
    ("net.IP::isUnspecified() -> bool", lambda ip: ip.address.is_unspecified),
    ("net.IP::isLoopback() -> bool", lambda ip: ip.address.is_loopback),
    ("net.IP::isLinkLocalMulticast() -> bool", _is_link_local_multicast),
    ("net.IP::isLinkLocalUnicast() -> bool", lambda ip: ip.address.is_link_local),
    ("net.IP::isGlobalUnicast() -> bool", _is_global_unicast),
    ("isIP(string) -> bool", succeeds(_parse_ip)),
    ("string(net.IP) -> string", lambda ip: str(ip.address)),
    types=("net.IP",),
)
CIDRS = Library(
    ("cidr(string) -> net.CIDR", _parse_cidr),
    (
        "net.CIDR::containsIP(string) -> bool",
        lambda cidr, text: _contains_ip(cidr, _parse_ip(text)),
    ),
    ("net.CIDR::containsIP(net.IP) -> bool", _contains_ip),
    (
        "net.CIDR::containsCIDR(string) -> bool",
        lambda cidr, text: _contains_cidr(cidr, _parse_cidr(text)),
    ),
    ("net.CIDR::containsCIDR(net.CIDR) -> bool", _contains_cidr),
    ("net.CIDR::ip() -> net.IP", lambda cidr: IP(cidr.address)),
    ("net.CIDR::prefixLength() -> int", lambda cidr: cidr.bits),
    ("net.CIDR::masked() -> net.CIDR", _masked),
    ("isCIDR(string) -> bool", succeeds(_parse_cidr)),
    ("string(net.CIDR) -> string", lambda cidr: f"{cidr.address}/{cidr.bits}"),
    types=("net.CIDR",),
)
