"""Network builtins: addresses, networks, their parts and unions, URLs. No lookups."""

import re
from collections.abc import Iterator
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from lictor.core.errors import FunctionError
from lictor.core.lang.rego.operands import BuiltinRun, Functions, take_elements, take_text
from lictor.core.lang.rego.values import RegoSet, RegoValue, is_object, list_pairs
from lictor.core.lang.url import parse_reference

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network

_LENGTH = re.compile(r"[0-9]{1,3}")
_MOST_ADDRESSES = 1 << 17


def _read_address(text: str) -> _Address | None:
    try:
        address = ip_address(text) if "%" not in text else None
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _read_network(text: str) -> _Network:
    base, _, length = text.partition("/")
    if not _LENGTH.fullmatch(length) or "%" in base:
        raise FunctionError(f"invalid CIDR address: {text[:64]}")
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _contains(network: _Network, text: str) -> bool:
    address = _read_address(text)
    if address is not None:
        return address.version == network.version and address in network
    other = _read_network(text)
    return other.version == network.version and (
        other.network_address in network and other.broadcast_address in network
    )


def _is_network(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    try:
        _read_network(take_text(arguments[0]))
    except FunctionError:
        return False
    return True


def _expand(run: BuiltinRun, arguments: list[RegoValue]) -> RegoSet:
    network = _read_network(take_text(arguments[0]))
    if network.num_addresses > _MOST_ADDRESSES:
        raise ValueError(f"there are more than {_MOST_ADDRESSES} addresses in {network}")
    run.check_time()
    return RegoSet([str(address) for address in network])


def _list_networks(value: RegoValue) -> Iterator[tuple[str, RegoValue]]:
    """Networks, each with its key."""
    if isinstance(value, str):
        yield value, value
    elif isinstance(value, list):
        yield from ((_first_text(each), at) for at, each in enumerate(value))
    elif isinstance(value, RegoSet):
        yield from ((_first_text(each), each) for each in value)
    elif is_object(value):
        yield from ((_first_text(each), key) for key, each in list_pairs(value))


def _first_text(value: RegoValue) -> str:
    if isinstance(value, list):
        if not value:
            raise FunctionError("element must be string or non-empty array")
        return take_text(value[0])
    return take_text(value)


def _contains_matches(run: BuiltinRun, arguments: list[RegoValue]) -> RegoSet:
    inside = list(_list_networks(arguments[1]))
    found: list[RegoValue] = []
    for text, key in _list_networks(arguments[0]):
        network = _read_network(text) if inside else None
        found += [
            [key, other]
            for part, other in run.watch(inside)
            if network is not None and _contains(network, part)
        ]
    return RegoSet(found)


def _merge(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoSet:
    networks = [_as_network(take_text(each)) for each in take_elements(arguments[0])]
    fours = collapse_addresses([each for each in networks if isinstance(each, IPv4Network)])
    sixes = collapse_addresses([each for each in networks if isinstance(each, IPv6Network)])
    return RegoSet([str(each) for each in (*fours, *sixes)])


def _as_network(text: str) -> _Network:
    address = _read_address(text)
    if address is None:
        return _read_network(text)
    if isinstance(address, IPv6Address):
        raise FunctionError("IPv6 invalid: needs prefix length")
    # As in Go: the classful network of the address.
    first = address.packed[0]
    length = 8 if first < 0x80 else 16 if first < 0xC0 else 24
    return IPv4Network((int(address), length), strict=False)


def _parse_uri(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    try:
        url = parse_reference(take_text(arguments[0]))
    except ValueError as error:
        raise FunctionError(str(error)) from error
    parts = {
        "scheme": url.scheme,
        "hostname": url.hostname,
        "port": url.port,
        "path": url.plain_path,
        "raw_path": url.raw_path,
        "raw_query": url.query,
        "fragment": url.fragment,
    }
    return {name: part for name, part in parts.items() if part}


def _is_uri(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    text = arguments[0]
    if not isinstance(text, str) or not text:
        return False
    try:
        parse_reference(text)
    except ValueError:
        return False
    return True


NETWORK_BUILTINS: Functions = {
    "net.cidr_contains_matches": _contains_matches,
    "net.cidr_expand": _expand,
    "net.cidr_is_valid": _is_network,
    "net.cidr_merge": _merge,
    "uri.parse": _parse_uri,
    "uri.is_valid": _is_uri,
}
