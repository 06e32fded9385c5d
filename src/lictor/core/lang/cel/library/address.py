"""Kubernetes' `ip("…")` and `cidr("…")`: internet addresses and networks."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from lictor.core.errors import FunctionError
from lictor.core.lang.cel.types import function, member

_BITS = re.compile(r"0|[1-9][0-9]{0,2}")
_MULTICAST_HERE_V4 = IPv4Network("224.0.0.0/24")
_BROADCAST = IPv4Address("255.255.255.255")


@lru_cache(maxsize=2048)
def parse_address(text: str) -> IPv4Address | IPv6Address:
    """Read an address as Kubernetes does; FunctionError for what is none."""
    try:
        address = ip_address(text)
    except ValueError:
        raise FunctionError(
            f'IP Address "{text}" parse error during conversion from string: '
            f'ParseAddr("{text}"): unable to parse IP'
        ) from None
    if isinstance(address, IPv6Address):
        if address.scope_id:
            raise FunctionError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped:
            raise FunctionError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


@lru_cache(maxsize=2048)
def parse_network(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Read an address with a prefix length; bits behind the prefix are kept."""
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        raise _network_fault(text, "no '/'")
    try:
        address = ip_address(address_text)
    except ValueError:
        raise _network_fault(text, f'ParseAddr("{address_text}"): unable to parse IP') from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise _network_fault(text, "IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits):
        raise _network_fault(text, f'bad bits after slash: "{bits}"')
    if int(bits) > address.max_prefixlen:
        raise _network_fault(text, "prefix length out of range")
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        raise FunctionError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address, int(bits)


def _network_fault(text: str, reason: str) -> FunctionError:
    message = "network address parse error during conversion from string"
    return FunctionError(f'{message}: {message}: netip.ParsePrefix("{text}"): {reason}')


def _make_address(text: str) -> str:
    return str(parse_address(text))


def _make_network(text: str) -> str:
    address, bits = parse_network(text)
    return f"{address}/{bits}"


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except FunctionError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        parse_network(text)
    except FunctionError:
        return False
    return True


def _is_link_local_multicast(text: str) -> bool:
    address = parse_address(text)
    if isinstance(address, IPv4Address):
        return address in _MULTICAST_HERE_V4
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def _is_global_unicast(text: str) -> bool:
    address = parse_address(text)
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == _BROADCAST
    )


@lru_cache(maxsize=2048)
def _network(payload: str) -> IPv4Network | IPv6Network:
    address, bits = parse_network(payload)
    return ip_network(f"{address}/{bits}", strict=False)


def _contains_address(network: str, address: str) -> bool:
    return parse_address(address) in _network(network)


def _contains_network(network: str, other: str) -> bool:
    outer, inner = _network(network), _network(other)
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


def _mask(network: str) -> str:
    return str(_network(network))


ADDRESS_OVERLOADS = (
    function("ip", "string -> IP", _make_address),
    function("isIP", "string -> bool", _is_address),
    function("ip.isCanonical", "string -> bool", lambda text: str(parse_address(text)) == text),
    member("family", "IP -> int", lambda ip: parse_address(ip).version),
    member("isUnspecified", "IP -> bool", lambda ip: parse_address(ip).is_unspecified),
    member("isLoopback", "IP -> bool", lambda ip: parse_address(ip).is_loopback),
    member("isLinkLocalMulticast", "IP -> bool", _is_link_local_multicast),
    member("isLinkLocalUnicast", "IP -> bool", lambda ip: parse_address(ip).is_link_local),
    member("isGlobalUnicast", "IP -> bool", _is_global_unicast),
    function("cidr", "string -> CIDR", _make_network),
    function("isCIDR", "string -> bool", _is_network),
    member("containsIP", "CIDR, string -> bool", _contains_address),
    member("containsIP", "CIDR, IP -> bool", _contains_address),
    member("containsCIDR", "CIDR, string -> bool", _contains_network),
    member("containsCIDR", "CIDR, CIDR -> bool", _contains_network),
    member("ip", "CIDR -> IP", lambda cidr: str(parse_network(cidr)[0])),
    member("prefixLength", "CIDR -> int", lambda cidr: parse_network(cidr)[1]),
    member("masked", "CIDR -> CIDR", _mask),
    function("string", "IP -> string", str),
    function("string", "CIDR -> string", str),
)
