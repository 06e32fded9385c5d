"""One HTTP request to a registry, with redirects, retries and pauses."""

import asyncio
import random
import time
from datetime import UTC, datetime
from urllib.parse import urljoin, urlsplit

import msgspec

from lictor.core.errors import LookupFailedError
from lictor.http.client import AnswerTooLargeError, ClientResponse, write_head
from lictor.images.dialing import Dialer
from lictor.images.pool import ConnectionPool, RegistryServer
from lictor.images.settings import RegistrySettings

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MOST_REDIRECTS = 5
_REPEATED = frozenset((408, 429, 500, 502, 503, 504))
_FIRST_PAUSE = 0.1
_MOST_RESTING = 1024


class RegistryRequest(msgspec.Struct, frozen=True):
    """A GET, or another method with a body. `name` is used in messages."""

    server: RegistryServer
    target: str
    name: str
    accept: str = "*/*"
    authorization: str = ""
    most_bytes: int = 1024 * 1024
    method: str = "GET"
    body: bytes | None = None
    content_type: str = "application/octet-stream"
    # Whether it may be sent twice: a repeated partial upload is broken.
    is_repeatable: bool = True


class Transport:
    """Sends requests. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._dialer = Dialer(settings)
        self._pool = ConnectionPool(settings, self._dialer.dial)
        # Until when to pause, by server (Retry-After).
        self._resting: dict[RegistryServer, float] = {}

    def close(self) -> None:
        self._pool.close()

    async def send(self, request: RegistryRequest) -> ClientResponse:
        """The response after all redirects, of any status; raises OSError without one."""
        asked = request.server
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._send_patiently(request)
            location = response.headers.get("location")
            is_redirect = response.status_code in _REDIRECTS and bool(location)
            if not is_redirect or request.method != "GET":
                return response if _is_same(asked, request.server) else _drop_challenge(response)
            request = _follow(request, location or "")
        raise LookupFailedError(f"{request.name}: more than {_MOST_REDIRECTS} redirects")

    async def _send_patiently(self, request: RegistryRequest) -> ClientResponse:
        """The response to one request, with retries."""
        attempts = self._settings.attempts if request.is_repeatable else 1
        for attempt in range(1, attempts + 1):
            is_last = attempt == attempts
            pause = _FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311  (no secret)
            await self._rest(request)
            try:
                response = await self._exchange(request)
            except (AnswerTooLargeError, ConnectionRefusedError):
                raise
            except ConnectionError:
                # An idle connection may have been closed just before it was used.
                if is_last:
                    raise
                pause = 0.0 if attempt == 1 else pause
            else:
                if is_last or response.status_code not in _REPEATED:
                    return response
                wanted = _read_pause(response)
                if wanted is not None:
                    self._note_pause(request.server, wanted)
                    if wanted > self._settings.longest_pause:
                        return response
                    continue
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _rest(self, request: RegistryRequest) -> None:
        until = self._resting.get(request.server)
        if until is None:
            return
        wait = until - time.monotonic()
        if wait <= 0:
            self._resting.pop(request.server, None)
            return
        if wait > self._settings.longest_pause:
            raise LookupFailedError(
                f"{request.name}: {request.server.authority} allows no request for {wait:.0f} s"
            )
        await asyncio.sleep(wait)

    def _note_pause(self, server: RegistryServer, seconds: float) -> None:
        now = time.monotonic()
        if len(self._resting) >= _MOST_RESTING:
            self._resting = {each: until for each, until in self._resting.items() if until > now}
        if len(self._resting) < _MOST_RESTING:
            self._resting[server] = now + seconds

    async def _exchange(self, request: RegistryRequest) -> ClientResponse:
        server, target = request.server, request.target
        headers = [
            ("host", server.authority),
            ("user-agent", "lictor"),
            ("accept", request.accept),
        ]
        if request.authorization:
            headers.append(("authorization", request.authorization))
        if not server.is_secure:
            proxy = self._dialer.find_proxy(server)
            if proxy is not None:
                target = f"http://{server.authority}{target}"
                if proxy.authorization:
                    headers.append(("proxy-authorization", proxy.authorization))
        body = request.body or b""
        if request.body is not None:
            headers.append(("content-type", request.content_type))
        if request.method != "GET":
            headers.append(("content-length", str(len(body))))
        message = write_head(request.method, target, headers) + body
        return await self._pool.exchange(server, message, request.most_bytes)


def _follow(request: RegistryRequest, location: str) -> RegistryRequest:
    """The request of a redirect; credentials stay with the server they are meant for."""
    before = request.server
    scheme = "https" if before.is_secure else "http"
    base = f"{scheme}://{before.authority}{request.target}"
    server, target = split_url(location, request.name, before, base)
    if before.is_secure and not server.is_secure:
        raise LookupFailedError(f"{request.name}: a redirect from HTTPS to HTTP is not followed")
    kept = request.authorization if _is_same(server, before) else ""
    return msgspec.structs.replace(request, server=server, target=target, authorization=kept)


def _is_same(one: RegistryServer, other: RegistryServer) -> bool:
    """Whether the origin is the same: credentials may be sent."""
    return (one.host, one.port, one.is_secure) == (other.host, other.port, other.is_secure)


def _drop_challenge(response: ClientResponse) -> ClientResponse:
    """Remove the challenge of a server that a redirect led to (CVE-2020-15157).

    Answering it would send the registry's credentials there.
    """
    kept = {name: text for name, text in response.headers.items() if name != "www-authenticate"}
    return msgspec.structs.replace(response, headers=kept)


def split_url(
    url: str, name: str, like: RegistryServer, base: str = ""
) -> tuple[RegistryServer, str]:
    """The server and the path of a URL; `like` is the server that sent it."""
    try:
        parts = urlsplit(urljoin(base, url))
        port = parts.port
    except ValueError as error:
        raise LookupFailedError(
            f"{name}: the registry returned the invalid URL {url[:200]!r}"
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LookupFailedError(f"{name}: the registry returned the invalid URL {url[:200]!r}")
    is_secure = parts.scheme == "https"
    is_same = parts.hostname == like.host
    server = RegistryServer(
        parts.hostname,
        port or (443 if is_secure else 80),
        is_secure,
        # Only the registry that was listed as insecure is: not the target of its redirects.
        is_verified=like.is_verified or not is_same,
        chooser=like.chooser,
    )
    path = parts.path or "/"
    return server, f"{path}?{parts.query}" if parts.query else path


def _read_pause(response: ClientResponse) -> float | None:
    """The Retry-After of the server in seconds; None if there is none."""
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdecimal():
        return float(text[:9])
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        return None
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
