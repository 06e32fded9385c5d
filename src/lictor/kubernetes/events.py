"""Sends Events to the cluster: bounded, rate-limited, and duplicates counted."""

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.core.report.events import Event, EventReason
from lictor.kubernetes.client import Client, TokenBucket
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.metrics import EVENTS_DROPPED, open_counter
from lictor.kubernetes.resource import EVENT
from lictor.kubernetes.settings import Settings

log = logging.getLogger(__name__)

_WORKERS = 3
_ATTEMPTS = 3
_PAUSE = 0.2
_LONGEST_NOTE = 1024
# Equal events within this many seconds become one event with a count.
_SERIES = 60.0
_MOST_SERIES = 4096
_ODD = re.compile(r"[^a-z0-9.-]")
_LONGEST_NAME = 220


class _Series:
    """A sent event, and its count since."""

    __slots__ = ("event", "last", "name", "sent", "since", "times")

    def __init__(self, event: Event, name: str, moment: float) -> None:
        self.event = event
        self.name = name
        self.since = moment
        self.last = datetime.now(UTC)
        self.times = 1
        self.sent = 1


class EventSink:
    """Queues events and sends them in the background. Belongs to one event loop."""

    def __init__(
        self,
        client: Client,
        flags: Flags,
        settings: Callable[[], Settings] = Settings,
        *,
        instance: str = "",
        count_every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._count_every = count_every
        self._settings = settings
        self._omitted = frozenset(filter(None, map(str.strip, flags.omit_events.split(","))))
        self._limit = flags.max_queued_events
        self._bucket = TokenBucket(
            flags.events_rate_limit_qps, flags.events_rate_limit_burst, clock
        )
        self._instance = instance or socket.gethostname()
        self._clock = clock
        self._waiting: asyncio.Queue[_Series] = asyncio.Queue(max(self._limit, 1))
        self._series: OrderedDict[Event, _Series] = OrderedDict()
        self.dropped = 0

    def emit(self, *events: Event) -> None:
        """Queue events without blocking. Events that do not fit are counted and dropped."""
        for event in events:
            if self._is_wanted(event) and not self._repeat(event):
                self._queue(event)

    def _is_wanted(self, event: Event) -> bool:
        # An object without a name is not stored yet: its events could not be found.
        if not event.about.name or event.reason in self._omitted:
            return False
        if event.reason is not EventReason.APPLIED:
            return True
        settings = self._settings()
        actions = settings.success_event_actions
        return settings.generate_success_events and (not actions or event.action in actions)

    def _repeat(self, event: Event) -> bool:
        known = self._series.get(event)
        if known is None or self._clock() - known.since > _SERIES:
            return False
        known.times += 1
        known.last = datetime.now(UTC)
        return True

    def _queue(self, event: Event) -> None:
        if self._waiting.full() or not self._limit:
            self._drop()
            return
        made = _Series(event, _name_event(event), self._clock())
        self._series.pop(event, None)
        self._series[event] = made
        while len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)
        self._waiting.put_nowait(made)

    def _drop(self) -> None:
        self.dropped += 1
        open_counter(EVENTS_DROPPED).inc()
        if self.dropped == 1:
            log.warning("event queue full, dropping events", extra={"limit": self._limit})

    async def run(self) -> None:
        """Send until cancelled."""
        open_counter(EVENTS_DROPPED)
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())
            group.create_task(self._keep_counts())

    async def drain(self, seconds: float) -> None:
        """Wait until all are sent, up to a time limit; `run` must be running."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiting.join()

    async def _work(self) -> None:
        while True:
            series = await self._waiting.get()
            try:
                await self._bucket.take()
                await self._create(series)
            finally:
                self._waiting.task_done()

    async def _create(self, series: _Series) -> None:
        body = build_event(series.event, series.name, self._instance)
        namespace = body["metadata"]["namespace"]
        for attempt in range(_ATTEMPTS):
            try:
                await self._client.create(EVENT, body, namespace)
            except NotFoundError:
                return  # The namespace is gone, and so is the involved object.
            except ApiError as error:
                if error.status == 409 or "NamespaceTerminating" in error.causes:
                    return
                if attempt + 1 == _ATTEMPTS:
                    log.warning("event lost", extra={"why": str(error)[:200]})
                    self._drop()
                    return
                await asyncio.sleep(_PAUSE * 2**attempt)
            else:
                return

    async def _keep_counts(self) -> None:
        while True:
            await asyncio.sleep(self._count_every)
            for event, series in list(self._series.items()):
                if series.times > series.sent:
                    await self._bucket.take()
                    await self._count(event, series)
                if self._clock() - series.since > _SERIES and self._series.get(event) is series:
                    del self._series[event]

    async def _count(self, event: Event, series: _Series) -> None:
        series.sent = series.times
        body = {"series": {"count": series.times, "lastObservedTime": _write_time(series.last)}}
        namespace = event.about.namespace or "default"
        try:
            await self._client.patch(EVENT, series.name, body, namespace=namespace)
        except NotFoundError:
            # Its namespace was created again, or it was deleted: create the event again.
            self._series.pop(event, None)
            self._queue(event)
        except ApiError as error:
            log.debug("event not counted", extra={"why": str(error)[:200]})


def build_event(event: Event, name: str, instance: str) -> JsonObject:
    """The Event for the API server."""
    note = event.message
    if len(note.encode()) > _LONGEST_NOTE:
        note = note.encode()[: _LONGEST_NOTE - 3].decode(errors="ignore") + "..."
    body: JsonObject = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": name, "namespace": event.about.namespace or "default"},
        "eventTime": _write_time(datetime.now(UTC)),
        "reportingController": str(event.source),
        "reportingInstance": f"{event.source}-{instance}"[:128],
        "action": str(event.action),
        "reason": str(event.reason),
        "regarding": event.about.build(),
        "note": note,
        "type": "Warning" if event.is_warning else "Normal",
    }
    if event.related is not None:
        body["related"] = event.related.build()
    return body


def _name_event(event: Event) -> str:
    name = _ODD.sub("-", event.about.name.lower())[:_LONGEST_NAME].strip("-.")
    return f"{name or 'event'}.{time.time_ns():x}"


def _write_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


__all__ = ["EventSink", "build_event"]
