"""Which proxy leads to a host? HTTP_PROXY, HTTPS_PROXY and NO_PROXY, as other tools read them."""

from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

import msgspec

from lictor.errors import LookupFailedError
from lictor.registry.repository_name import is_loopback


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy; `authorization` is what its header of that name wants."""

    host: str
    port: int
    authorization: str = ""


class ProxyChoice:
    """Reads the environment once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._secure = _read(environment, "https_proxy")
        self._plain = _read(environment, "http_proxy")
        self._exempt = [
            entry.strip().lower()
            for entry in _read(environment, "no_proxy").split(",")
            if entry.strip()
        ]

    def find(self, host: str, port: int, *, is_secure: bool) -> Proxy | None:
        """The proxy on the way to a host; None where there is none."""
        url = self._secure if is_secure else self._plain
        if not url or is_loopback(host) or self._is_exempt(host.lower(), port):
            return None
        return _parse_proxy(url)

    def _is_exempt(self, host: str, port: int) -> bool:
        return any(_matches(entry, host, port) for entry in self._exempt)


def _read(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_within(entry, host)
    if not entry.startswith("["):
        name, colon, number = entry.rpartition(":")
        if colon and ":" not in name and number.isdecimal():
            if int(number) != port:
                return False
            entry = name
    entry = entry.strip("[]").removeprefix("*").removeprefix(".")
    return host == entry or host.endswith(f".{entry}")


def _is_within(network: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def _parse_proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname:
        # Not shown: it may hold a password.
        raise LookupFailedError("HTTP_PROXY and HTTPS_PROXY must be http://HOST:PORT")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, port, authorization)
