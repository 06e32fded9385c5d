"""Keeps reports in sync with policies and objects: scanner, aggregator and removal of old ones."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.report_writer import ReportWriter
from lictor.controllers.reports.aggregation import Aggregator, watch_ephemeral
from lictor.controllers.scan.kind import ScanContext
from lictor.controllers.scan.kinds import ScanEvents, Scanner
from lictor.controllers.scan.plan import NativePrograms, ScanPlan, ScanPlanner
from lictor.controllers.scan.progress import ScannedObjects, ScanProgress
from lictor.controllers.scan.replicas import Membership
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.model.request import Request
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import MANAGED_BY
from lictor.kubernetes.cache import Change
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.ephemeral_reports import read_form
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.request_filter import RequestFilter, build_filter
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.settings import Settings
from lictor.policies.store import PolicyStore

_INTERVAL = 600.0
_AT_ONCE = 8
_KINDS = ("AdmissionReport", "BackgroundScanReport")
# The last versions in which there were such kinds.
_VERSIONS = ("v2", "v1alpha2")


def list_old_kinds() -> Iterable[Resource]:
    """Both kinds, with a namespace and without, in each version."""
    for version in _VERSIONS:
        for kind in _KINDS:
            yield Resource("kyverno.io", version, f"{kind.lower()}s", kind)
            plural = f"cluster{kind.lower()}s"
            yield Resource("kyverno.io", version, plural, f"Cluster{kind}", namespaced=False)


class OldReports:
    """Deletes reports of older releases, where their kinds are still served."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()

    async def run(self) -> None:
        """Check at an interval until cancelled; two replicas at once do no harm."""
        while True:
            for resource in list_old_kinds():
                await self._clear(resource)
            await asyncio.sleep(_INTERVAL)

    async def _clear(self, resource: Resource) -> None:
        try:
            async for page in self._client.list_pages(resource, page=100, metadata_only=True):
                items = page.get("items") or ()
                for start in range(0, len(items), _AT_ONCE):
                    chunk = items[start : start + _AT_ONCE]
                    await asyncio.gather(*(self._delete(resource, item) for item in chunk))
        except NotFoundError:
            return
        except ApiError as error:
            if resource.plural not in self._told:
                self._told.add(resource.plural)
                log.warning(
                    "old reports not removed",
                    extra={"resource": resource.plural, "why": str(error)[:200]},
                )

    async def _delete(self, resource: Resource, item: JsonObject) -> None:
        metadata = item["metadata"]
        with suppress(NotFoundError):
            namespace = metadata.get("namespace") or ""
            await self._client.delete(resource, metadata["name"], namespace)


log = logging.getLogger(__name__)

_RESYNC = 600.0
_SHOW_EVERY = 5.0


class CurrentPlan:
    """The current scan plan; defines which entries belong to the scanner."""

    def __init__(self) -> None:
        self.plan = ScanPlan((), (), frozenset())

    def is_scanned(self, entry: JsonObject) -> bool:
        return self.plan.is_scanned(entry)

    def is_alive(self, entry: JsonObject) -> bool:
        return self.plan.is_alive(entry)


class Reports:
    """Everything about reports in one replica; `run` until cancelled.

    Every replica runs this; the Membership assigns the objects.
    """

    name = "reports"
    leader_only = False

    def __init__(
        self,
        store: PolicyStore,
        scanner: Scanner,
        context: ScanContext,
        now: CurrentPlan,
        *,
        membership: Membership,
        natives: NativePrograms,
    ) -> None:
        self._store = store
        self._scanner = scanner
        self._client: Client = context.client
        self._writer: ReportWriter = context.writer
        self._now = now
        self._membership = membership
        self._natives = natives
        self._planner = ScanPlanner(store)
        self._followed: frozenset[Resource] = frozenset()
        caches = watch_ephemeral(self._client)
        aggregator = Aggregator(
            self._client, caches, self._writer, owns=membership.owns, names=lambda: store.names
        )
        self._caches = caches
        self.planning = ReconcileLoop("report-plan", self._plan, interval=_RESYNC)
        self.aggregating = ReconcileLoop(
            "report-aggregation", aggregator.reconcile, interval=30.0, caches=caches
        )
        store.listen(self.planning.wake)
        natives.listen(self.planning.wake)
        membership.listen(scanner.share_again)
        membership.listen(self.aggregating.wake)

    async def run(self) -> None:
        """Scan, aggregate and prune until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._membership.run())
                group.create_task(self._natives.run())
                group.create_task(OldReports(self._client).run())
                for cache in self._caches:
                    group.create_task(cache.run())
                await self._store.wait()
                await self._natives.wait()
                await self._membership.wait()
                await self._scanner.load()
                group.create_task(self._scanner.run())
                group.create_task(self._show())
                group.create_task(self.planning.run())
                group.create_task(self.aggregating.run())
        finally:
            await self._scanner.stop()

    async def _show(self) -> None:
        while True:
            self._scanner.progress.show()
            await asyncio.sleep(_SHOW_EVERY)

    async def _plan(self) -> None:
        before = self._now.plan
        native, mutations = self._natives.programs()
        plan = self._planner.build(native, mutations)
        self._now.plan = plan
        left = await self._scanner.follow(plan)
        self._followed = self._scanner.followed
        if left or before.alive - plan.alive or not before.alive:
            await self._sweep()

    async def _sweep(self) -> None:
        """Remove the entries of deleted policies and rules from reports."""
        managed = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())
        followed = {(each.api_version, each.kind) for each in self._followed}
        for namespace in ("any", ""):
            resource = self._writer.kind_for(namespace)
            with suppress(NotFoundError):
                async for page in self._client.list_pages(resource, labels=managed, page=100):
                    for report in self._mine(page.get("items") or ()):
                        scope = report.get("scope") or {}
                        about = scope.get("apiVersion"), scope.get("kind")
                        await self._writer.prune(report, is_followed=about in followed)

    def _mine(self, reports: Iterable[JsonObject]) -> list[JsonObject]:
        owns: Callable[[str], bool] = self._membership.owns
        return [report for report in reports if owns(str(report["metadata"]["name"]))]


# --- how they are built

_LEAST_SCAN_INTERVAL = 30.0


def build_reports(
    context: ControllerContext, discovery: Discovery, emit: EmitEvent = lambda _: None
) -> Reports:
    """The reports controller of one replica; `emit` takes events."""
    client, flags = context.client, context.flags
    now, progress = CurrentPlan(), ScanProgress()
    membership = Membership(client, context.names, "reports", context.identity, progress.describe)
    filters = _Filters(flags, context.settings.current)
    tools = ScanContext(
        client,
        ReportWriter(client, now, openreports=flags.openreports_enabled),
        ScannedObjects(),
        membership.owns,
        context.namespaces.labels,
        filters.is_filtered,
        read_form(flags),
        ScanEvents(emit, context.store, lambda: context.settings.current).take,
        progress,
    )
    scanner = _build_scanner(tools, context, discovery)
    context.settings.listen(lambda settings: filters.change(settings, scanner))
    natives = NativePrograms(client, flags, context.lookups, lambda: context.store.names)
    return Reports(context.store, scanner, tools, now, membership=membership, natives=natives)


def _build_scanner(tools: ScanContext, context: ControllerContext, discovery: Discovery) -> Scanner:
    async def list_kinds() -> list[Resource]:
        await discovery.ensure()
        return discovery.list_kinds() if context.flags.background_scan else []

    interval = parse_duration(context.flags.background_scan_interval) / NANOSECONDS
    scanner = Scanner(tools, list_kinds, interval=max(interval, _LEAST_SCAN_INTERVAL))
    context.namespaces.listen(lambda change: _heed_labels(change, scanner))
    discovery.follow(context.store.crds)
    return scanner


class _Filters:
    """Which objects the settings exclude from scans."""

    def __init__(self, flags: Flags, settings: Settings) -> None:
        self._ignored = flags.skip_resource_filters
        self._settings = settings
        self._test: RequestFilter = build_filter(settings)

    def is_filtered(self, request: Request) -> bool:
        return not self._ignored and self._test(request)

    def change(self, settings: Settings, scanner: Scanner) -> None:
        """Evaluate everything again where the resource filters have changed."""
        if settings.resource_filters != self._settings.resource_filters:
            self._test = build_filter(settings)
            scanner.scan_again(forced=True)
        self._settings = settings


def _heed_labels(change: Change, scanner: Scanner) -> None:
    """Scan again if labels of a namespace change: namespace selectors use them."""
    before = (change.before or change.object)["metadata"].get("labels")
    if before != change.object["metadata"].get("labels"):
        scanner.scan_again()
