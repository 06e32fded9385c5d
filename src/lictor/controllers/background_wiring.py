"""Builds the coordinator of generate and mutate-existing rules."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.controllers.background import RESYNC, BackgroundCoordinator
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.generate.downstream import Downstream
from lictor.controllers.generate.objects import GeneratedObjectWriter
from lictor.controllers.generate.queue import GenerationQueue, Rewrites
from lictor.controllers.generate.reconcile import GenerationOutcome, GenerationReconciler
from lictor.controllers.generate.rules import GenerateRules
from lictor.controllers.generate.watch import GenerationWatch, TriggerWatch
from lictor.controllers.mutate_existing import ExistingTriggers, MutateExisting
from lictor.controllers.policy_writes import PolicyWrites
from lictor.controllers.update_requests import TriggerReader, UpdateHandler, UpdateRequestQueue
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
