"""Sends admission results to the report controller: merged, bounded, never dropped."""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import ReportForm, ReportSubject, build_ephemeral
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import Resource

log = logging.getLogger(__name__)

_PERIOD = 0.5
_PAUSE = 2.0
_AT_ONCE = 8


def read_form(flags: Flags) -> ReportForm:
    """Which results the installation reports."""
    return ReportForm(
        openreports=flags.openreports_enabled,
        statuses=_split(flags.allowed_results),
        rules=_split(flags.enable_reporting),
    )


def _split(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


class _Pending(msgspec.Struct):
    """The pending results of one object; a later result replaces an earlier one."""

    subject: ReportSubject
    plural: str
    entries: dict[tuple[str, str, str], JsonObject]


class EphemeralReports:
    """A bounded queue. If it or the API server is full, callers wait."""

    def __init__(self, client: Client, *, limit: int) -> None:
        self._client = client
        self._limit = limit
        self._pending: dict[str, _Pending] = {}
        self._space = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._pending)

    async def add(self, subject: ReportSubject, plural: str, entries: Iterable[JsonObject]) -> None:
        """Queue results; waits if there is no space for another object.

        An object that is being created has no UID yet; its name is used.
        """
        key = _key(subject)
        async with self._space:
            await self._space.wait_for(
                lambda: key in self._pending or len(self._pending) < self._limit
            )
            pending = self._pending.setdefault(key, _Pending(subject, plural, {}))
        for entry in entries:
            about = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
            pending.entries[about] = entry

    async def run(self) -> None:
        """Send queued results until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(_PERIOD)
                await self._send_all()
        finally:
            await asyncio.shield(self.drain())

    async def drain(self) -> None:
        """Send what is left, as far as the API server accepts it."""
        if self._pending:
            await self._send_all()

    async def _send_all(self) -> None:
        while self._pending:
            try:
                room = self._limit - await self._count()
                if room <= 0:
                    log.warning("reports wait", extra={"waiting": len(self._pending)})
                    await asyncio.sleep(_PAUSE)
                    return
                chosen = list(self._pending.values())[: min(room, _AT_ONCE)]
                await asyncio.gather(*(self._send(each) for each in chosen))
            except ApiError as error:
                log.warning("reports not sent", extra={"why": str(error)[:200]})
                await asyncio.sleep(_PAUSE)
                return
            async with self._space:
                self._space.notify_all()

    async def _send(self, pending: _Pending) -> None:
        subject = pending.subject
        self._pending.pop(_key(subject), None)
        body = build_ephemeral(subject, pending.entries.values(), plural=pending.plural)
        resource = kinds.EPHEMERAL_REPORT if subject.namespace else kinds.CLUSTER_EPHEMERAL_REPORT
        try:
            await self._client.create(resource, body)
        except NotFoundError:
            return  # the namespace is gone, and the object with it
        except ApiError as error:
            if error.status not in (403, 422):
                self._pending.setdefault(_key(subject), pending)
                raise
            # A namespace that is being deleted accepts nothing new.
            log.info("report refused", extra={"uid": subject.uid, "why": str(error)[:200]})

    async def _count(self) -> int:
        both = kinds.EPHEMERAL_REPORT, kinds.CLUSTER_EPHEMERAL_REPORT
        return sum([await self._count_one(resource) for resource in both])

    async def _count_one(self, resource: Resource) -> int:
        answer = await self._client.request("GET", resource.path(), params={"limit": 1})
        rest = answer["metadata"].get("remainingItemCount") or 0
        return len(answer.get("items") or ()) + int(rest)


def _key(subject: ReportSubject) -> str:
    return subject.uid or f"{subject.kind}/{subject.namespace}/{subject.name}"
