"""URLs as Go parses them, whether they are external, and names as segments of API paths."""

import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from lictor.core.errors import ApiError
from lictor.core.lang.go_number import quote_go

_HOST_AND_PORT = re.compile(r"(?:\[.*\]|[^:]*)(?::[0-9]*)?")
_PRIVATE = tuple(
    ip_network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)


def is_external_url(url: str, resolve: Callable[[str], list[str]]) -> bool:
    """Whether the host, or all addresses from `resolve`, are external; ValueError for no URL."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in url):
        raise ValueError("the URL contains a control character")
    parts = urlsplit(url)
    # A host in brackets may contain an `@`.
    hosts = (parts.netloc.rpartition("@")[2], parts.netloc)
    if not any(map(_HOST_AND_PORT.fullmatch, hosts)):
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


# The characters of nearly all names; others are checked further.
_PLAIN = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]*")


def escape_segment(text: str) -> str:
    """One segment of a path. Raises ApiError for a name that Kubernetes would reject."""
    if _PLAIN.fullmatch(text):
        return text
    # The API server decodes percent signs before it splits a path: an escaped slash is a slash.
    if text in ("", ".", "..") or "/" in text or "%" in text or not text.isprintable():
        raise ApiError(
            f"{text!r} is not a valid name: it must not be empty, . or .., or contain / or %",
            status=400,
        )
    return quote(text, safe=":@~")


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"(?::[0-9]*)?")
_USER = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:%@]*")
_HOST_LETTERS = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_PATH_BARE = _UNRESERVED | frozenset(b"$&+,/:;=@")
_PATH_VALID = _PATH_BARE | frozenset(b"!'()*[]%")
_FRAGMENT_BARE = _PATH_BARE | frozenset(b"?!()*")


class GoUrl(msgspec.Struct, frozen=True):
    """The parts of a URL; `path` is escaped, `user` is None if there is none."""

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: str = ""
    query: str | None = None
    fragment: str = ""

    @property
    def plain_path(self) -> str:
        """The path without escapes."""
        return _unescape(self.path)

    @property
    def raw_path(self) -> str:
        """The original path, if it differs from the default escaping."""
        plain = self.plain_path
        return plain if _escape(plain, _PATH_BARE) == self.path else self.path

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        host, port = self._split_port()
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host or port

    @property
    def port(self) -> str:
        return self._split_port()[1]

    def _split_port(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        is_port = port.isdigit() and port.isascii()
        return (host, port) if colon and (is_port or not port) else (self.host, "")

    def parse_query(self) -> dict[str, list[str]]:
        """Names and their values; unreadable ones are omitted."""
        values: dict[str, list[str]] = {}
        for pair in (self.query or "").split("&"):
            if not pair or ";" in pair:
                continue
            name, _, value = pair.partition("=")
            if not _ESCAPE.search(pair):
                values.setdefault(_unescape(name, plus=True), []).append(
                    _unescape(value, plus=True)
                )
        return values

    def __str__(self) -> str:
        before = f"{self.scheme}:" if self.scheme else ""
        after = f"?{self.query}" if self.query is not None else ""
        after += f"#{self.fragment}" if self.fragment else ""
        if self.opaque:
            return f"{before}{self.opaque}{after}"
        user = f"{self.user}@" if self.user is not None else ""
        if self.scheme or self.host or user:
            needs = bool(self.host or self.path or user)
            before += f"//{user}{self.host}" if needs and (self.host or user) else ""
            before += "//" if not self.host and not user and self.path.startswith("//") else ""
        return f"{before}{self.path}{after}"


@lru_cache(maxsize=2048)
def parse_url(text: str) -> GoUrl:
    """Parse an absolute URL; raises ValueError if Kubernetes would reject it."""
    _parse(text, is_request=True)
    url, fragment = _parse_parts(text)
    return replace(url, fragment=_escape(fragment, _FRAGMENT_BARE))


def parse_reference(text: str) -> GoUrl:
    """Parse a URL that may be relative, with its fragment unescaped; ValueError if invalid."""
    url, fragment = _parse_parts(text)
    return replace(url, fragment=_unescape(fragment))


def _parse_parts(text: str) -> tuple[GoUrl, str]:
    """The URL without its fragment, and the escaped fragment."""
    whole, _, fragment = text.partition("#")
    url = _parse(whole, is_request=False)
    if _ESCAPE.search(fragment):
        raise _fault(text, _bad_escape(fragment))
    return url, fragment


def _parse(text: str, *, is_request: bool) -> GoUrl:
    if _CONTROL.search(text):
        raise _fault(text, "net/url: invalid control character in URL")
    if not text and is_request:
        raise _fault(text, "empty url")
    if text.startswith(":"):
        raise _fault(text, "missing protocol scheme")
    found = _SCHEME.match(text)
    scheme = found[0][:-1].lower() if found else ""
    rest, mark, query = text[len(found[0]) if found else 0 :].partition("?")
    asked = query if mark else None
    if text == "*":
        return GoUrl(path="*")
    if not rest.startswith("/"):
        return _without_slash(text, GoUrl(scheme, rest, query=asked), is_request=is_request)
    user, host, path = _read_authority(text, scheme, rest, is_request=is_request)
    return GoUrl(scheme, "", user, host, _read_path(text, path), asked)


def _without_slash(text: str, url: GoUrl, *, is_request: bool) -> GoUrl:
    if url.scheme:
        return url
    if is_request:
        raise _fault(text, "invalid URI for request")
    if ":" in url.opaque.partition("/")[0]:
        raise _fault(text, "first path segment in URL cannot contain colon")
    return GoUrl(path=_read_path(text, url.opaque), query=url.query)


def _read_authority(
    text: str, scheme: str, rest: str, *, is_request: bool
) -> tuple[str | None, str, str]:
    reads = bool(scheme) or (not is_request and not rest.startswith("///"))
    if not reads or not rest.startswith("//"):
        return None, "", rest
    authority, slash, path = rest[2:].partition("/")
    user, at, host = authority.rpartition("@")
    if at and (not _USER.fullmatch(user) or _ESCAPE.search(user)):
        raise _fault(text, "net/url: invalid userinfo")
    return (user if at else None), _read_host(text, host), slash + path


def _read_host(text: str, host: str) -> str:
    if host.startswith("["):
        inside, bracket, port = host[1:].rpartition("]")
        if not bracket:
            raise _fault(text, "missing ']' in host")
        _check_address(text, inside)
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if not _PORT.fullmatch(port):
        raise _fault(text, f'invalid port "{port}" after host')
    if _ESCAPE.search(host):
        raise _fault(text, _bad_escape(host))
    plain = _unescape(host)
    for letter in host:
        if letter != "%" and not _HOST_LETTERS.match(letter):
            raise _fault(text, f'invalid character "{letter}" in host name')
    return plain


def _check_address(text: str, inside: str) -> None:
    address = inside.partition("%25")[0]
    try:
        IPv6Address(address)
    except ValueError:
        raise _fault(text, "invalid host") from None


def _read_path(text: str, path: str) -> str:
    if _ESCAPE.search(path):
        raise _fault(text, _bad_escape(path))
    if all(byte in _PATH_VALID for byte in path.encode("utf-8", "replace")):
        return path
    return _escape(_unescape(path), _PATH_BARE)


def _bad_escape(text: str) -> str:
    found = _ESCAPE.search(text)
    start = found.start() if found else 0
    return f'invalid URL escape "{text[start : start + 3]}"'


def _unescape(text: str, *, plus: bool = False) -> str:
    text = text.replace("+", " ") if plus else text
    if "%" not in text:
        return text
    parts = text.encode("utf-8", "replace").split(b"%")
    unescaped = parts[0] + b"".join(bytes((int(p[:2], 16),)) + p[2:] for p in parts[1:])
    return unescaped.decode("utf-8", "replace")


def _escape(text: str, bare: frozenset[int]) -> str:
    return "".join(
        chr(byte) if byte in bare else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")
    )


def _fault(text: str, reason: str) -> ValueError:
    return ValueError(f"parse {quote_go(text)}: {reason}")
