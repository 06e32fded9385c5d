"""HTTP calls of policies to services other than the API server."""

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urljoin

import httpx2
import msgspec
import orjson

from lictor.core.errors import LictorError, LookupFailedError, UsageError
from lictor.core.lang.cel.library.resources import check_url
from lictor.core.lang.networks import BLOCKED_HOSTS, BLOCKED_NETWORKS, INSIDE, METADATA
from lictor.core.lang.url import parse_url
from lictor.core.ports import ApiCall, HttpAnswer, HttpLimits
from lictor.core.raw import Json
from lictor.http.addresses import check_host
from lictor.images.dialing import Proxy, ProxyChoice
from lictor.kubernetes.connection import build_transport
from lictor.kubernetes.flags import Flags


def read_http_limits(flags: Flags) -> HttpLimits:
    """The limits of CEL's `http`; raises UsageError for an invalid entry."""
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


_METHODS = ("GET", "POST")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_MOST_BUNDLES = 32
# A token for calls to services only: its audience is not the API server.
_TOKEN_VARIABLE = "KYVERNO_SCOPED_TOKEN_PATH"  # noqa: S105
_TOKEN_PATH = "/var/run/secrets/kyverno/apicall/token"  # noqa: S105


# The blocked addresses, the authorities that the policy trusts, and the proxy.
_ClientKey: TypeAlias = tuple[tuple[str, ...], str, Proxy | None]


class _Step(msgspec.Struct, frozen=True):
    """One request of a call: the first, or that of a redirect."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    content: bytes | None


class ServiceCaller:
    """Makes the calls of one process. Belongs to one event loop."""

    def __init__(self, limits: HttpLimits, *, most_bytes: int, seconds: float) -> None:
        inside = (*BLOCKED_NETWORKS, *BLOCKED_HOSTS)
        self._blocked = inside if limits.blocked is None else limits.blocked
        self._allowed = limits.allowed
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._clients: OrderedDict[_ClientKey, httpx2.AsyncClient] = OrderedDict()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def call(self, call: ApiCall) -> Json:
        """The JSON response of the service; an HttpAnswer if the call is guarded."""
        status, reason, content = await self._follow(call)
        if call.guarded:
            return HttpAnswer(status, _read_json_or_none(content))
        if not 200 <= status < 300:
            # Without the body, which readers of the message may not be allowed to see.
            raise LookupFailedError(f"HTTP {status} {reason}")
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise LookupFailedError(f"{call.service_url} returned no JSON: {error}") from error

    async def _follow(self, call: ApiCall) -> tuple[int, str, bytes]:
        """The response after all redirects."""
        step = _first_step(call)
        try:
            async with asyncio.timeout(self._seconds or None):
                for _ in range(_MOST_REDIRECTS):
                    status, reason, content, target = await self._take(step, call)
                    if target is None:
                        return status, reason, content
                    step = _next_step(step, status, target)
        except TimeoutError:
            raise LookupFailedError(
                f"{call.service_url} did not answer within {self._seconds:g} s"
            ) from None
        except LookupFailedError:
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise LookupFailedError(f"{type(error).__name__} {error}".strip()) from error
        raise LookupFailedError(f"stopped after {_MOST_REDIRECTS} redirects")

    async def _take(self, step: _Step, call: ApiCall) -> tuple[int, str, bytes, httpx2.URL | None]:
        blocked, proxy = self._list_blocked(step.url, call), self._find_proxy(step.url, call)
        if call.guarded:
            self._check_text(step.url, self._blocked)
        check_host(step.url.host, blocked)
        client = self._client((blocked, call.ca_bundle, proxy))
        request = client.build_request(
            step.method, step.url, headers=dict(step.headers), content=step.content
        )
        response = await client.send(request, stream=True)
        try:
            target = _find_target(step.url, response)
            content = b"" if target is not None else await self._read(response)
            return response.status_code, response.reason_phrase, content, target
        finally:
            await response.aclose()

    def _check_text(self, url: httpx2.URL, blocked: tuple[str, ...]) -> None:
        """Reject a URL that the limits do not allow, before its name is resolved."""
        try:
            check_url(str(url), blocked, self._allowed)
        except LictorError as error:
            raise LookupFailedError(str(error).removeprefix("request failed: ")) from error
        if self._allowed and ".." in url.path.split("/"):
            # Servers decode `%2e%2e` inside an allowed path, and leave the path.
            raise LookupFailedError(f'URL "{url}" is not permitted: no matching allowlist entry')

    def _list_blocked(self, url: httpx2.URL, call: ApiCall) -> tuple[str, ...]:
        if call.guarded:
            return METADATA + self._blocked
        is_open = call.is_chosen_by_object and not self._is_allowed(url)
        return METADATA + INSIDE if is_open else METADATA

    def _is_allowed(self, url: httpx2.URL) -> bool:
        """Whether an administrator named it."""
        try:
            self._check_text(url, ())
        except LookupFailedError:
            return False
        return bool(self._allowed)

    def _find_proxy(self, url: httpx2.URL, call: ApiCall) -> Proxy | None:
        # A proxy resolves names itself: only an administrator's calls may use one.
        if call.guarded or call.is_chosen_by_object:
            return None
        is_secure = url.scheme == "https"
        port = url.port or (443 if is_secure else 80)
        return ProxyChoice(os.environ).find(url.host, port, is_secure=is_secure)

    async def _read(self, response: httpx2.Response) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if self._most_bytes and size > self._most_bytes:
                raise LookupFailedError(
                    "response length must be less than max allowed response length "
                    f"of {self._most_bytes}"
                )
            parts.append(part)
        return b"".join(parts)

    def _client(self, key: _ClientKey) -> httpx2.AsyncClient:
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= _MOST_BUNDLES:
                # Not closed: a call may be in progress. Its connections end with it.
                self._clients.popitem(last=False)
            found = self._clients[key] = _build_client(*key)
        self._clients.move_to_end(key)
        return found


def _build_client(
    blocked: tuple[str, ...], ca_bundle: str, proxy: Proxy | None
) -> httpx2.AsyncClient:
    try:
        context = ssl.create_default_context(cadata=ca_bundle or None)
    except ssl.SSLError as error:
        raise LookupFailedError("failed to parse PEM CA bundle for APICall") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    way = None
    if proxy is not None:
        headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else {}
        way = httpx2.Proxy(
            str(httpx2.URL(scheme="http", host=proxy.host, port=proxy.port)), headers=headers
        )
    limits = httpx2.Limits(max_connections=64, max_keepalive_connections=16)
    return httpx2.AsyncClient(
        transport=build_transport(context, limits, way, blocked),
        trust_env=False,
        timeout=None,
        headers={"user-agent": "lictor"},
    )


def _first_step(call: ApiCall) -> _Step:
    if call.method not in _METHODS:
        raise LookupFailedError(f"invalid request type {call.method}")
    try:
        url = httpx2.URL(call.service_url)
    except httpx2.InvalidURL as error:
        raise LookupFailedError(f"invalid URL {call.service_url!r}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise LookupFailedError(f"unsupported protocol scheme in {call.service_url!r}")
    headers = {name.lower(): value for name, value in (call.headers or {}).items()}
    if not call.guarded and "authorization" not in headers:
        headers.update(_read_scoped_token())
    content = None
    if call.method == "POST":
        data = call.data if call.guarded or call.data is not None else {}
        content = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
        headers.setdefault("content-type", "application/json")
    return _Step(call.method, url, headers, content)


def _read_scoped_token() -> dict[str, str]:
    path = Path(os.environ.get(_TOKEN_VARIABLE) or _TOKEN_PATH)
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return {"authorization": f"Bearer {token}"} if token else {}


def _find_target(url: httpx2.URL, response: httpx2.Response) -> httpx2.URL | None:
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    target = httpx2.URL(urljoin(str(url), location))
    if target.scheme not in ("http", "https"):
        raise LookupFailedError(f"a redirect to {target.scheme!r} is not followed")
    return target


def _next_step(step: _Step, status: int, target: httpx2.URL) -> _Step:
    headers = dict(step.headers)
    if (target.host, target.port, target.scheme) != (step.url.host, step.url.port, step.url.scheme):
        for secret in ("authorization", "cookie", "proxy-authorization"):
            headers.pop(secret, None)
    if status in {307, 308} or step.method == "GET":
        return _Step(step.method, target, headers, step.content)
    headers.pop("content-type", None)
    return _Step("GET", target, headers, None)


def _read_json_or_none(content: bytes) -> Json:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
