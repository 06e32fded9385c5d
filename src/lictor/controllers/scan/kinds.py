"""The scanned kinds, their state, and the events of new results."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from lictor.controllers.context import EmitEvent
from lictor.controllers.report_writer import FORMER_SCAN_HASH, MIXED, SCAN_HASH
from lictor.controllers.scan.kind import KindScan, ScanContext, check_mark, read_mark
from lictor.controllers.scan.plan import KindPlan, ScanPlan
from lictor.controllers.scan.progress import ScannedObjects, ScanProgress
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.model.request import BOOKKEEPING_KINDS, Request
from lictor.core.model.result import PolicyRef, Result, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.events import EventOptions, EventSource, build_events
from lictor.core.report.resource_report import MANAGED_BY, read_entries
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.settings import Settings
from lictor.kubernetes.work_queue import cancel_all
from lictor.policies.store import PolicyStore

# A first scan may find thousands of failures, all in the reports: that many events are useless, and
# would displace those of other controllers.
_PERIOD = 10.0
_OBJECTS = 20


class ScanEvents:
    """Emits events for new failures of existing objects."""

    def __init__(
        self,
        emit: EmitEvent,
        store: PolicyStore,
        settings: Callable[[], Settings],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._store = store
        self._settings = settings
        self._clock = clock
        self._until = 0.0
        self._left = 0
        self._uids: dict[tuple[str, str], str] = {}

    def take(self, request: Request, results: Iterable[Result]) -> None:
        """Emit events for one object; of too many at once only for the first."""
        if not self._has_room():
            return
        options = EventOptions(
            source=EventSource.SCAN,
            with_success=self._settings().generate_success_events,
            find_uid=self._find_uid,
        )
        for event in build_events(Verdict(request, tuple(results)), options):
            self._emit(event)

    def _has_room(self) -> bool:
        now = self._clock()
        if now >= self._until:
            self._until, self._left = now + _PERIOD, _OBJECTS
            self._uids = {(p.resource.kind, p.key): p.uid for p in self._store.policies}
        self._left -= 1
        return self._left >= 0

    def _find_uid(self, policy: PolicyRef) -> str:
        return self._uids.get((policy.kind, policy.key), "")


log = logging.getLogger(__name__)

_PAGE = 500
# For reports with their content, which may be a megabyte each.
_PAGE_OF_WHOLE = 50
_PAUSE = 2.0
_LONGEST_PAUSE = 30.0
# Kinds that change continuously, or that controllers write: they are never scanned.
_UNSCANNED = BOOKKEEPING_KINDS | {("discovery.k8s.io", "EndpointSlice")}


class Scanner:
    """Scans every kind that background policies match."""

    def __init__(
        self,
        context: ScanContext,
        list_kinds: Callable[[], Awaitable[Iterable[Resource]]],
        *,
        interval: float = 3600.0,
    ) -> None:
        self._context = context
        self._list_kinds = list_kinds
        self._interval = interval
        self._scans: dict[Resource, KindScan] = {}
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._restless = asyncio.Event()

    @property
    def progress(self) -> ScanProgress:
        return self._context.progress

    async def run(self) -> None:
        """Scan everything at the interval, and when replicas come or go."""
        while True:
            forced = await self._wait()
            await self.load(checked=forced)
            self.scan_again(forced=forced)

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(self._interval):
                await self._restless.wait()
        except TimeoutError:
            return True
        self._restless.clear()
        return False

    async def load(self, *, checked: bool = False) -> None:
        """Read the results of earlier scans, so that only changes are evaluated again.

        Deleted reports are missing here, and are written again; with `checked`, also those in which
        the scan's entries were changed.
        """
        pause = _PAUSE
        while True:
            try:
                fresh, mixed = await self._read_reports(checked=checked)
            except ApiError as error:
                log.warning("reports not read", extra={"why": str(error)[:200]})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            self._context.scanned.adopt(fresh)
            self._context.writer.mark_mixed(mixed)
            return

    async def _read_reports(self, *, checked: bool) -> tuple[ScannedObjects, set[str]]:
        scanned, mixed = ScannedObjects(), set[str]()
        page_size = _PAGE_OF_WHOLE if checked else _PAGE
        managed = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())
        for namespace in ("any", ""):
            resource = self._context.writer.kind_for(namespace)
            with suppress(NotFoundError):
                async for page in self._context.client.list_pages(
                    resource, labels=managed, page=page_size, metadata_only=not checked
                ):
                    for item in page.get("items") or ():
                        mark = self._check(item) if checked else _read_mark(item)
                        _remember(item["metadata"], mark, scanned, mixed)
        return scanned, mixed

    def _check(self, report: JsonObject) -> int:
        """The mark of a report, if it has the scanner's entries."""
        entries = read_entries(report)
        if len(entries) != len(report.get("results") or ()):
            return 0
        return check_mark(_read_mark(report), filter(self._context.writer.is_scanned, entries))

    async def follow(self, plan: ScanPlan) -> frozenset[Resource]:
        """Scan with these policies from now on; returns the kinds that are no longer scanned."""
        kinds = await self._list_kinds()
        wanted = plan.for_kinds(
            tuple(each for each in kinds if (each.group, each.kind) not in _UNSCANNED)
        )
        gone = frozenset(self._scans) - frozenset(wanted)
        for resource in gone:
            self._scans.pop(resource)
            self._tasks.pop(resource).cancel()
        for resource, made in wanted.items():
            self._follow_kind(resource, made)
        self.progress.kinds = len(wanted)
        return gone

    def _follow_kind(self, resource: Resource, plan: KindPlan) -> None:
        scan = self._scans.get(resource)
        if scan is not None:
            scan.change(plan)
            return
        scan = self._scans[resource] = KindScan(resource, plan, self._context)
        self._tasks[resource] = asyncio.create_task(scan.run())

    @property
    def followed(self) -> frozenset[Resource]:
        """The kinds that are scanned now."""
        return frozenset(self._scans)

    def share_again(self, *_: object) -> None:
        """Replicas came or went: read the reports, then scan the objects of this replica."""
        self._restless.set()

    def scan_again(self, *, forced: bool = False) -> None:
        """Scan again: labels of a namespace changed, or with `forced`, settings."""
        for scan in self._scans.values():
            scan.wake(forced=forced)

    async def stop(self) -> None:
        await cancel_all(*self._tasks.values())


def _read_mark(report: JsonObject) -> int:
    notes = report["metadata"].get("annotations") or {}
    return read_mark(str(notes.get(SCAN_HASH) or notes.get(FORMER_SCAN_HASH, "")))


def _remember(metadata: JsonObject, mark: int, scanned: ScannedObjects, mixed: set[str]) -> None:
    uid = str(metadata["name"])
    if (metadata.get("annotations") or {}).get(MIXED):
        mixed.add(uid)
    scanned.put(uid, mark, reported=True)
