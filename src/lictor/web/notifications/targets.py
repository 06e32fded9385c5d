"""How each kind of target is sent a batch: address, headers, secrets and, for S3, the signature."""

import asyncio
import hashlib
import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol, assert_never
from urllib.parse import quote, urlsplit

import msgspec

from lictor.errors import LookupFailedError, UndeliveredError
from lictor.registry.cloud_providers import AmazonKeys, CloudProviders, CloudRequest, sign
from lictor.web.notifications.messages import (
    NotificationBatch,
    build_cloud_event,
    build_loki,
    build_slack,
    build_teams,
    encode_json,
    encode_lines,
)
from lictor.web.notifications.secrets import SecretReader
from lictor.web.notifications.sending import OutgoingRequest, RequestSender
from lictor.web.notifications.settings import (
    Destination,
    LokiTarget,
    NotificationTarget,
    S3Target,
    SlackTarget,
    TeamsTarget,
    WebhookTarget,
    read_seconds,
)

_JSON = "application/json"
_LOKI_PATH = "/loki/api/v1/push"
_KEYS_SECONDS = 300.0


class TargetPace(msgspec.Struct, frozen=True):
    """How many results one request holds, how long it waits for them, and how many there are."""

    batch_size: int
    per_minute: int
    wait: float


def choose_pace(target: NotificationTarget) -> TargetPace:
    """What the settings say, and otherwise what suits the kind."""
    usual = _usual_pace(target.destinations[0])
    size = target.batch_size or usual.batch_size
    if target.webhook is not None and target.webhook.mode == "structured":
        size = 1
    return TargetPace(
        size,
        target.max_per_minute or usual.per_minute,
        read_seconds(target.batch_wait) if target.batch_wait else usual.wait,
    )


def _usual_pace(destination: Destination) -> TargetPace:
    match destination:
        case WebhookTarget(mode="structured"):
            return TargetPace(1, 300, 0.0)
        case WebhookTarget():
            return TargetPace(100, 60, 2.0)
        case SlackTarget() | TeamsTarget():
            # One message stands for many results: it names the worst, and counts the others.
            return TargetPace(500, 20, 5.0)
        case LokiTarget():
            return TargetPace(500, 60, 2.0)
        case S3Target():
            return TargetPace(1000, 30, 30.0)
        case _:
            assert_never(destination)


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
        amazon: "AmazonKeySource | None" = None,
    ) -> None:
        self._target = target
        self._sender = sender
        self._secrets = secrets
        self._page_url = page_url
        self._amazon = amazon or AmazonKeySource(os.environ)

    async def __call__(self, batch: NotificationBatch) -> None:
        """Send; UndeliveredError where the batch did not arrive."""
        request = await self._build(batch)
        authority = self._target.certificate_authority_from
        if authority is not None:
            text = await self._secrets.read(authority)
            request = msgspec.structs.replace(request, authority=text)
        try:
            await self._sender.send(request)
        except UndeliveredError as error:
            if error.is_denied:
                self._secrets.forget()
                self._amazon.forget()
            raise

    async def _build(self, batch: NotificationBatch) -> OutgoingRequest:
        destination = self._target.destinations[0]
        match destination:
            case WebhookTarget():
                return await self._build_webhook(destination, batch)
            case SlackTarget():
                url = await self._secrets.read(destination.url_from)
                return _post_json(url, build_slack(batch, self._page_url))
            case TeamsTarget():
                url = await self._secrets.read(destination.url_from)
                return _post_json(url, build_teams(batch, self._page_url))
            case LokiTarget():
                return await self._build_loki(destination, batch)
            case S3Target():
                return await self._build_object(destination, batch)
            case _:
                assert_never(destination)

    async def _build_webhook(
        self, target: WebhookTarget, batch: NotificationBatch
    ) -> OutgoingRequest:
        url = await self._secrets.read(target.url_from) if target.url_from else target.url
        headers = {name.lower(): value for name, value in target.headers.items()}
        for name, source in target.headers_from.items():
            headers[name.lower()] = await self._secrets.read(source)
        events = [build_cloud_event(each, self._page_url) for each in batch.results]
        if target.mode == "structured":
            body, kind = encode_json(events[0]), "application/cloudevents+json; charset=utf-8"
        else:
            body, kind = encode_json(events), "application/cloudevents-batch+json; charset=utf-8"
        return OutgoingRequest("POST", url, {**headers, "content-type": kind}, body)

    async def _build_loki(self, target: LokiTarget, batch: NotificationBatch) -> OutgoingRequest:
        headers = {}
        if target.tenant:
            headers["x-scope-orgid"] = target.tenant
        if target.password_from is not None:
            pair = f"{target.username}:{await self._secrets.read(target.password_from)}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        if target.token_from is not None:
            headers["authorization"] = f"Bearer {await self._secrets.read(target.token_from)}"
        url = target.url.rstrip("/")
        url = url if url.endswith(_LOKI_PATH) else f"{url}{_LOKI_PATH}"
        return _post_json(url, build_loki(batch, target.labels, self._page_url), headers)

    async def _build_object(self, target: S3Target, batch: NotificationBatch) -> OutgoingRequest:
        keys = await self._find_keys(target)
        return build_object_request(
            target, encode_lines(batch, self._page_url), batch.made_at, keys, datetime.now(UTC)
        )

    async def _find_keys(self, target: S3Target) -> AmazonKeys:
        if target.access_key_id_from is None or target.secret_access_key_from is None:
            return await self._amazon.find(target.region)
        session = target.session_token_from
        return AmazonKeys(
            await self._secrets.read(target.access_key_id_from),
            await self._secrets.read(target.secret_access_key_from),
            await self._secrets.read(session) if session is not None else "",
        )


def _post_json(url: str, body: object, headers: Mapping[str, str] | None = None) -> OutgoingRequest:
    return OutgoingRequest(
        "POST", url, {**(headers or {}), "content-type": _JSON}, encode_json(body)
    )


# --- S3


class AmazonKeySource:
    """The keys of the Pod's own identity at Amazon, for targets that name no Secret."""

    def __init__(
        self,
        environment: Mapping[str, str],
        ask: Callable[[str], AmazonKeys] | None = None,
    ) -> None:
        self._ask = ask or CloudProviders(environment).find_keys
        self._kept: dict[str, tuple[float, AmazonKeys]] = {}

    def forget(self) -> None:
        self._kept.clear()

    async def find(self, region: str) -> AmazonKeys:
        """Keys for a region; UndeliveredError where the environment gives none."""
        until, kept = self._kept.get(region, (0.0, None))
        if kept is not None and time.monotonic() < until:
            return kept
        try:
            found = await asyncio.to_thread(self._ask, region)
        except KeyError as error:
            raise UndeliveredError(
                f"no keys for S3: name accessKeyIdFrom and secretAccessKeyFrom, or give the Pod an "
                f"identity ({error.args[0]} is not set)"
            ) from None
        except (LookupFailedError, OSError) as error:
            raise UndeliveredError(f"no keys for S3: {str(error)[:200]}") from None
        self._kept[region] = time.monotonic() + _KEYS_SECONDS, found
        return found


def build_object_request(
    target: S3Target, body: bytes, made_at: datetime, keys: AmazonKeys, now: datetime
) -> OutgoingRequest:
    """Put one object; the same content of the same time has the same name, and is stored once."""
    digest = hashlib.sha256(body).hexdigest()
    name = f"{made_at:%Y/%m/%d}/{made_at:%Y%m%dT%H%M%SZ}-{digest[:16]}.jsonl"
    headers = {"content-type": "application/x-ndjson", "x-amz-content-sha256": digest}
    if target.server_side_encryption:
        headers["x-amz-server-side-encryption"] = target.server_side_encryption
    if target.kms_key_id:
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = target.kms_key_id
    url = locate_object(target, f"{target.prefix}{name}")
    request = sign(CloudRequest("PUT", url, headers, body), keys, target.region, "s3", now)
    return OutgoingRequest("PUT", request.url, request.headers, body)


def locate_object(target: S3Target, name: str) -> str:
    """The address of an object, each sign of its name written as signatures want it."""
    domain = "amazonaws.com.cn" if target.region.startswith("cn-") else "amazonaws.com"
    endpoint = urlsplit(target.endpoint or f"https://s3.{target.region}.{domain}")
    path = quote(name.lstrip("/"), safe="/~")
    # No certificate covers a bucket with dots in front of a host.
    usual = bool(target.endpoint) or "." in target.bucket
    if usual if target.path_style is None else target.path_style:
        return f"{endpoint.scheme}://{endpoint.netloc}/{target.bucket}/{path}"
    return f"{endpoint.scheme}://{target.bucket}.{endpoint.netloc}/{path}"
