"""Everything that is there, judged in pages; then what changes, as it changes."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

import msgspec
import orjson

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.control.ledger import Ledger, hash_text
from lictor.control.report_writer import JUDGED, MIXED, ReportWriter
from lictor.control.scan_plan import KindPlan, ScanPlan
from lictor.errors import ApiError, GoneError, NotFoundError
from lictor.model.request import Request
from lictor.model.result import Result
from lictor.raw import JsonObject
from lictor.report.resource_report import (
    MANAGED_BY,
    ReportForm,
    Subject,
    build_entry,
    take_fingerprint,
)

log = logging.getLogger(__name__)

_PAGE = 250
_WRITERS = 12
_PAUSE = 2.0
# What comes and goes all the time, or is written by us: nobody wants reports about these.
_NOISE = frozenset(
    (
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("wgpolicyk8s.io", "PolicyReport"),
        ("wgpolicyk8s.io", "ClusterPolicyReport"),
        ("openreports.io", "Report"),
        ("openreports.io", "ClusterReport"),
        ("reports.kyverno.io", "EphemeralReport"),
        ("reports.kyverno.io", "ClusterEphemeralReport"),
        ("kyverno.io", "UpdateRequest"),
    )
)
_STATE_BITS = 0x3FFFFFFF

# The objects of a kind, page by page, and changes since a version: what a Client offers.
NamespaceLabels: TypeAlias = Callable[[str], Mapping[str, str]]
Tell: TypeAlias = Callable[[JsonObject, list[Result]], None]


class ScanTools(msgspec.Struct, frozen=True):
    """What a scan works with."""

    client: Client
    writer: ReportWriter
    ledger: Ledger
    owns: Callable[[str], bool]
    namespace_labels: NamespaceLabels
    is_filtered: Callable[[Request], bool]
    form: ReportForm = ReportForm()
    # Told of every object whose results are new, for events and metrics.
    tell: Tell = lambda resource, results: None  # noqa: ARG005


class _Judged(msgspec.Struct, frozen=True):
    """One object, freshly judged."""

    subject: Subject
    entries: list[JsonObject]
    state: int
    print: int


class Progress:
    """How far the scan is; shown in metrics and by `lictor status`."""

    def __init__(self) -> None:
        self.kinds = 0
        self.seen = 0
        self.judged = 0
        self.written = 0
        self.finished_at = 0.0
        self.running = 0


class Scanner:
    """Follows every kind that the policies of the background are about."""

    def __init__(
        self,
        tools: ScanTools,
        list_kinds: Callable[[], Awaitable[Iterable[Resource]]],
        *,
        interval: float = 3600.0,
    ) -> None:
        self._tools = tools
        self._list_kinds = list_kinds
        self._interval = interval
        self._scans: dict[Resource, _KindScan] = {}
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self.progress = Progress()

    async def load(self) -> None:
        """Read what earlier scans said, so that only what changed since is judged again."""
        writer, ledger = self._tools.writer, self._tools.ledger
        managed = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())
        for namespace in ("any", ""):
            resource = writer.kind_for(namespace)
            with suppress(NotFoundError):
                async for page in self._tools.client.list_pages(
                    resource, labels=managed, page=_PAGE, metadata_only=True
                ):
                    for item in page.get("items") or ():
                        _remember(item["metadata"], writer, ledger)

    async def follow(self, plan: ScanPlan) -> frozenset[Resource]:
        """Scan by these policies from now on; answers with the kinds that are left alone now."""
        wanted: dict[Resource, KindPlan] = {}
        for resource in await self._list_kinds():
            if (resource.group, resource.kind) in _NOISE:
                continue
            made = plan.for_kind(resource)
            if made is not None:
                wanted[resource] = made
        gone = frozenset(self._scans) - frozenset(wanted)
        for resource in gone:
            self._scans.pop(resource)
            self._tasks.pop(resource).cancel()
        for resource, made in wanted.items():
            scan = self._scans.get(resource)
            if scan is None:
                scan = _KindScan(resource, made, self._tools, self.progress, self._interval)
                self._scans[resource] = scan
                self._tasks[resource] = asyncio.create_task(scan.run())
            else:
                scan.change(made)
        self.progress.kinds = len(wanted)
        return gone

    @property
    def followed(self) -> frozenset[Resource]:
        """The kinds that are looked at now."""
        return frozenset(self._scans)

    def scan_again(self) -> None:
        """Look at everything again: replicas came or went, or labels of a namespace changed."""
        for scan in self._scans.values():
            scan.wake()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class _KindScan:
    """One kind: all of it in pages, then its changes, and all of it again when that is due."""

    def __init__(
        self,
        resource: Resource,
        plan: KindPlan,
        tools: ScanTools,
        progress: Progress,
        interval: float,
    ) -> None:
        self._resource = resource
        self._plan = plan
        self._tools = tools
        self._progress = progress
        self._interval = interval
        self._again = asyncio.Event()
        self._due = time.monotonic() + interval
        self._writers = asyncio.Semaphore(_WRITERS)

    def change(self, plan: KindPlan) -> None:
        if plan.key != self._plan.key:
            self._plan = plan
            self.wake()

    def wake(self) -> None:
        self._again.set()

    async def run(self) -> None:
        pause = _PAUSE
        while True:
            self._again.clear()
            try:
                await self._follow(await self._read_all())
                pause = _PAUSE
            except GoneError:
                continue
            except ApiError as error:
                log.warning(
                    "scan interrupted",
                    extra={"resource": self._resource.plural, "why": str(error)[:200]},
                )
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(pause * 2, 60.0)

    async def _read_all(self) -> str:
        forced = time.monotonic() >= self._due
        if forced:
            self._due = time.monotonic() + self._interval
        version = ""
        self._progress.running += 1
        try:
            async for page in self._tools.client.list_pages(self._resource, page=_PAGE):
                await self._take(page.get("items") or (), forced=forced)
                version = page["metadata"].get("resourceVersion") or version
        finally:
            self._progress.running -= 1
        self._progress.finished_at = time.time()
        return version

    async def _follow(self, since: str) -> None:
        """Until the policies change, or everything is due again."""
        watching = asyncio.create_task(self._watch(since))
        waiting = asyncio.create_task(self._wait())
        try:
            done, _ = await asyncio.wait((watching, waiting), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (watching, waiting):
                task.cancel()
            await asyncio.gather(watching, waiting, return_exceptions=True)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._due - time.monotonic(), 1.0)):
                await self._again.wait()

    async def _watch(self, since: str) -> None:
        while True:
            try:
                async for burst in self._bursts(since):
                    since = burst.version or since
                    await self._take(burst.changed, forced=False)
                    for item in burst.deleted:
                        uid = str(item["metadata"].get("uid") or "")
                        self._tools.ledger.remove(uid)
                        self._tools.writer.forget(uid)
            except GoneError:
                raise
            except ApiError as error:
                if error.status:
                    raise
                await asyncio.sleep(_PAUSE * random.uniform(0.5, 1.0))  # noqa: S311

    async def _bursts(self, since: str) -> "AsyncIterator[_Burst]":
        async for event in self._tools.client.watch(self._resource, since=since):
            version = event.object["metadata"].get("resourceVersion") or ""
            if event.type == "BOOKMARK":
                yield _Burst(version)
            elif event.type == "DELETED":
                yield _Burst(version, deleted=(event.object,))
            else:
                yield _Burst(version, changed=(event.object,))

    async def _take(self, items: Iterable[JsonObject], *, forced: bool) -> None:
        mine = [item for item in items if self._tools.owns(_uid_of(item))]
        self._progress.seen += len(mine)
        if not mine:
            return
        judged = await asyncio.to_thread(self._judge_all, mine, forced)
        await asyncio.gather(*(self._write(each) for each in judged))

    def _judge_all(self, items: list[JsonObject], forced: bool) -> list[_Judged]:  # noqa: FBT001
        made = (self._judge(item, forced=forced) for item in items)
        return [each for each in made if each is not None]

    def _judge(self, item: JsonObject, *, forced: bool) -> _Judged | None:
        tools = self._tools
        subject = Subject.of(item)
        labels = tools.namespace_labels(subject.namespace) if subject.namespace else {}
        state = _take_state(item, labels, self._plan.key)
        known = tools.ledger.get(subject.uid)
        if known is not None and known[0] >> 30 == state and not forced:
            return None
        request = Request.of(item, namespace_labels=labels)
        results = [] if tools.is_filtered(request) else self._plan.judge(request)
        self._progress.judged += 1
        stamp = int(time.time())
        entries = [
            build_entry(result, background=True, timestamp=stamp)
            for result in results
            if tools.form.wants(result)
        ]
        print_ = int(take_fingerprint(entries)[:8], 16) & _STATE_BITS if entries else 0
        if known is not None and known[0] & _STATE_BITS == print_ and known[1] == bool(entries):
            tools.ledger.put(subject.uid, state << 30 | print_, reported=bool(entries))
            return None
        tools.tell(item, results)
        return _Judged(subject, entries, state, print_)

    async def _write(self, judged: _Judged) -> None:
        tools, subject = self._tools, judged.subject
        known = tools.ledger.get(subject.uid)
        exists = known is not None and known[1]
        async with self._writers:
            if judged.entries:
                mark = f"{judged.state:x}-{judged.print:x}"
                await tools.writer.write(subject, judged.entries, judged=mark, exists=exists)
                self._progress.written += 1
            elif exists:
                await tools.writer.remove(subject)
                self._progress.written += 1
        value = judged.state << 30 | judged.print
        tools.ledger.put(subject.uid, value, reported=bool(judged.entries))


class _Burst(msgspec.Struct, frozen=True):
    """What a watch brought."""

    version: str
    changed: tuple[JsonObject, ...] = ()
    deleted: tuple[JsonObject, ...] = ()


def _uid_of(item: JsonObject) -> str:
    return str(item["metadata"].get("uid") or "")


def _take_state(item: JsonObject, labels: Mapping[str, str], plan: int) -> int:
    """What a verdict depends on: the object without what changes by itself, and the policies."""
    metadata = item.get("metadata") or {}
    kept = {name: metadata.get(name) for name in ("labels", "annotations", "finalizers", "name")}
    body = {name: part for name, part in item.items() if name not in ("metadata", "status")}
    text = orjson.dumps((kept, body, dict(labels)), option=orjson.OPT_SORT_KEYS)
    return hash_text(text, str(plan)) & _STATE_BITS


def _remember(metadata: JsonObject, writer: ReportWriter, ledger: Ledger) -> None:
    notes = metadata.get("annotations") or {}
    uid = str(metadata["name"])
    if notes.get(MIXED):
        writer.mark_mixed(uid)
    try:
        state, print_ = (int(part, 16) for part in str(notes.get(JUDGED, "")).split("-"))
    except ValueError:
        state, print_ = 0, 0
    ledger.put(uid, (state & _STATE_BITS) << 30 | (print_ & _STATE_BITS), reported=True)
