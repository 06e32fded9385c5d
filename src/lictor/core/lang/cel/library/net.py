"""IP addresses, networks, and references of container images as Kyverno takes them apart."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar, TypeAlias

from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.functions import Library, succeeds
from lictor.core.lang.cel.values import StrictOpaque
from lictor.core.lang.url import parse_url

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


_HUB = "index.docker.io"
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REPOSITORY = re.compile(r"[a-z0-9_./-]{2,255}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Image(StrictOpaque):
    """The parts of an image's name; a reference by digest may have a tag as well."""

    text: str
    registry: str
    repository: str
    tag: str
    digest: str
    type_name: ClassVar[str] = "kyverno.image"


@lru_cache(maxsize=4096)
def parse_image(text: str) -> Image:
    """Read a reference as the registry client of Kyverno does; CelError for anything else."""
    base, tag = _split_tag(text)
    place = _parse_repository(base)
    if place and (tag is None or _TAG.fullmatch(tag)):
        return Image(text, *place, tag or "latest", "")
    base, at, digest = text.partition("@")
    if at and _DIGEST.fullmatch(digest):
        untagged, tag = _split_tag(base)
        has_tag = bool(tag and _TAG.fullmatch(tag))
        place = _parse_repository(untagged if has_tag else base)
        if place:
            return Image(text, *place, tag if has_tag and tag else "", digest)
    raise CelError(f"could not parse reference: {text}")


def _split_tag(text: str) -> tuple[str, str | None]:
    base, _, tag = text.rpartition(":")
    return (base, tag) if base and "/" not in tag else (text, None)


def _parse_repository(text: str) -> tuple[str, str] | None:
    first, slash, rest = text.partition("/")
    # Unlike elsewhere, a bare `localhost` is a folder of Docker Hub here.
    if slash and ("." in first or ":" in first):
        registry, repository = first, rest
    else:
        registry, repository = "", text
    if not _REPOSITORY.fullmatch(repository) or not _is_registry(registry):
        return None
    registry = _HUB if registry in {"", "docker.io"} else registry
    implied = registry == _HUB and "/" not in repository
    return registry, f"library/{repository}" if implied else repository


def _is_registry(registry: str) -> bool:
    try:
        return not registry or parse_url(f"https://{registry}").host == registry
    except ValueError:
        return False


def _identifier(image: Image) -> str:
    if not image.digest:
        return image.tag
    return f"{image.tag}@{image.digest}" if image.tag else image.digest


_I = "kyverno.image"
IMAGES = Library(
    (f"image(string) -> {_I}", parse_image),
    (f"parseImageReference(string) -> {_I}", parse_image),
    ("isImage(string) -> bool", succeeds(parse_image)),
    (f"{_I}::containsDigest() -> bool", lambda image: bool(image.digest)),
    (f"{_I}::registry() -> string", lambda image: image.registry),
    (f"{_I}::repository() -> string", lambda image: image.repository),
    (f"{_I}::identifier() -> string", _identifier),
    (f"{_I}::tag() -> string", lambda image: image.tag),
    (f"{_I}::digest() -> string", lambda image: image.digest),
)
SEPARATOR = Library(
    (
        f"{_I}::identifierWithSeparator() -> string",
        lambda image: f"@{image.digest}" if image.digest else f":{image.tag}",
    ),
)
# Before Kyverno 1.19 a tag beside a digest was ignored.
OLD_IMAGES = Library(
    (f"{_I}::identifier() -> string", lambda image: image.digest or image.tag),
    (f"{_I}::tag() -> string", lambda image: "" if image.digest else image.tag),
)
