"""Where expressions may make HTTP calls to, as the flags say."""

from collections.abc import Iterable
from ipaddress import ip_network

from lictor.cluster.flags import Flags
from lictor.errors import UsageError
from lictor.lang.cel.go_url import parse_url
from lictor.ports import HttpLimits


def read_http_limits(flags: Flags) -> HttpLimits:
    """The limits of CEL's `http`; UsageError names an entry that cannot be meant."""
    blocked = tuple(_split(flags.http_blocklist))
    for entry in blocked:
        if "/" in entry:
            _check_network(entry)
    allowed = tuple(_split(flags.http_allowlist))
    for entry in allowed:
        _check_url(entry)
    return HttpLimits(blocked or None, allowed, flags.allow_http_in_namespaced_policies)


def _split(text: str) -> Iterable[str]:
    return (entry.strip() for entry in text.split(",") if entry.strip())


def _check_network(entry: str) -> None:
    try:
        ip_network(entry, strict=False)
    except ValueError as error:
        raise UsageError(f"--httpBlocklist: invalid CIDR {entry!r}: {error}") from error


def _check_url(entry: str) -> None:
    try:
        url = parse_url(entry)
    except ValueError as error:
        raise UsageError(f"--httpAllowlist: invalid URL {entry!r}: {error}") from error
    if not url.scheme or not url.host:
        raise UsageError(
            f"--httpAllowlist: {entry!r} must include scheme and host "
            "(such as https://api.example.com)"
        )
