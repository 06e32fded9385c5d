"""Answers of a cluster, `resource.get(…)` and the like, and of services, `http.get(url)`."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from lictor.core.crypto.json_web_token import decode_token, secret_key
from lictor.core.errors import FunctionError
from lictor.core.lang.cel.functions import Library, outside
from lictor.core.lang.cel.host import HttpCall, current_host
from lictor.core.lang.cel.library.host import Rows, emit_argument, method, prefix_errors, spell
from lictor.core.lang.cel.library.plain import take_in
from lictor.core.lang.cel.values import Opaque, StrictOpaque, Value
from lictor.core.lang.networks import find_blocked_network
from lictor.core.lang.url import GoUrl, parse_url
from lictor.core.raw import Json, JsonObject


class ResourceName(StrictOpaque):
    """The value of resource.toGVR()."""

    group: str
    version: str
    resource: str
    type_name: ClassVar[str] = "schema.GroupVersionResource"
    is_host_value: ClassVar[bool] = True

    def get_field(self, key: Value, missing: Any) -> Value:
        fields = {"Group": self.group, "Version": self.version, "Resource": self.resource}
        return fields.get(key, missing)

    def split(self) -> tuple[str, str]:
        """The apiVersion and the resource."""
        return f"{self.group}/{self.version}" if self.group else self.version, self.resource


def _spread(args: tuple[Any, ...]) -> list[Any]:
    """The arguments, with a name of toGVR() as the two that it stands for."""
    first, *rest = args
    return [*first.split(), *rest] if isinstance(first, ResourceName) else list(args)


def _get(*args: Any) -> JsonObject | None:
    api_version, resource, namespace, name = _spread(args)
    _stay_inside(namespace)
    find = current_host.get().get_resource
    return prefix_errors("failed to get resource", find, api_version, resource, namespace, name)


def _get_here(*args: Any) -> JsonObject | None:
    *kind, name = _spread(args)
    return _get(*kind, current_host.get().namespace, name)


def _list(*args: Any) -> JsonObject:
    api_version, resource, namespace, *rest = _spread(args)
    _stay_inside(namespace)
    labels: Mapping[str, Json] = rest[0] if rest else {}
    if not all(isinstance(value, str) for value in labels.values()):
        raise FunctionError("no such overload: a label's value must be a string")
    find = current_host.get().list_resources
    return prefix_errors("failed to list resource", find, api_version, resource, namespace, labels)


def _list_here(*args: Any) -> JsonObject:
    api_version, resource, *rest = _spread(args)
    return _list(api_version, resource, current_host.get().namespace, *rest)


def _post(api_version: str, resource: str, namespace: str, body: JsonObject) -> JsonObject:
    _stay_inside(namespace)
    create = current_host.get().post_resource
    return prefix_errors(
        "failed to create resource", create, api_version, resource, namespace, body
    )


def _post_here(api_version: str, resource: str, body: JsonObject) -> JsonObject:
    # In a policy without namespace, this is how to create what has none.
    return _post(api_version, resource, current_host.get().namespace, body)


def _find(api_version: str, kind: str) -> ResourceName:
    find = current_host.get().find_resource
    return ResourceName(*prefix_errors("failed to map kind to resource", find, api_version, kind))


def _stay_inside(namespace: str) -> None:
    """Also where an environment has the forms with a namespace: a policy of one sees no other."""
    own = current_host.get().namespace
    if own and namespace != own:
        raise FunctionError(f"a policy of namespace {own} sees nothing of {namespace or 'others'}")


_MAP, _TEXTS, _GVR = "map(string, dyn)", "map(string, string)", "schema.GroupVersionResource"
_ANYWHERE = {
    ("toGVR", f"string, string -> {_GVR}"): _find,
    ("post", f"string, string, {_MAP} -> {_MAP}"): _post_here,
}
_CLUSTER = {
    ("get", f"string, string, string, string -> {_MAP}"): _get,
    ("get", f"{_GVR}, string, string -> {_MAP}"): _get,
    ("list", f"string, string, string -> {_MAP}"): _list,
    ("list", f"string, string, string, {_TEXTS} -> {_MAP}"): _list,
    ("list", f"{_GVR}, string -> {_MAP}"): _list,
    ("list", f"{_GVR}, string, {_TEXTS} -> {_MAP}"): _list,
    ("post", f"string, string, string, {_MAP} -> {_MAP}"): _post,
}
# In a namespaced policy the namespace is not an argument.
_NAMESPACED = {
    ("get", f"string, string, string -> {_MAP}"): _get_here,
    ("get", f"{_GVR}, string -> {_MAP}"): _get_here,
    ("list", f"string, string -> {_MAP}"): _list_here,
    ("list", f"string, string, {_TEXTS} -> {_MAP}"): _list_here,
    ("list", f"{_GVR} -> {_MAP}"): _list_here,
    ("list", f"{_GVR}, {_TEXTS} -> {_MAP}"): _list_here,
}


def _rows(signatures: Mapping[tuple[str, str], Any]) -> Rows:
    rows = (method("resource.Context", *key, call) for key, call in signatures.items())
    return list(chain.from_iterable(rows))


CLUSTER_RESOURCES = Library(*_rows({**_ANYWHERE, **_CLUSTER}))
NAMESPACED_RESOURCES = Library(*_rows({**_ANYWHERE, **_NAMESPACED}))


def _get_entry(name: str, projection: str = "") -> Json:
    find = current_host.get().global_context
    return prefix_errors("failed to get global reference", find, name, projection)


GLOBAL_CONTEXT = Library(
    *method("globalcontext.Context", "get", "string -> dyn", _get_entry),
    *method("globalcontext.Context", "get", "string, string -> dyn", _get_entry),
)


def _generate(namespace: str, objects: list[Json]) -> bool:
    host = current_host.get()
    if host.namespace and namespace != host.namespace:
        raise FunctionError(
            f'cross-namespace generation denied: policy in "{host.namespace}" '
            f'cannot generate into "{namespace}"'
        )
    if not all(isinstance(each, dict) for each in objects):
        raise FunctionError("no such overload: apply takes a list of objects")
    prefix_errors("failed to generate resources", host.generate, namespace, objects)
    return True


def _generate_here(objects: list[Json]) -> bool:
    return _generate(current_host.get().namespace, objects)


_GENERATOR = "generator.Context"
GENERATOR = Library(*method(_GENERATOR, "apply", f"string, list({_MAP}) -> bool", _generate))
# Since Kyverno 1.19 a namespaced policy does not name its namespace.
OWN_GENERATOR = Library(*method(_GENERATOR, "apply", f"list({_MAP}) -> bool", _generate_here))


class CelHttpClient(Opaque):
    """The value of `http`, and of http.client(): whom it trusts beside the usual authorities."""

    ca_bundle: str = ""
    type_name: ClassVar[str] = "http.Context"


class KeySet(Opaque):
    """The value of jwks.Fetch()."""

    keys: list[Json]
    type_name: ClassVar[str] = "jwk.Set"


def _decode_with_secret(token: str, secret: str) -> JsonObject:
    return decode_token(token, [secret_key(secret)], current_host.get().now())


def _decode_with_keys(token: str, keys: KeySet) -> JsonObject:
    return decode_token(token, keys.keys, current_host.get().now())


def _fetch(url: str) -> KeySet:
    host = current_host.get()
    check_url(url, host.blocked_urls, host.allowed_urls)
    status, body = host.http(HttpCall("GET", url, {}))
    if status != 200:
        raise FunctionError(f"failed to fetch {url}: status {status}")
    keys = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(keys, list):
        raise FunctionError(f"no set of keys came from {url}")
    return KeySet(keys)


TOKENS = Library(
    ("jwt.Decode(string, string) -> dyn", outside(_decode_with_secret)),
    ("jwt.Decode(string, jwk.Set) -> dyn", outside(_decode_with_keys)),
    ("jwks.Fetch(string) -> jwk.Set", outside(_fetch)),
)


_PORTS = {"https": "443", "http": "80"}


@lru_cache(maxsize=512)
def check_url(text: str, blocked: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Refuse a URL by its text; names must be checked again where they are resolved."""
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
    status, body = prefix_errors("request failed", host.http, call)
    if isinstance(body, dict):
        return {**body, "statusCode": status}
    return {"body": body, "statusCode": status}


def _http_get(client: CelHttpClient, url: str, headers: Mapping[str, Json] | None = None) -> Value:
    return take_in(_call(HttpCall("GET", url, _texts(headers), ca_bundle=client.ca_bundle)))


def _http_post(
    client: CelHttpClient, url: str, body: Value, headers: Mapping[str, Json] | None = None
) -> Value:
    sent = emit_argument(body)
    return take_in(_call(HttpCall("POST", url, _texts(headers), sent, client.ca_bundle)))


def _texts(headers: Mapping[str, Json] | None) -> dict[str, str]:
    if not all(isinstance(value, str) for value in (headers or {}).values()):
        raise FunctionError("no such overload: a header's value must be a string")
    return dict(headers or {})


def _client(_: CelHttpClient, ca_bundle: str) -> CelHttpClient:
    if ca_bundle and "-----BEGIN CERTIFICATE-----" not in ca_bundle:
        raise FunctionError("request failed: failed to parse PEM CA bundle for APICall")
    return CelHttpClient(ca_bundle)


_HTTP = "http.Context"
HTTP = Library(
    *spell(_HTTP, "get", "string -> dyn", _http_get),
    *spell(_HTTP, "get", f"string, {_TEXTS} -> dyn", _http_get),
    *spell(_HTTP, "post", "string, dyn -> dyn", _http_post),
    *spell(_HTTP, "post", f"string, dyn, {_TEXTS} -> dyn", _http_post),
    *spell(_HTTP, "client", f"string -> {_HTTP}", _client),
)
