"""Kubernetes' `url("https://…")` and its parts."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function, member
from lictor.lang.cel.go_url import parse_url


def _make(text: str) -> str:
    try:
        return str(parse_url(text))
    except ValueError as error:
        raise FunctionError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


OVERLOADS = (
    function("url", "string -> URL", _make),
    function("isURL", "string -> bool", _is_url),
    member("getScheme", "URL -> string", lambda url: parse_url(url).scheme),
    member("getHost", "URL -> string", lambda url: parse_url(url).host),
    member("getHostname", "URL -> string", lambda url: parse_url(url).hostname),
    member("getPort", "URL -> string", lambda url: parse_url(url).port),
    member("getEscapedPath", "URL -> string", lambda url: parse_url(url).path),
    member("getQuery", "URL -> map<string,list<string>>", lambda url: parse_url(url).parse_query()),
)
