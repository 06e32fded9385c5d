"""Sends batches to targets: through proxies, with TLS, and never on to another address."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from lictor.addons.web.notifications.messages import (
    NotificationBatch,
    build_cloud_event,
    build_slack,
    build_teams,
    encode_json,
)
from lictor.addons.web.notifications.secrets import SecretReader
from lictor.addons.web.notifications.settings import (
    NotificationTarget,
    WebhookTarget,
    find_url_fault,
    read_seconds,
)
from lictor.core.errors import LookupFailedError, UndeliveredError
from lictor.core.lang.networks import METADATA
from lictor.core.release import VERSION
from lictor.http.addresses import Destination, check_host, open_stream
from lictor.http.client import ClientConnection, ClientResponse, HttpClientError, write_head
from lictor.images.dialing import Proxy, ProxyChoice, open_tunnel

_STEP_SECONDS = 10.0
_WHOLE_SECONDS = 30.0
# The longest part of a response that is read.
_MOST_BYTES = 64 * 1024
_LONGEST_PAUSE = 600.0
# What comes to be right without our sending anything else: rights, addresses, limits.
_LATER = frozenset((401, 403, 404, 407, 408, 409, 410, 421, 423, 425, 429))
_DENIED = frozenset((401, 403))
_KNOWN_STATUSES = frozenset(HTTPStatus)
# Error codes of Slack; other text could repeat what was sent.
_REASONS = frozenset(
    (
        "action_prohibited", "channel_is_archived", "channel_not_found", "invalid_blocks",
        "invalid_payload", "invalid_token", "no_active_hooks", "no_service", "no_service_id",
        "no_team", "no_text", "posting_to_general_channel_denied", "team_disabled",
        "user_not_found",
    )
)  # fmt: skip


class OutgoingRequest(msgspec.Struct, frozen=True):
    """What is sent to a target. It holds secrets."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    # Certificates of authorities besides the usual ones, as PEM.
    authority: str = ""

    def __repr__(self) -> str:
        # Never in a message or a log: addresses of chat webhooks are secrets too.
        return "OutgoingRequest(...)"


class RequestSender:
    """Sends requests, each on a new connection. Belongs to one event loop."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._proxies = ProxyChoice(os.environ if environment is None else environment)
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def send(self, request: OutgoingRequest) -> None:
        """UndeliveredError, without the address, if the target did not accept it."""
        fault = find_url_fault(request.url)
        if fault:
            raise UndeliveredError(f"the address {fault}")
        host = urlsplit(request.url).hostname or ""
        try:
            async with asyncio.timeout(_WHOLE_SECONDS):
                response = await self._exchange(request)
        except TimeoutError:
            raise UndeliveredError(f"{host} did not answer in time") from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
            raise UndeliveredError(f"no safe connection to {host}: {reason}") from None
        except HttpClientError:
            # Its text may show a header that holds a secret.
            raise UndeliveredError(f"{host} did not answer as HTTP servers do") from None
        except LookupFailedError as error:
            raise UndeliveredError(str(error)) from None
        except OSError as error:
            reason = error.strerror or str(error)[:200] or type(error).__name__
            raise UndeliveredError(f"no connection to {host}: {reason}") from None
        check_answer(host, response)

    async def _exchange(self, request: OutgoingRequest) -> ClientResponse:
        parts = urlsplit(request.url)
        host, is_secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        proxy = self._proxies.find(host, port, is_secure=is_secure)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "host": parts.netloc,
            "user-agent": f"lictor/{VERSION}",
            **request.headers,
            "content-length": str(len(request.body)),
            "connection": "close",
        }
        if proxy is not None and not is_secure:
            target = f"http://{parts.netloc}{target}"
            if proxy.authorization:
                headers["proxy-authorization"] = proxy.authorization
        context = self._find_context(request.authority) if is_secure else None
        head = write_head("POST", target, headers.items())
        line = await self._dial((host, port), context, proxy)
        try:
            return await line.exchange(head + request.body, _STEP_SECONDS, _MOST_BYTES)
        finally:
            line.close()

    async def _dial(
        self, server: tuple[str, int], context: ssl.SSLContext | None, proxy: Proxy | None
    ) -> ClientConnection:
        async with asyncio.timeout(_STEP_SECONDS):
            if proxy is None:
                return ClientConnection(*await open_stream(Destination(*server, context)))
            check_host(server[0], METADATA)
            reader, writer = await open_stream(Destination(proxy.host, proxy.port))
            if context is not None:
                await open_tunnel(reader, writer, server, proxy, context)
            return ClientConnection(reader, writer)

    def _find_context(self, authority: str) -> ssl.SSLContext:
        found = self._contexts.get(authority)
        if found is None:
            # SSL_CERT_FILE and SSL_CERT_DIR are read by OpenSSL itself.
            found = ssl.create_default_context()
            found.set_alpn_protocols(["http/1.1"])
            if authority:
                try:
                    found.load_verify_locations(cadata=authority)
                except (ssl.SSLError, ValueError):
                    message = "certificateAuthorityFrom holds no certificates as PEM"
                    raise UndeliveredError(message) from None
            if len(self._contexts) >= 64:
                self._contexts.clear()
            self._contexts[authority] = found
        return found


def check_answer(host: str, response: ClientResponse) -> None:
    """UndeliveredError for a response without success; it names the possible remedy."""
    status = response.status_code
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        # The operator did not configure the target of a redirect, which could be any host.
        raise UndeliveredError(
            f"{host} answered {status}, a redirect, which is not followed: "
            "put the address it leads to into the settings"
        )
    phrase = HTTPStatus(status).phrase if status in _KNOWN_STATUSES else ""
    raise UndeliveredError(
        f"{host} answered {status} {phrase}{_find_reason(response.content)}",
        is_final=400 <= status < 500 and status not in _LATER,
        is_denied=status in _DENIED,
        retry_after=_read_pause(response.headers.get("retry-after", "")),
    )


def _find_reason(body: bytes) -> str:
    word = body[:60].decode("ascii", errors="replace").strip()
    return f" ({word})" if word in _REASONS else ""


def _read_pause(text: str) -> float:
    """Retry-After: seconds or a date, within bounds."""
    try:
        seconds = (
            float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - time()
        )
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE)


# --- targets


class TargetPace(msgspec.Struct, frozen=True):
    """How many results one request holds, how many requests there are, how long one waits."""

    batch_size: int
    per_minute: int
    wait: float


# One chat message stands for many results: it names the worst, and counts the others.
_CHAT_PACE = TargetPace(500, 20, 5.0)
_DEFAULT_PACES = {
    "structured": TargetPace(1, 300, 0.0),
    "batched": TargetPace(100, 60, 2.0),
}


def choose_pace(target: NotificationTarget) -> TargetPace:
    """The configured values, or the defaults of the kind."""
    mode = target.webhook.mode if target.webhook is not None else ""
    default = _DEFAULT_PACES.get(mode, _CHAT_PACE)
    return TargetPace(
        1 if mode == "structured" else target.batch_size or default.batch_size,
        target.max_per_minute or default.per_minute,
        read_seconds(target.batch_wait) if target.batch_wait else default.wait,
    )


class BatchSender(Protocol):
    """Sends a batch to one target; UndeliveredError where it did not arrive."""

    async def __call__(self, batch: NotificationBatch) -> None: ...


class TargetSender:
    """Sends batches to one target. Belongs to one event loop."""

    def __init__(
        self,
        target: NotificationTarget,
        sender: RequestSender,
        secrets: SecretReader,
        page_url: str = "",
    ) -> None:
        self._target = target
        self._sender = sender
        self._secrets = secrets
        self._page_url = page_url

    async def __call__(self, batch: NotificationBatch) -> None:
        """Send; UndeliveredError where the batch did not arrive."""
        target, read = self._target, self._secrets.read
        if target.webhook is not None:
            request = await self._build_webhook(target.webhook, batch)
        elif (chat := target.slack or target.teams) is not None:
            build = build_slack if target.slack is not None else build_teams
            body = encode_json(build(batch, self._page_url))
            request = _post(await read(chat.url_from), body, "application/json")
        if target.certificate_authority_from is not None:
            authority = await read(target.certificate_authority_from)
            request = msgspec.structs.replace(request, authority=authority)
        try:
            await self._sender.send(request)
        except UndeliveredError as error:
            if error.is_denied:
                self._secrets.forget()
            raise

    async def _build_webhook(
        self, target: WebhookTarget, batch: NotificationBatch
    ) -> OutgoingRequest:
        url = await self._secrets.read(target.url_from) if target.url_from else target.url
        headers = {name.lower(): value for name, value in target.headers.items()}
        for name, source in target.headers_from.items():
            headers[name.lower()] = await self._secrets.read(source)
        events = [build_cloud_event(each, self._page_url) for each in batch.results]
        is_single = target.mode == "structured"
        kind = "application/cloudevents" if is_single else "application/cloudevents-batch"
        body = encode_json(events[0] if is_single else events)
        return _post(url, body, f"{kind}+json; charset=utf-8", headers)


def _post(
    url: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
) -> OutgoingRequest:
    return OutgoingRequest(url, {**(headers or {}), "content-type": content_type}, body)
