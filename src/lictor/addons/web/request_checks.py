"""What is refused before anything is looked at: other names, other sites, forms that are none."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from lictor.http.messages import HttpRequest

# Of requests, as far as they count here.
KEPT_HEADERS: Final = frozenset(
    (
        b"accept-encoding", b"authorization", b"cookie", b"host", b"if-none-match", b"origin",
        b"sec-fetch-mode", b"sec-fetch-site",
    )
)  # fmt: skip
# Content from this host only, no inline script or style, no frame; content types are binding;
# browsers send our addresses to no other site.
SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NOT_STORED: Final = (b"cache-control", b"no-store")
_FORM: Final = b"application/x-www-form-urlencoded"
_MOST_PARAMETERS: Final = 300
_MOST_FIELDS: Final = 20
# From our own page, or typed by the user.
_OWN_SITES: Final = ("same-origin", "none")


class SiteRules(msgspec.Struct, frozen=True):
    """How the page is reached."""

    # Names besides addresses: a request with another name was caused by another site.
    hosts: frozenset[str]
    # The path of the page on its host: empty, or `/lictor`.
    base: str = ""


class RefusedCall(msgspec.Struct, frozen=True):
    """Why a request is not answered."""

    status: HTTPStatus
    message: str


def read_header(call: HttpRequest, name: bytes) -> str:
    """The only value of a header; empty where it is missing, or there are several."""
    values = call.headers.get(name, ())
    return values[0].decode("latin-1").strip() if len(values) == 1 else ""


def find_refusal(call: HttpRequest, rules: SiteRules) -> RefusedCall | None:
    """None where a request may go on."""
    if call.method not in ("GET", "HEAD", "POST"):
        return RefusedCall(HTTPStatus.METHOD_NOT_ALLOWED, "Pages are read with GET.")
    if call.is_cut:
        return RefusedCall(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too large.")
    if not is_known_host(read_header(call, b"host"), rules.hosts):
        return RefusedCall(
            HTTPStatus.MISDIRECTED_REQUEST,
            "This page does not go by that name. If it should, start lictor web with --host NAME.",
        )
    if not _comes_from_here(call):
        return RefusedCall(HTTPStatus.FORBIDDEN, "Another site has sent this request.")
    return None


def is_known_host(host: str, names: Iterable[str]) -> bool:
    """An address, or one of our names: a name of others may lead to us only to deceive a browser
    (DNS rebinding).
    """
    try:
        parts = urlsplit(f"//{host}")
        name, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    if not name or parts.netloc != host or "@" in host:
        return False
    return name in names or _is_address(name)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _comes_from_here(call: HttpRequest) -> bool:
    """Links may lead here from anywhere. Nothing else may come from other sites, and forms must be
    proven to be ours: a form without an origin is rejected.
    """
    site = read_header(call, b"sec-fetch-site")
    if call.method != "POST":
        return site in ("", *_OWN_SITES) or read_header(call, b"sec-fetch-mode") == "navigate"
    if site:
        return site in _OWN_SITES
    origin = read_header(call, b"origin")
    if origin:
        return origin.lower().partition("://")[2] == read_header(call, b"host").lower()
    # No browser: those send a cookie automatically, but never this header.
    return b"authorization" in call.headers and b"cookie" not in call.headers


def is_led_from_elsewhere(call: HttpRequest) -> bool:
    """Was a link on another site followed? Browsers omit our cookie in that case."""
    site = read_header(call, b"sec-fetch-site")
    return call.method == "GET" and bool(site) and site not in _OWN_SITES


def read_query(call: HttpRequest) -> tuple[tuple[str, str], ...] | None:
    """The parameters of the address; None where they cannot be read."""
    try:
        return tuple(_parse(call.query, _MOST_PARAMETERS))
    except ValueError:
        return None


def read_form(call: HttpRequest) -> Mapping[str, str] | None:
    """The fields of a form that was sent; None where it is none."""
    if call.content_type.partition(b";")[0].strip().lower() != _FORM:
        return None
    try:
        return dict(_parse(call.body, _MOST_FIELDS))
    except ValueError:
        return None


def _parse(text: bytes, most: int) -> list[tuple[str, str]]:
    return parse_qsl(
        text.decode("latin-1"), keep_blank_values=True, max_num_fields=most, errors="replace"
    )


def read_cookie(call: HttpRequest, name: str) -> str:
    """The value of a cookie; empty where there is none, or more than one of that name."""
    found = [
        value
        for header in call.headers.get(b"cookie", ())
        for key, _, value in (part.partition("=") for part in header.decode("latin-1").split(";"))
        if key.strip() == name
    ]
    # Another site of the same host could have planted one beside ours.
    return found[0].strip() if len(found) == 1 else ""


def is_own_path(text: str) -> bool:
    """Is it safe to redirect a browser there? Only to a path on this host."""
    if not text.startswith("/") or text[1:2] in ("/", "\\"):
        return False
    return text.isascii() and text.isprintable() and not set(text) & set(" \\")
