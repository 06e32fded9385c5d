"""How each kind of target is sent a batch: address, headers and secrets."""

from typing import Protocol, assert_never

import msgspec

from lictor.addons.web.notifications.messages import (
    NotificationBatch,
    build_cloud_event,
    build_slack,
    build_teams,
    encode_json,
)
from lictor.addons.web.notifications.secrets import SecretReader
from lictor.addons.web.notifications.sending import OutgoingRequest, RequestSender
from lictor.addons.web.notifications.settings import (
    Destination,
    NotificationTarget,
    SlackTarget,
    TeamsTarget,
    WebhookTarget,
    read_seconds,
)
from lictor.core.errors import UndeliveredError

_JSON = "application/json"


class TargetPace(msgspec.Struct, frozen=True):
    """How many results one request holds, how long it waits for them, and how many there are."""

    batch_size: int
    per_minute: int
    wait: float


def choose_pace(target: NotificationTarget) -> TargetPace:
    """The configured value, or the default of the kind."""
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
    ) -> None:
        self._target = target
        self._sender = sender
        self._secrets = secrets
        self._page_url = page_url

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


def _post_json(url: str, body: object) -> OutgoingRequest:
    return OutgoingRequest("POST", url, {"content-type": _JSON}, encode_json(body))
