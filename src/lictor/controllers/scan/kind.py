"""Scans one kind: all objects in pages, then changes from a watch, and all again when due."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
import orjson

from lictor.controllers.report_writer import ReportWriter
from lictor.controllers.scan.plan import KindPlan, PlanChange, find_change
from lictor.controllers.scan.progress import ScannedObjects, ScanProgress, hash_text
from lictor.core.errors import ApiError, GoneError
from lictor.core.model.request import Request
from lictor.core.model.result import Result, Status
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import (
    EntryCache,
    ReportEntry,
    ReportForm,
    ReportSubject,
    hash_entries,
    hash_written,
    sort_report_entries,
    stamp_entries,
)
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.work_queue import cancel_all

log = logging.getLogger(__name__)

# Objects may have a megabyte: this many are in memory at once.
_PAGE = 100
_WRITERS = 12
_PAUSE = 2.0
_LONGEST_PAUSE = 60.0
_BITS = 30
_MASK = (1 << _BITS) - 1
# Responses after which a retry is useless: the object's namespace is being deleted, or does not
# exist; or a policy denies it.
_REFUSALS = frozenset((400, 403, 404, 413, 422))
_TOLD = frozenset((Status.FAIL, Status.ERROR))

NamespaceLabels: TypeAlias = Callable[[str], Mapping[str, str]]
EmitFailures: TypeAlias = Callable[[Request, list[Result]], None]


class ScanContext(msgspec.Struct, frozen=True):
    """What a scan works with."""

    client: Client
    writer: ReportWriter
    scanned: ScannedObjects
    owns: Callable[[str], bool]
    namespace_labels: NamespaceLabels
    is_filtered: Callable[[Request], bool]
    form: ReportForm = ReportForm()
    # Called with every object that has new failures, for events.
    emit: EmitFailures = lambda request, results: None  # noqa: ARG005
    progress: ScanProgress = msgspec.field(default_factory=ScanProgress)
    # The number of pages in memory, for all kinds together.
    readers: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(3))


class _Evaluated(msgspec.Struct, frozen=True):
    """One object and its new results."""

    request: Request
    subject: ReportSubject
    lines: list[ReportEntry]
    state: int
    print: int
    # The failures that events are written about.
    failures: list[Result]
    # Whether these are only the results of changed policies, and the others stay.
    change: PlanChange | None = None


class KindScan:
    """Keeps the reports about one kind up to date until cancelled."""

    def __init__(self, resource: Resource, plan: KindPlan, context: ScanContext) -> None:
        self._resource = resource
        self._plan = plan
        self._context = context
        # The key of the plan before, and what is different since.
        self._before: tuple[int, PlanChange | None] = (0, None)
        self._entries = EntryCache(background=True)
        self._again = asyncio.Event()
        self._forced = False
        # The policies that changed since the last pass; None where every result is new.
        self._news: frozenset[str] | None = None
        self._complaint = ""

    def change(self, plan: KindPlan) -> None:
        """Evaluate with other policies from now on."""
        if plan.key == self._plan.key:
            return
        before = self._plan.marks
        news = frozenset(key for key, mark in plan.marks.items() if before.get(key) != mark)
        self._news = news if self._news is None else self._news | news
        self._before = (self._plan.key, find_change(self._plan, plan))
        self._plan = plan
        self._again.set()

    def wake(self, *, forced: bool = False) -> None:
        """Read everything again; with `forced`, also evaluate what has not changed."""
        self._forced = self._forced or forced
        self._again.set()

    async def run(self) -> None:
        """Read, watch, and restart after failures."""
        pause = _PAUSE
        while True:
            self._again.clear()
            try:
                await self._follow(await self._read_all())
                pause = _PAUSE
            except GoneError:
                continue
            except Exception as error:  # noqa: BLE001  (a fault in one kind may not end its scan)
                self._log_failure(error)
                await _rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _log_failure(self, error: Exception) -> None:
        """Log once why this kind cannot be read: a missing role may be permanent."""
        why = str(error)[:200]
        if why == self._complaint:
            return
        self._complaint = why
        expected = isinstance(error, ApiError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "scan interrupted",
            extra={"resource": self._resource.plural, "why": why},
            exc_info=None if expected else error,
        )

    # --- reading

    async def _read_all(self) -> str:
        forced, news, version = self._forced, self._news, ""
        progress, complete = self._context.progress, False
        progress.begin(self._resource)
        try:
            async for page in self._pages():
                await self._take(page.get("items") or (), forced=forced)
                version = page["metadata"].get("resourceVersion") or version
            complete = True
        finally:
            progress.end(self._resource, complete=complete)
        # What was requested meanwhile is still to be done.
        if not self._again.is_set():
            self._forced = False if forced else self._forced
            self._news = None if news is self._news else self._news
        return version

    async def _pages(self) -> AsyncIterator[JsonObject]:
        pages = aiter(self._context.client.list_pages(self._resource, page=_PAGE))
        while True:
            async with self._context.readers:
                page = await anext(pages, None)
                if page is None:
                    return
                waiting = int(page["metadata"].get("remainingItemCount") or 0)
                count = len(page.get("items") or ())
                self._context.progress.advance(self._resource, count, waiting)
                yield page

    async def _follow(self, since: str) -> None:
        """Until the policies change, or everything is due again."""
        watching = asyncio.create_task(self._watch(since))
        waiting = asyncio.create_task(self._again.wait())
        try:
            done, _ = await asyncio.wait((watching, waiting), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel_all(watching, waiting)

    async def _watch(self, since: str) -> None:
        pause = _PAUSE / 4
        while True:
            started = time.monotonic()
            try:
                async for event in self._context.client.watch(self._resource, since=since):
                    since = event.object["metadata"].get("resourceVersion") or since
                    pause = _PAUSE / 4
                    if event.type == "DELETED":
                        self._forget(_uid_of(event.object))
                    elif event.type != "BOOKMARK":
                        await self._take((event.object,), forced=False)
            except GoneError:
                raise
            except ApiError as error:
                if error.status:
                    raise
            if time.monotonic() - started < 1.0:
                # A server that shuts down ends each watch at once, with an error or without.
                await _rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _forget(self, uid: str) -> None:
        """Forget a deleted object: the garbage collector deletes its report."""
        self._context.scanned.remove(uid)
        self._context.writer.forget(uid)

    # --- evaluation

    async def _take(self, items: Iterable[JsonObject], *, forced: bool) -> None:
        mine = [item for item in items if self._context.owns(_uid_of(item))]
        self._context.progress.seen += len(mine)
        if not mine:
            return
        # In a thread: policies that look something up wait for the event loop.
        evaluated = await asyncio.to_thread(self._evaluate_all, mine, forced)
        waiting = iter(evaluated)
        workers = (self._write_each(waiting) for _ in range(min(_WRITERS, len(evaluated))))
        for failure in await asyncio.gather(*workers, return_exceptions=True):
            if failure is not None:
                raise failure

    def _evaluate_all(self, items: list[JsonObject], forced: bool) -> list[_Evaluated]:  # noqa: FBT001
        made: list[_Evaluated] = []
        for item in items:
            try:
                evaluated = self._evaluate(item, forced=forced)
            except Exception:
                # One object that cannot be evaluated must not stop the others.
                self._context.progress.refused += 1
                log.exception("object not evaluated", extra={"uid": _uid_of(item)})
                continue
            if evaluated is not None:
                made.append(evaluated)
        return made

    def _evaluate(self, item: JsonObject, *, forced: bool) -> _Evaluated | None:
        context, plan = self._context, self._plan
        subject = ReportSubject.of(item)
        labels = context.namespace_labels(subject.namespace) if subject.namespace else {}
        content = _read_content(item, labels)
        state = _take_state(content, plan.key)
        known = context.scanned.get(subject.uid)
        if known is not None and known[0] >> _BITS == state and not forced:
            return None
        request = Request.of(item, namespace_labels=labels)
        context.progress.judged += 1
        key, change = self._before
        if (
            known is not None
            and change is not None
            and not forced
            and known[0] >> _BITS == _take_state(content, key)
        ):
            return self._evaluate_change(change, request, subject, state)
        return self._evaluate_whole(plan, request, subject, state)

    def _evaluate_whole(
        self, plan: KindPlan, request: Request, subject: ReportSubject, state: int
    ) -> _Evaluated | None:
        scanned = self._context.scanned
        results = self._evaluate_plan(plan, request)
        lines = self._list_entries(results)
        print_ = hash_entries(lines) & _MASK
        known = scanned.get(subject.uid)
        if known is not None and known[0] & _MASK == print_ and known[1] == bool(lines):
            scanned.put(subject.uid, state << _BITS | print_, reported=bool(lines))
            return None
        return _Evaluated(request, subject, lines, state, print_, self._choose_news(results))

    def _evaluate_change(
        self, change: PlanChange, request: Request, subject: ReportSubject, state: int
    ) -> _Evaluated | None:
        """The results of changed policies: those of the others are still valid."""
        scanned = self._context.scanned
        value, is_reported = scanned.get(subject.uid) or (0, False)
        results = self._evaluate_plan(change.after, request)
        lines = self._list_entries(results)
        before = self._list_entries(self._evaluate_plan(change.before, request))
        difference = hash_entries(lines) - hash_entries(before)
        print_ = (value + difference) & _MASK
        if difference == 0:
            scanned.put(subject.uid, state << _BITS | print_, reported=is_reported)
            return None
        news = self._choose_news(results)
        return _Evaluated(request, subject, lines, state, print_, news, change)

    def _evaluate_plan(self, plan: KindPlan, request: Request) -> list[Result]:
        return [] if self._context.is_filtered(request) else plan.evaluate(request)

    def _list_entries(self, results: Iterable[Result]) -> list[ReportEntry]:
        form = self._context.form
        return sort_report_entries(self._entries.find(each) for each in results if form.wants(each))

    def _choose_news(self, results: Iterable[Result]) -> list[Result]:
        news = self._news
        return [
            result
            for result in results
            if (result.status in _TOLD or result.exceptions)
            and (news is None or result.policy.key in news)
        ]

    # --- writing

    async def _write_each(self, waiting: Iterator[_Evaluated]) -> None:
        for evaluated in waiting:
            try:
                await self._write(evaluated)
            except ApiError as error:
                if error.status not in _REFUSALS:
                    raise
                self._context.progress.refused += 1
                log.info(
                    "report refused",
                    extra={"uid": evaluated.subject.uid, "why": str(error)[:200]},
                )

    async def _write(self, evaluated: _Evaluated) -> None:
        context, subject = self._context, evaluated.subject
        known = context.scanned.get(subject.uid)
        exists = known is not None and known[1]
        if evaluated.change is not None and exists:
            await self._amend(evaluated, evaluated.change)
            return
        if evaluated.lines:
            entries = stamp_entries(evaluated.lines, int(time.time()))
            await context.writer.write(subject, entries, scan_hash=_mark(evaluated), exists=exists)
        elif exists:
            await context.writer.remove(subject)
        self._note_written(evaluated, is_reported=bool(evaluated.lines), wrote=exists)

    async def _amend(self, evaluated: _Evaluated, change: PlanChange) -> None:
        entries = stamp_entries(evaluated.lines, int(time.time()))
        left = await self._context.writer.amend(
            evaluated.subject, entries, change.replaces, scan_hash=_mark(evaluated)
        )
        if left is not None:
            self._note_written(evaluated, is_reported=bool(left), wrote=True)
            return
        # The report was deleted, or is incomplete.
        self._context.scanned.remove(evaluated.subject.uid)
        whole = await asyncio.to_thread(
            self._evaluate_whole, self._plan, evaluated.request, evaluated.subject, evaluated.state
        )
        if whole is not None:
            await self._write(whole)

    def _note_written(self, evaluated: _Evaluated, *, is_reported: bool, wrote: bool) -> None:
        context = self._context
        context.progress.written += is_reported or wrote
        value = evaluated.state << _BITS | evaluated.print
        context.scanned.put(evaluated.subject.uid, value, reported=is_reported)
        if evaluated.failures:
            context.emit(evaluated.request, evaluated.failures)


def _mark(evaluated: _Evaluated) -> str:
    return f"{evaluated.state:x}-{evaluated.print:x}"


async def _rest(seconds: float) -> None:
    await asyncio.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311


def _uid_of(item: JsonObject) -> str:
    return str(item["metadata"].get("uid") or "")


def _read_content(item: JsonObject, labels: Mapping[str, str]) -> bytes:
    """What results depend on beside the policies: the object without its status."""
    metadata = item.get("metadata") or {}
    kept = [metadata.get(name) for name in ("name", "labels", "annotations", "finalizers")]
    body = {name: part for name, part in item.items() if name not in ("metadata", "status")}
    return orjson.dumps((kept, body, labels), option=orjson.OPT_SORT_KEYS)


def _take_state(content: bytes, plan: int) -> int:
    return hash_text(content, str(plan)) & _MASK


def read_mark(text: str) -> int:
    """The annotation of a report as ScannedObjects stores it; 0 if it is not lictor's."""
    try:
        state, print_ = (int(part, 16) for part in text.split("-"))
    except ValueError:
        return 0
    return (state & _MASK) << _BITS | (print_ & _MASK)


def check_mark(mark: int, entries: Iterable[JsonObject]) -> int:
    """The mark, or 0 if the entries are not the scanner's: they are written again."""
    return mark if mark & _MASK == hash_written(entries) & _MASK else 0
