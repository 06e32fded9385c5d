"""Network ranges, and other addresses that reach the same machine."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_NAT64 = IPv6Network("64:ff9b::/96")
LOOPBACK = ("127.0.0.0/8", "::1/128")
# Loopback, link-local (with cloud metadata services), private and shared address space.
BLOCKED_NETWORKS = (
    "127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10", "10.0.0.0/8", "172.16.0.0/12",
    "192.168.0.0/16", "fc00::/7", "100.64.0.0/10",
)  # fmt: skip
BLOCKED_HOSTS = ("metadata.google.internal", "metadata.internal")
# Link-local addresses, and metadata services elsewhere: Azure, Alibaba, Oracle, Amazon, Google and
# Scaleway by IPv6.
METADATA = (
    "169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
    "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", *BLOCKED_HOSTS,
)  # fmt: skip
# Names of Services, with any address.
SERVICES = ".svc"
# Google's clusters have public addresses for Services.
INSIDE = (*BLOCKED_NETWORKS, "34.118.224.0/20", SERVICES)


def list_meanings(text: str) -> list[str]:
    """The address, and others that reach the same machine."""
    address = ip_address(text)
    meanings: list[IPv4Address | IPv6Address | None] = [address]
    if address.is_unspecified:
        # Connecting to 0.0.0.0 or :: reaches the local machine.
        meanings += [ip_address("127.0.0.1"), ip_address("::1")]
    if isinstance(address, IPv6Address):
        meanings += [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            meanings.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [str(meant) for meant in meanings if meant is not None]


def find_blocked_network(address: str, blocked: Iterable[str]) -> str:
    """The blocked network that contains an address, or nothing; a name is in no network."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    # An IPv4 address written as IPv6 reaches the same machine.
    found = getattr(found, "ipv4_mapped", None) or found
    networks = (entry for entry in blocked if "/" in entry)
    return next((text for text in networks if found in ip_network(text, strict=False)), "")


@lru_cache(maxsize=1024)
def find_blocked(host: str, blocked: tuple[str, ...]) -> str:
    """The entry that blocks a host by name or address; empty if there is none."""
    address = read_address(host)
    if address is not None:
        found = (find_blocked_network(meant, blocked) for meant in list_meanings(address))
        return next(filter(None, found), "")
    name = host.lower().rstrip(".")
    is_service = SERVICES in blocked and f"{SERVICES}." in f"{name}."
    is_loopback = name == "localhost" or name.endswith(".localhost")
    if is_loopback and not set(LOOPBACK).isdisjoint(blocked):
        return name
    return SERVICES if is_service else name if name in blocked else ""


def read_address(host: str) -> str | None:
    """The address that a host denotes; None for a name."""
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    return _read_short_address(host)


def _read_short_address(host: str) -> str | None:
    """Such as 2130706433 or 0x7f.1, which many programs accept as addresses, like inet_aton."""
    parts = host.split(".", 4)
    try:
        *leading, last = [_read_number(part) for part in parts]
    except ValueError:
        return None
    room = 4 - len(leading)
    if room < 1 or last >= 256**room or any(number > 255 for number in leading):
        return None
    return str(ip_address(bytes(leading) + last.to_bytes(room, "big")))


def _read_number(text: str) -> int:
    # Python also accepts signs, whitespace and underscores.
    if not text.isascii() or not text.isalnum() or len(text) > 64:
        raise ValueError(text)
    base = 16 if text[:2] in ("0x", "0X") else 8 if text.startswith("0") else 10
    return int(text, base)
