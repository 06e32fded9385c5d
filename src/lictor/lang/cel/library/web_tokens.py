"""Kyverno's `jwt.Decode(token, key)` and `jwks.Fetch(url)`, for policies that authorize."""

from lictor.crypto.json_web_token import decode_token, secret_key
from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.library.http import check_url
from lictor.lang.cel.world import HttpCall, current_world
from lictor.raw import Json, JsonObject


def _decode_with_secret(token: str, secret: str) -> JsonObject:
    return decode_token(token, [secret_key(secret)], current_world.get().now())


def _decode_with_keys(token: str, keys: list[Json]) -> JsonObject:
    return decode_token(token, keys, current_world.get().now())


def _fetch(url: str) -> list[Json]:
    world = current_world.get()
    check_url(url, world.blocked_urls, world.allowed_urls)
    status, body = world.http(HttpCall("GET", url, {}))
    if status != 200:
        raise FunctionError(f"failed to fetch {url}: status {status}")
    keys = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(keys, list):
        raise FunctionError(f"no set of keys came from {url}")
    return keys


OVERLOADS = (
    function("jwt.Decode", "string, string -> dyn", _decode_with_secret),
    function("jwt.Decode", "string, KeySet -> dyn", _decode_with_keys),
    function("jwks.Fetch", "string -> KeySet", _fetch),
)
