"""The loops, the controllers they belong to, and how they are built."""

from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Protocol, TypeAlias

import msgspec

from lictor.controllers.background import RESYNC, BackgroundCoordinator
from lictor.controllers.certificates import build_certificates_loop
from lictor.controllers.cleanup.schedule import build_policies_loop
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.family_controllers import WebhookHealth, list_family_controllers
from lictor.controllers.generate.downstream import Downstream
from lictor.controllers.generate.objects import GeneratedObjectWriter
from lictor.controllers.generate.queue import GenerationQueue, Rewrites
from lictor.controllers.generate.reconcile import GenerationOutcome, GenerationReconciler
from lictor.controllers.generate.rules import GenerateRules
from lictor.controllers.generate.watch import GenerationWatch, TriggerWatch
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.mutate_existing import ExistingTriggers, MutateExisting
from lictor.controllers.native_policies.reconcile import build_native_loop
from lictor.controllers.policy_writes import PolicyWrites
from lictor.controllers.reports.aggregation import BackgroundReports
from lictor.controllers.reports.reconcile import build_reports
from lictor.controllers.status.global_context import build_global_context_loop
from lictor.controllers.status.policies import build_status_loop, follow_changes
from lictor.controllers.ttl import build_ttl_loops
from lictor.controllers.update_requests import TriggerReader, UpdateHandler, UpdateRequestQueue
from lictor.controllers.webhook_configuration.configurations import build_webhooks_loop
from lictor.controllers.webhook_configuration.heartbeat import Heartbeat, build_heartbeat
from lictor.controllers.webhook_configuration.writer import (
    ConfigurationWriter,
    build_ownership_loop,
    remove_webhooks,
)
from lictor.core.errors import UsageError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.model.request import Request
from lictor.core.model.result import Result, Verdict
from lictor.core.report.events import (
    EventSource,
    build_failure_event,
    build_generated_events,
    build_mutated_events,
)
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.resource import UPDATE_REQUEST, Resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import UpdateRequests, UpdateType

OnUninstall: TypeAlias = Callable[[], Awaitable[object]]

# Loops by controller: what `lictor control NAME` may name.
CONTROLLERS: dict[str, tuple[str, ...]] = {
    "admission": ("certificates", "heartbeat", "ownership", "policies"),
    "background": ("background",),
    "cleanup": ("cleanup-policies", "ttl"),
    "reports": ("reports",),
}


class Runner(Protocol):
    """A loop, or several as one."""

    name: str
    leader_only: bool

    async def run(self) -> None: ...


class Controller(msgspec.Struct, frozen=True):
    """The loops of one controller, which elect one leader together."""

    name: str
    lease: str
    loops: tuple[Runner, ...]
    # What runs on every replica besides the loops.
    background_tasks: tuple[Callable[[], Coroutine[None, None, None]], ...] = ()
    # What the leader does when the installation is removed.
    on_uninstall: OnUninstall | None = None


def choose_loops(which: Collection[str]) -> frozenset[str]:
    """The chosen loops: all, those of the named controllers, or the named ones."""
    everything = frozenset(name for names in CONTROLLERS.values() for name in names)
    unknown = sorted(set(which) - everything - CONTROLLERS.keys())
    if unknown:
        known = ", ".join(dict.fromkeys((*sorted(CONTROLLERS), *sorted(everything))))
        raise UsageError(f"unknown controller {unknown[0]!r}; there are {known}")
    if not which:
        return everything
    return frozenset(name for given in which for name in CONTROLLERS.get(given, (given,)))


def build_controllers(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> tuple[Controller, ...]:
    """The chosen loops, by controller; `emit` takes events."""
    controllers = (
        _build_admission(context, chosen, emit),
        _build_background(context, chosen, emit),
        _build_cleanup(context, chosen, emit),
        _build_reports(context, chosen, emit),
    )
    return tuple(controller for controller in controllers if controller.loops)


def _build_admission(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    loops: list[Runner] = []
    if "certificates" in chosen:
        loops.append(build_certificates_loop(context))
    if "ownership" in chosen:
        loops.append(build_ownership_loop(context))
    heartbeat, beating = build_heartbeat(context)
    if "heartbeat" in chosen:
        loops.append(beating)
    on_uninstall = None
    if "policies" in chosen:
        loops += _build_policies(context, heartbeat, emit)
        loops.append(build_global_context_loop(context))
        on_uninstall = _clean_up(context)
    return Controller("admission", context.names.lease(), tuple(loops), on_uninstall=on_uninstall)


def _build_background(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    lease = context.names.lease("background")
    if "background" not in chosen:
        return Controller("background", lease, ())
    results = BackgroundReports(context.client, context.flags, context.store)
    discovery = Discovery(context.client)
    loop = build_background(context, discovery, emit=emit, add_report=results.add)
    return Controller("background", lease, (loop,), (results.run,))


def _build_reports(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    lease = context.names.lease("reports")
    flags = context.flags
    if "reports" not in chosen or not (flags.policy_reports and flags.aggregate_reports):
        return Controller("reports", lease, ())
    reports = build_reports(context, Discovery(context.client), emit)
    return Controller("reports", lease, (reports,))


def _build_cleanup(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    loops: list[Runner] = []
    if "cleanup-policies" in chosen:
        loops.append(build_policies_loop(context, emit))
    if "ttl" in chosen:
        loops += build_ttl_loops(context)
    lease = context.names.lease("cleanup")
    return Controller("cleanup", lease, tuple(loops))


def _build_policies(
    context: ControllerContext, heartbeat: Heartbeat, emit: EmitEvent
) -> list[ReconcileLoop]:
    """Webhooks, native policies and statuses, which share their results."""
    webhooks, ready = build_webhooks_loop(context, heartbeat.healthy)
    heartbeat.listen(webhooks.wake)
    follow_changes(context.store)
    native, made = build_native_loop(context, ready, emit)
    health = WebhookHealth(ConfigurationWriter(context).find_address, heartbeat.healthy)
    loops = [webhooks, native, build_status_loop(context, ready, made, emit)]
    for controllers in list_family_controllers():
        for loop in controllers.build_loops(context, health, emit):
            heartbeat.listen(loop.wake)
            loops.append(loop)
    return loops


def _clean_up(context: ControllerContext) -> OnUninstall:
    async def clean_up() -> None:
        await remove_webhooks(context.client, context.names)
        for controllers in list_family_controllers():
            await controllers.clean_up(context.client, context.names)

    return clean_up


AddReport: TypeAlias = Callable[[Request, tuple[Result, ...]], None]

_GENERATE = EventSource.GENERATE


def build_background(
    context: ControllerContext, discovery: Discovery, *, emit: EmitEvent, add_report: AddReport
) -> BackgroundCoordinator:
    """The coordinator, for the leader; `emit` takes events, `add_report` takes results."""
    client, flags, store = context.client, context.flags, context.store
    triggers = TriggerReader(client, lambda: store.names, context.namespaces)
    downstream = Downstream(client)
    discovery.follow(store.crds)
    rules = GenerateRules(client, store)
    writes = PolicyWrites(client, context.names)
    rewrites = Rewrites()
    generation = GenerationReconciler(
        GeneratedObjectWriter(client, writes, downstream),
        downstream,
        triggers,
        policies=rules,
        rewrites=rewrites,
        emit=_report_generated(emit, add_report),
    )
    queue = GenerationQueue(generation.reconcile, rewrites, workers=flags.gen_workers)
    watch = GenerationWatch(client, downstream, triggers, rules, generation, queue)
    mutation = MutateExisting(writes, store, triggers, emit=_report_mutated(emit, add_report))
    requests = _build_requests(context)
    return BackgroundCoordinator(
        store=store,
        triggers=triggers,
        downstream=downstream,
        rules=rules,
        queue=queue,
        watch=watch,
        trigger_watch=TriggerWatch(client, triggers, downstream, generation, rules, queue),
        existing=ExistingTriggers(
            client, store, generation, watch, requests=requests, enqueue=queue.enqueue
        ),
        updates=_build_updates(context, generation, mutation),
        requests=requests,
        list_kinds=lambda: _list_kinds(discovery),
        resync=min(parse_duration(flags.resync_period) / NANOSECONDS, RESYNC),
    )


def _report_generated(
    emit: EmitEvent, add_report: AddReport
) -> Callable[[GenerationOutcome], None]:
    def report(done: GenerationOutcome) -> None:
        policy, uid = done.rule.program.policy, done.rule.policy.uid
        for event in build_generated_events(policy, uid, done.rule.name, done.created):
            emit(event)
        if done.failure:
            name = done.rule.name
            emit(
                build_failure_event(policy, uid, name, done.request, done.failure, source=_GENERATE)
            )
        add_report(done.request, done.results)

    return report


def _report_mutated(
    emit: EmitEvent, add_report: AddReport
) -> Callable[[StoredPolicy, Request, list[Result]], None]:
    def report(policy: StoredPolicy, request: Request, results: list[Result]) -> None:
        for event in build_mutated_events(Verdict(request, tuple(results)), policy.uid):
            emit(event)
        add_report(request, tuple(results))

    return report


def _build_updates(
    context: ControllerContext, generation: GenerationReconciler, mutation: MutateExisting
) -> UpdateRequestQueue:
    handlers: dict[UpdateType, UpdateHandler] = {
        UpdateType.GENERATE: generation.handle,
        UpdateType.CEL_GENERATE: generation.handle,
        UpdateType.MUTATE: mutation.handle,
        UpdateType.CEL_MUTATE: mutation.handle,
    }
    cache = context.watch(UPDATE_REQUEST, namespace=context.names.namespace)
    return UpdateRequestQueue(context.client, cache, handlers, workers=context.flags.gen_workers)


def _build_requests(context: ControllerContext) -> UpdateRequests:
    settings = context.settings
    return UpdateRequests(
        context.client, context.names, limit=lambda: settings.current.update_request_threshold
    )


async def _list_kinds(discovery: Discovery) -> list[Resource]:
    await discovery.ensure()
    return discovery.list_kinds()
