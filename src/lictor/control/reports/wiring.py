"""Builds the scanner, the aggregator and the report writer."""

from lictor.cluster.cache import Change
from lictor.cluster.discovery import Discovery
from lictor.cluster.ephemeral_reports import read_form
from lictor.cluster.flags import Flags
from lictor.cluster.request_filter import RequestFilter, build_filter
from lictor.cluster.resource import Resource
from lictor.cluster.settings import Settings
from lictor.control.context import ControllerContext, EmitEvent
from lictor.control.reports.reconcile import CurrentPlan, Reports
from lictor.control.reports.writer import ReportWriter
from lictor.control.scan.kind import ScanContext
from lictor.control.scan.kinds import ScanEvents, Scanner
from lictor.control.scan.plan import NativePrograms
from lictor.control.scan.progress import ScannedObjects, ScanProgress
from lictor.control.scan.replicas import Membership
from lictor.lang.duration import NANOSECONDS, parse_duration
from lictor.model.request import Request

_LEAST_INTERVAL = 30.0


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
    scanner = Scanner(tools, list_kinds, interval=max(interval, _LEAST_INTERVAL))
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
    """Scan again where labels of a namespace change: namespace selectors use them."""
    before = (change.before or change.object)["metadata"].get("labels")
    if before != change.object["metadata"].get("labels"):
        scanner.scan_again()
