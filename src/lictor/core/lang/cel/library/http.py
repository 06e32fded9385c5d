"""Kyverno's `http.get(url)`, `http.post(url, body)`, `jwt.Decode` and `jwks.Fetch`."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from lictor.core.crypto.json_web_token import decode_token, secret_key
from lictor.core.errors import FunctionError, LookupFailedError
from lictor.core.lang.cel.host import HttpCall, current_host
from lictor.core.lang.cel.types import Overload, function, member
from lictor.core.lang.networks import find_blocked_network
from lictor.core.lang.url import GoUrl, parse_url
from lictor.core.raw import Json, JsonObject


def _decode_with_secret(token: str, secret: str) -> JsonObject:
    return decode_token(token, [secret_key(secret)], current_host.get().now())


def _decode_with_keys(token: str, keys: list[Json]) -> JsonObject:
    return decode_token(token, keys, current_host.get().now())


def _fetch(url: str) -> list[Json]:
    host = current_host.get()
    check_url(url, host.blocked_urls, host.allowed_urls)
    status, body = host.http(HttpCall("GET", url, {}))
    if status != 200:
        raise FunctionError(f"failed to fetch {url}: status {status}")
    keys = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(keys, list):
        raise FunctionError(f"no set of keys came from {url}")
    return keys


TOKEN_OVERLOADS = (
    function("jwt.Decode", "string, string -> dyn", _decode_with_secret),
    function("jwt.Decode", "string, KeySet -> dyn", _decode_with_keys),
    function("jwks.Fetch", "string -> KeySet", _fetch),
)


_HEADERS = "map<string,string>"
_PORTS = {"https": "443", "http": "80"}


@lru_cache(maxsize=512)
def check_url(text: str, blocked: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Refuse a URL by its text; names must be checked again by whoever resolves them."""
    try:
        url = parse_url(text)
    except ValueError as error:
        raise FunctionError(f"request failed: invalid URL: {error}") from None
    if allowed and not any(_is_within(url, parse_url(prefix)) for prefix in allowed):
        raise FunctionError(
            f'request failed: URL "{text}" is not permitted: no matching allowlist entry'
        )
    host = _normal_host(url)
    if host in {entry.lower().rstrip(".") for entry in blocked if "/" not in entry}:
        raise FunctionError(
            f'request failed: URL "{text}" is blocked: '
            f'hostname "{url.hostname}" is on the blocklist'
        )
    network = find_blocked_network(host, blocked)
    if network:
        raise FunctionError(
            f"request failed: connection to {url.host} blocked: "
            f"IP {host} falls in blocked range {network}"
        )


def _normal_host(url: GoUrl) -> str:
    return url.hostname.lower().rstrip(".")


def _is_within(url: GoUrl, prefix: GoUrl) -> bool:
    if url.scheme != prefix.scheme or _normal_host(url) != _normal_host(prefix):
        return False
    if _port(url) != _port(prefix):
        return False
    path = prefix.path
    if path in {"", "/"} or url.path == path:
        return True
    return url.path.startswith(path if path.endswith("/") else f"{path}/")


def _port(url: GoUrl) -> str:
    return url.port or _PORTS.get(url.scheme, "")


def _call(call: HttpCall) -> JsonObject:
    host = current_host.get()
    if host.namespace and not host.allows_http:
        raise FunctionError(
            "request failed: http calls are not allowed in namespaced policies: "
            "set --allowHTTPInNamespacedPolicies to enable"
        )
    check_url(call.url, host.blocked_urls, host.allowed_urls)
    try:
        status, body = host.http(call)
    except LookupFailedError as error:
        raise type(error)(f"request failed: {error}") from error
    if isinstance(body, dict):
        return {**body, "statusCode": status}
    return {"body": body, "statusCode": status}


def _get(ca_bundle: str, url: str, headers: Mapping[str, Json] | None = None) -> JsonObject:
    return _call(HttpCall("GET", url, _texts(headers), ca_bundle=ca_bundle))


def _post(
    ca_bundle: str, url: str, body: Json, headers: Mapping[str, Json] | None = None
) -> JsonObject:
    return _call(HttpCall("POST", url, _texts(headers), body, ca_bundle))


def _texts(headers: Mapping[str, Json] | None) -> dict[str, str]:
    if not all(isinstance(value, str) for value in (headers or {}).values()):
        raise FunctionError("no such overload: a header's value must be a string")
    return dict(headers or {})


def _client(ca_bundle: str) -> str:
    if ca_bundle and "-----BEGIN CERTIFICATE-----" not in ca_bundle:
        raise FunctionError("request failed: failed to parse PEM CA bundle for APICall")
    return ca_bundle


def _spell(name: str) -> tuple[str, str]:
    return name, name.capitalize()


def _forms(name: str, signature: str, implementation: Json) -> Iterable[Overload]:
    for spelled in _spell(name):
        yield function(f"http.{spelled}", signature, lambda *given: implementation("", *given))
        yield member(spelled, f"Http, {signature}", implementation)


HTTP_OVERLOADS = (
    *_forms("get", "string -> dyn", _get),
    *_forms("get", f"string, {_HEADERS} -> dyn", _get),
    *_forms("post", "string, dyn -> dyn", _post),
    *_forms("post", f"string, dyn, {_HEADERS} -> dyn", _post),
    *(function(f"http.{name}", "string -> Http", _client) for name in _spell("client")),
    *(member(name, "Http, string -> Http", lambda _, ca: _client(ca)) for name in _spell("client")),
)
